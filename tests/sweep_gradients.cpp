// The matrix of features of gradients: every row compiled by the test and held to the float64 reference over random shapes, each with the
// same bits for 1 and 2 threads; the same bits whatever the neighbours and the padding; packed sequences as they are alone. Every row has
// one of several machines. Rows of bf16 without what makes floats of heads are multiplied in pairs by a host that can, and as floats by
// other machines. Quick tier: a row of every fourth part, which rotate with POLYHEAD_SWEEP_SEED. POLYHEAD_TEST_ALL=1: every second row.
// POLYHEAD_SWEEP_ONLY=<number> repeats one row.
#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "support/feature_matrix.h"
#include "support/sweep_compiled.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int parts = 12, idle_parts = 4, shapes_per_row = 10;
constexpr int pair_parts = 4, rows_of_pairs = 72;
constexpr double flops_per_check = 3e7; // of each evaluation of the reference

const std::vector<std::string> targets = {
    "host", "host", "x86-64-linux-avx2-fma-f16c-avx-sse41", "x86-64-linux-avx2-fma-f16c-avx-sse41", "x86-64-linux-sse41", "x86-64-linux",
};

const std::vector<std::string> targets_of_pairs = {"host", "host", "host", "x86-64-linux-avx2-fma-f16c-avx-sse41"};

Problem problem_of_pairs(FeatureRow row) {
    for (size_t i = 0; i < row.size(); i++) {
        const std::string &feature = gradient_features()[i].name;
        for (const char *of_floats : {"rope", "query_norm", "key_norm", "value_norm", "head_gate", "gate"}) {
            row[i] = feature == of_floats ? 0 : row[i];
        }
        row[i] = feature == "dtype" ? 1 + row[i] % 2 : row[i]; // bf16, additive tensors in f32 or in it
    }
    return gradient_problem(row);
}

void sweep_problem(const std::string &name, int number, const Problem &p, const std::string &target, uint64_t seed) {
    compile_in_sweep(name, number, p, target, [&](const CompiledKernel &compiled, const std::string &line) {
        const Problem called = call_problem(compiled.kernel());
        const KernelSubject subject(compiled.kernel(), seed);
        Random random(seed ^ 0x736861706573u);
        double worst = 0;
        int shapes = 0;
        for (; shapes < shapes_per_row; shapes++) {
            const Shape shape = sweep_shape(called, shapes, seed, random);
            CHECK(check_answer(subject.subject(), shape, &worst, flops_per_check) == "");
            CHECK(check_two_threads(subject.subject(), shape) == "");
        }
        shapes += check_same_bits_of_variants(compiled, seed, random);
        if (takes_packed_tokens(called)) {
            CHECK(check_ragged(subject.subject(), seed) == "");
        }
        print_swept(name, number, shapes, worst, line);
    });
}

void sweep_row(int number, uint64_t seed) {
    sweep_problem("gradients", number, gradient_problem(gradient_rows()[static_cast<size_t>(number)]), Random(seed).pick(targets), seed);
}

void sweep_row_of_pairs(int number, uint64_t seed) {
    sweep_problem("pairs", number, problem_of_pairs(gradient_rows()[static_cast<size_t>(number)]), Random(seed).pick(targets_of_pairs),
                  seed);
}

void sweep_part_of_pairs(int part) {
    const int begin = rows_of_pairs * part / pair_parts, end = rows_of_pairs * (part + 1) / pair_parts;
    for_each_of_sweep("gradients of pairs/", rotating_numbers(begin, end, 1), sweep_row_of_pairs);
}

// Every tensor of an expression whose gradient is asked for, in a small problem of its own: few heads, or many, whose keys are not
// split.
void sweep_table(int number, uint64_t seed) {
    const bool many = number % 2 != 0;
    Problem p = backward_problem(many ? 8 : 4, 24, many ? 8 : 2, 16);
    p.expression = table_cases()[static_cast<size_t>(number)].text;
    p.causal = number % 3;
    p.kv_lengths = 1;
    sweep_problem("tables", number, p, Random(seed).pick(targets), seed);
}

void sweep_part(int part) {
    const int rows = static_cast<int>(gradient_rows().size()), begin = rows * part / parts, end = rows * (part + 1) / parts;
    const bool idle = !test_all() && (text_seed(sweep_seed_text()) / 64 + static_cast<uint64_t>(part)) % idle_parts != 0;
    for_each_of_sweep("gradients/", rotating_numbers(begin, end, idle ? 0 : 1), sweep_row);
}

} // namespace

TEST_CASE("gradients: wrong arguments are refused, and nothing is written") {
    Problem plain = backward_problem(4, 16, 2, 8), full = plain;
    full.causal = POLYHEAD_TOP_LEFT;
    full.mask = POLYHEAD_BOOLEAN_MASK;
    full.kv_lengths = full.window = full.position_offsets = full.score_bias = full.softcap = full.alibi = full.sinks = 1;
    full.gate = POLYHEAD_GATE_OF_ENTRIES;
    full.query_norm = full.key_norm = POLYHEAD_LAYER_NORM;
    full.grad_score_bias = full.grad_alibi = full.grad_sinks = full.grad_gate = full.grad_query_norm = full.grad_key_norm = 1;
    full.expression = table_cases().back().text;
    for (const Problem &p : {plain, full}) {
        const CompiledKernel compiled(p, {"host", "", "refusals"});
        REQUIRE(compiled.error() == "");
        Shape shape = crowded_shape();
        shape.lengths = p.kv_lengths != 0 ? shape.lengths : std::vector<int32_t>();
        shape.extras.left_out = 0;
        CHECK(check_refusals(KernelSubject(compiled.kernel(), 1).subject(), shape) == "");
    }
}

// out is the value of the one key, so what is subtracted is the same sum twice. LLVM must not add it up in two orders.
TEST_CASE("gradients: where a row sees one key, those of query and key are exactly 0") {
    const Problem p = backward_problem(2, 32);
    for (const char *target : {"host", "x86-64-linux-sse41"}) {
        const CompiledKernel compiled(p, {target, "", "one_key"});
        REQUIRE(compiled.error() == "");
        const Inputs inputs(p, plain_shape(p, 3, 9, 1, 1));
        CHECK(polyhead_run(&compiled.kernel(), &inputs.args()).code == POLYHEAD_OK);
        for (polyhead_tensor polyhead_args::*output : {&polyhead_args::grad_query, &polyhead_args::grad_key}) {
            for (const float gradient : inputs.read(output)) {
                CHECK(gradient == 0.0f);
            }
        }
    }
}

TEST_CASE("gradient sweep: tensors of expressions") {
    const int count = static_cast<int>(table_cases().size());
    for_each_of_sweep("gradients/tables", test_all() ? first_numbers(count) : rotating_numbers(0, count, 1), sweep_table);
}

// One test per part, so that parts run side by side.
#define POLYHEAD_GRADIENT_PART(number)                                                                                                     \
    TEST_CASE("gradient sweep: part " #number " of 12") {                                                                                  \
        sweep_part(number - 1);                                                                                                            \
    }
POLYHEAD_GRADIENT_PART(1)
POLYHEAD_GRADIENT_PART(2)
POLYHEAD_GRADIENT_PART(3)
POLYHEAD_GRADIENT_PART(4)
POLYHEAD_GRADIENT_PART(5)
POLYHEAD_GRADIENT_PART(6)
POLYHEAD_GRADIENT_PART(7)
POLYHEAD_GRADIENT_PART(8)
POLYHEAD_GRADIENT_PART(9)
POLYHEAD_GRADIENT_PART(10)
POLYHEAD_GRADIENT_PART(11)
POLYHEAD_GRADIENT_PART(12)

#define POLYHEAD_GRADIENT_PART_OF_PAIRS(number)                                                                                            \
    TEST_CASE("gradient sweep: pairs of bf16, part " #number " of 4") {                                                                    \
        sweep_part_of_pairs(number - 1);                                                                                                   \
    }
POLYHEAD_GRADIENT_PART_OF_PAIRS(1)
POLYHEAD_GRADIENT_PART_OF_PAIRS(2)
POLYHEAD_GRADIENT_PART_OF_PAIRS(3)
POLYHEAD_GRADIENT_PART_OF_PAIRS(4)

// The matrix of features: every row compiled by the test and held to the reference over random shapes, each with the same bits for 1
// and 2 threads. Then the features at heads of models. Quick tier: a row of every second part and one of models, which rotate
// with POLYHEAD_SWEEP_SEED. POLYHEAD_TEST_ALL=1: all rows.
// POLYHEAD_SWEEP_ONLY=<number> repeats one row.
#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "support/feature_matrix.h"
#include "support/sweep_compiled.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int parts = 10, shapes_per_row = 14, shapes_per_model_row = 5;
constexpr double flops_per_check = 2e7; // of the reference

const std::vector<std::string> targets = {
    "host", "host", "host", "x86-64-linux-avx2-fma-f16c-avx-sse41", "x86-64-linux-sse41", "x86-64-linux",
};

// Returns the number of shapes.
int sweep(const CompiledKernel &compiled, uint64_t seed, int most_shapes, double *worst) {
    const Problem &p = call_problem(compiled.kernel());
    Random random(seed ^ 0x736861706573u);
    KernelSubject subject(compiled.kernel(), seed, random.chance(40));
    INFO("pack: " << subject.pack_status().message);
    REQUIRE(subject.pack_status().code == POLYHEAD_OK);
    int shapes = 0;
    for (; shapes < most_shapes; shapes++) {
        Shape shape = sweep_shape(p, shapes, seed, random);
        if (shapes % 3 == 1 && p.seq_len_q == 0 && (is_sdpa(p) || p.cross != 0 || p.cache != 0)) {
            shape.seq_len_q = 1 + shapes % 5; // a variant for few queries
        }
        CHECK(check_answer(subject.subject(), shape, worst, flops_per_check) == "");
        CHECK(check_two_threads(subject.subject(), shape) == "");
    }
    shapes += check_same_bits_of_variants(compiled, seed, random);
    return shapes;
}

void sweep_row(const std::string &name, const Problem &p, int number, uint64_t seed, int most_shapes) {
    compile_in_sweep(name, number, p, Random(seed).pick(targets), [&](const CompiledKernel &compiled, const std::string &line) {
        double worst = 0;
        const int shapes = sweep(compiled, seed, most_shapes, &worst);
        print_swept(name, number, shapes, worst, line);
    });
}

void sweep_part(int part) {
    const int rows = static_cast<int>(feature_rows().size()), begin = rows * part / parts, end = rows * (part + 1) / parts;
    // The quick tier takes every second part, the others after another commit.
    const bool idle = !test_all() && (text_seed(sweep_seed_text()) / 64 + static_cast<uint64_t>(part)) % 2 != 0;
    for_each_of_sweep("features/", rotating_numbers(begin, end, idle ? 0 : 1), [](int number, uint64_t seed) {
        sweep_row("features", feature_problem(feature_rows()[static_cast<size_t>(number)]), number, seed, shapes_per_row);
    });
}

// Every third row in 16-bit storage, bf16 and f16 in turns; the quick tier takes one.
void sweep_16_bit(int third) {
    const int rows = static_cast<int>(feature_rows().size());
    for_each_of_sweep("features_16_bit/", rotating_numbers(rows * third / 3, rows * (third + 1) / 3, 1), [](int number, uint64_t seed) {
        if (test_all() && number % 3 != 0) {
            return;
        }
        Problem p = feature_problem(feature_rows()[static_cast<size_t>(number)]);
        p.dtype = number / 2 % 2 == 0 ? POLYHEAD_BF16 : POLYHEAD_F16; // neighbours of a run are two apart
        p.additive_in_storage = number / 4 % 2 == 0 && adds_tensors(p);
        p.f32_weights = number % 8 < 3 && is_mha(p);
        sweep_row("features_16_bit", p, number, seed, shapes_per_row);
    });
}

void sweep_models(int which) {
    const bool idle = !test_all() && (text_seed(sweep_seed_text()) / 64 + static_cast<uint64_t>(which)) % 3 != 0;
    for_each_of_sweep("models/", rotating_numbers(which * rows_with_every_setting, (which + 1) * rows_with_every_setting, idle ? 0 : 1),
                      [](int number, uint64_t seed) { sweep_row("models", model_problem(number), number, seed, shapes_per_model_row); });
}

} // namespace

// One test per part, so that parts run side by side.
#define POLYHEAD_SWEEP_PART(number)                                                                                                        \
    TEST_CASE("feature sweep: part " #number " of 10") {                                                                                   \
        sweep_part(number - 1);                                                                                                            \
    }
POLYHEAD_SWEEP_PART(1)
POLYHEAD_SWEEP_PART(2)
POLYHEAD_SWEEP_PART(3)
POLYHEAD_SWEEP_PART(4)
POLYHEAD_SWEEP_PART(5)
POLYHEAD_SWEEP_PART(6)
POLYHEAD_SWEEP_PART(7)
POLYHEAD_SWEEP_PART(8)
POLYHEAD_SWEEP_PART(9)
POLYHEAD_SWEEP_PART(10)

// A logit of three terms: a score, an element of a table and a bias. Some loops clamp the index of the table, others need not; T_kv and the
// number of batch rows decide which loop a tile of queries gets.
TEST_CASE("same bits: loops of one formula add up its terms in one order") {
    Problem p = sdpa_problem(1, 8);
    p.kv_lengths = p.position_offsets = p.score_bias = p.softcap = 1;
    p.mask = POLYHEAD_BOOLEAN_MASK;
    p.causal = POLYHEAD_TOP_LEFT;
    p.expression = expression_cases().front().text;
    const CompiledKernel compiled(p, {"x86-64-linux-avx2-fma-f16c-avx-sse41,x86-64-linux-sse41", "frame=query_lanes kv_tile=24", "terms"});
    REQUIRE(compiled.error() == "");
    for (uint64_t seed : {8, 14, 16, 18}) {
        const KernelSubject subject(compiled.kernel(), seed);
        Shape shape = same_bits_shape(p, seed);
        shape.seq_len_q = 70;
        CHECK(check_same_bits(subject.subject(), shape) == "");
    }
}

TEST_CASE("feature sweep: 16 heads of 64") {
    sweep_models(0);
}

TEST_CASE("feature sweep: 16 heads of 80") {
    sweep_models(1);
}

TEST_CASE("feature sweep: 16 heads of 128") {
    sweep_models(2);
}

TEST_CASE("feature sweep: 16-bit storage, first third") {
    sweep_16_bit(0);
}

TEST_CASE("feature sweep: 16-bit storage, second third") {
    sweep_16_bit(1);
}

TEST_CASE("feature sweep: 16-bit storage, last third") {
    sweep_16_bit(2);
}

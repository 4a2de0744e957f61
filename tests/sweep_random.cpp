// The random sweep: random problems compiled by the test for several machines, each over random shapes, against the reference.
// Quick tier: eight problems of f32, three of 16-bit storage and three with keys of int8, chosen by POLYHEAD_SWEEP_SEED.
// POLYHEAD_TEST_ALL=1: the same choice continued to 64, 72 and 48.
// POLYHEAD_SWEEP_ONLY=<number> repeats one problem of the sweep.
#include <cmath>

#include "instruments/calls/dense.h"
#include "instruments/calls/problems.h"
#include "support/random_problem.h"
#include "support/sweep_compiled.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int quick_problems = 5, all_problems = 64, quick_16_bit = 2, all_16_bit = 72, quick_int8 = 2, all_int8 = 48,
              shapes_per_problem = 14;

const std::vector<std::string> targets = {
    "host",         "host", "host", "x86-64-linux-avx2-fma-f16c-avx-sse41", "x86-64-linux-avx2-fma-f16c-avx-sse41", "x86-64-linux-sse41",
    "x86-64-linux",
};

struct Swept {
    double worst = 0; // largest error / tolerance
    int shapes = 0;
};

Swept sweep(const CompiledKernel &compiled, uint64_t seed) {
    const Problem &p = call_problem(compiled.kernel());
    Random random(seed ^ 0x736861706573u);
    KernelSubject subject(compiled.kernel(), seed, random.chance(40));
    INFO("pack: " << subject.pack_status().message);
    REQUIRE(subject.pack_status().code == POLYHEAD_OK);
    Swept swept;
    for (int i = 0; i < shapes_per_problem; i++) {
        CHECK(check_answer(subject.subject(), sweep_shape(p, i, seed, random), &swept.worst) == "");
        swept.shapes++;
    }
    swept.shapes += check_same_bits_of_variants(compiled, seed, random);
    if (takes_packed_tokens(p)) {
        CHECK(check_ragged(subject.subject(), seed) == "");
    }
    return swept;
}

// Every mask with every way of fixing lengths, at lengths that fill no tile.
std::vector<Problem> mask_problems() {
    std::vector<Problem> problems;
    for (int32_t causal : {POLYHEAD_NOT_CAUSAL, POLYHEAD_BOTTOM_RIGHT, POLYHEAD_TOP_LEFT}) {
        for (int32_t kv_lengths : {0, 1}) {
            for (int32_t seq_len_q : {0, 33}) {
                for (int32_t seq_len_kv : {0, 31, 127, 300}) {
                    Problem p = sdpa_problem(2, 16, 1);
                    p.causal = causal;
                    p.kv_lengths = kv_lengths;
                    p.lse = 1;
                    p.seq_len_q = seq_len_q;
                    p.seq_len_kv = seq_len_kv;
                    problems.push_back(p);
                }
            }
        }
    }
    return problems;
}

void sweep_random_problem(const std::string &name, int number, uint64_t seed, int32_t dtype, bool int8 = false) {
    Random random(seed);
    Problem p = random_problem(random);
    // EXCLUDED: problems without a cache of int8: this case is about that cache; the one before has the others
    while (int8 && p.int8_cache == 0) {
        p = random_problem(random);
    }
    p.dtype = dtype;
    p.f32_weights = dtype != POLYHEAD_F32 && !is_sdpa(p) && random.chance(25);
    const std::string target = random.pick(targets);
    compile_in_sweep(name, number, p, target, [&](const CompiledKernel &compiled, const std::string &line) {
        const Swept swept = sweep(compiled, seed);
        print_swept(name, number, swept.shapes, swept.worst, line);
    });
}

} // namespace

TEST_CASE("sweep: every mask with every way of fixing lengths") {
    const std::vector<Problem> problems = mask_problems();
    const size_t step = test_all() ? static_cast<size_t>(sweep_step()) : 4, first = text_seed(sweep_seed_text()) % step;
    for (size_t i = first; i < problems.size(); i += step) {
        INFO(generate_line(problems[i]));
        const CompiledKernel compiled(problems[i], {"host", "", "masks"});
        REQUIRE(compiled.error() == "");
        const KernelSubject subject(compiled.kernel(), i);
        for (const Shape &shape : awkward_shapes(problems[i], i, 10)) {
            CHECK(check_answer(subject.subject(), shape) == "");
        }
    }
}

TEST_CASE("sweep: random problems over random shapes") {
    for_each_of_sweep("", first_numbers(sweep_count(quick_problems, all_problems)),
                      [](int number, uint64_t seed) { sweep_random_problem("sweep", number, seed, POLYHEAD_F32); });
}

TEST_CASE("sweep: random problems of 16-bit storage over random shapes") {
    for_each_of_sweep("16-bit/", first_numbers(sweep_count(quick_16_bit, all_16_bit)), [](int number, uint64_t seed) {
        sweep_random_problem("sweep_16_bit", number, seed, number % 2 == 0 ? POLYHEAD_BF16 : POLYHEAD_F16);
    });
}

TEST_CASE("sweep: random problems with keys of int8 over random shapes") {
    for_each_of_sweep("int8/", first_numbers(sweep_count(quick_int8, all_int8)),
                      [](int number, uint64_t seed) { sweep_random_problem("sweep_int8", number, seed, number % 3, true); });
}

// Cutting probs to bf16 makes those above a power of 2 too small by up to twice as much as those below it. Where large probs come with
// large values, as in value_in_key, such errors do not cancel: they have to be rounded.
TEST_CASE("sweep: probs of 16-bit storage that go along with their values") {
    Problem p = sdpa_problem(8, 6, 2, 4);
    p.value_in_key = 1;
    p.dtype = POLYHEAD_BF16;
    p.seq_len_kv = 300;
    for (const int32_t lse : {0, 1}) {
        p.lse = lse;
        const CompiledKernel compiled(p, {"host", "frame=query_lanes", "probs"});
        REQUIRE(compiled.error() == "");
        double worst = 0;
        for (uint64_t seed = 1; seed <= 100; seed++) {
            const KernelSubject subject(compiled.kernel(), seed);
            Shape shape;
            shape.seq_len_q = 19;
            shape.seq_len_kv = p.seq_len_kv;
            shape.softmax_scale = 0.05f;
            shape.seed = seed;
            CHECK(check_answer(subject.subject(), shape, &worst) == "");
        }
        std::printf("largest error %.2f of the tolerance\n", worst);
    }
}

// Integers of query and key that are the largest there are, all of one sign, in rows of the largest head_dim.
TEST_CASE("sweep: sums of products with int8 keys do not overflow") {
    constexpr int64_t d = 576, d_v = 16, keys = 6;
    constexpr float scale = 0.01f;
    Problem p = sdpa_problem(1, d, 1, d_v);
    p.int8_cache = 1;
    std::vector<int8_t> key(keys * d, int8_t(127)), value(keys * d_v, int8_t(0));
    for (int64_t t = 0; t < keys; t++) {
        if (t % 2 == 0) {
            std::fill_n(key.begin() + t * d, d, int8_t(-128));
            std::fill_n(value.begin() + t * d_v, d_v, int8_t(100));
        }
    }
    for (const std::string &target : {targets.front(), targets[3] + "," + targets[5], targets[5]}) { // AVX2 where the machine has it
        const CompiledKernel compiled(p, {target, "frame=head_lanes", "largest"});
        REQUIRE(compiled.error() == "");
        for (const float entry : {0.001f, -0.001f, 1e10f, -1e10f}) {
            const std::vector<float> query(d, entry), scales(keys, scale);
            std::vector<float> out(d_v);
            polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
            args.query = dense(query, {1, 1, 1, d});
            args.key = dense(key, {1, 1, keys, d});
            args.value = dense(value, {1, 1, keys, d_v});
            args.key_scales = args.value_scales = dense(scales, {1, 1, keys, 1});
            args.out = dense(out, {1, 1, 1, d_v});
            CHECK(polyhead_run(&compiled.kernel(), &args).code == POLYHEAD_OK);
            // The keys are of two kinds, -128 and 127, and so are the logits.
            const double apart = std::sqrt(double(d)) * double(entry) * (-128.0 - 127.0) * double(scale), even = 1 / (1 + std::exp(-apart));
            CHECK(std::abs(double(out[0]) - even * 100 * double(scale)) < 1e-6);
        }
    }
}

// AMX: products of tiles, kernels that use them, and when a kernel has such a variant. On machines without AMX its instructions are
// emulated.
#include <algorithm>

#include "instruments/calls/compiled_kernel.h"
#include "plan/plan.h"
#include "plan/target.h"
#include "runtime/helpers/amx.h"

#include "instruments/calls/guard.h"
#include "instruments/calls/not_run.h"
#include "instruments/calls/problems.h"
#include "instruments/emulators/amx/amx_emulator.h"
#include "instruments/reference/half.h"
#include "support/random_problem.h"
#include "support/sweep_compiled.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int64_t panel = POLYHEAD_WEIGHT_PANEL;

// Rows, words and sums of one product, whose rows end at an unmapped page. Small whole numbers: every order of sums gives the same.
struct Product {
    int64_t rows, blocks, groups, words, gap; // words: of a group; gap: elements between the end of a group and the next
    GuardedBuffer memory;
    std::vector<uint32_t> b;
    std::vector<float> sums;

    Product(int64_t num_rows, int64_t num_blocks, int64_t num_groups, int64_t num_words, int64_t between, Random &random)
        : rows(num_rows), blocks(num_blocks), groups(num_groups), words(num_words), gap(between),
          memory(size_t(num_rows * num_groups * (2 * num_words + between) - between) * 2, Place::at_end),
          b(size_t(num_blocks * num_groups * num_words * panel)), sums(size_t(num_rows * num_blocks * panel), 5.0f) {
        uint16_t *const a = static_cast<uint16_t *>(memory.data());
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t w = 0; w < groups * words; w++) {
                a[place(r, w)] = element(random);
                a[place(r, w) + 1] = element(random);
            }
        }
        for (uint32_t &word : b) {
            word = uint32_t(element(random)) | uint32_t(element(random)) << 16;
        }
    }
    int64_t group() const { return 2 * words + gap; }
    // The first element of a word.
    int64_t place(int64_t row, int64_t word) const { return (row * groups + word / words) * group() + word % words * 2; }
    static uint16_t element(Random &random) { return test::to_bf16(float(random.between(-8, 8))); }

    runtime::Matrices matrices() {
        runtime::Matrices m{};
        m.rows = static_cast<const uint8_t *>(memory.data());
        m.group_bytes = 2 * group();
        m.row_bytes = groups * m.group_bytes;
        m.words = reinterpret_cast<const uint8_t *>(b.data());
        m.word_bytes = 4 * panel;
        m.block_bytes = groups * words * m.word_bytes;
        m.sums = reinterpret_cast<uint8_t *>(sums.data());
        m.sum_block_bytes = 4 * panel;
        m.sum_row_bytes = blocks * m.sum_block_bytes;
        m.num_rows = rows;
        m.num_blocks = blocks;
        m.num_groups = groups;
        m.num_words = words;
        return m;
    }
    int64_t wrong() const {
        const uint16_t *const a = static_cast<const uint16_t *>(memory.data());
        int64_t count = 0;
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t n = 0; n < blocks * panel; n++) {
                double sum = 0;
                for (int64_t w = 0; w < groups * words; w++) {
                    const uint32_t word = b[size_t((n / panel * groups * words + w) * panel + n % panel)];
                    const uint16_t *const entries = a + place(r, w);
                    sum += double(from_bf16(entries[0])) * from_bf16(uint16_t(word)) +
                           double(from_bf16(entries[1])) * from_bf16(uint16_t(word >> 16));
                }
                count += sums[size_t(r * blocks * panel + n)] != sum ? 1 : 0;
            }
        }
        return count;
    }
};

int64_t tiles_of(int64_t size, int64_t tile) {
    return (size + tile - 1) / tile;
}

} // namespace

TEST_CASE("amx: products of every shape of rows, columns and words", "[sweep]") {
    if (!AmxEmulator::possible()) {
        note_not_run("amx", "neither AMX nor its emulator");
        return;
    }
    const AmxEmulator emulator;
    Random random(7);
    for (const int64_t rows : {1, 15, 16, 17, 31, 32, 33, 48, 70}) {
        for (const int64_t blocks : {1, 2, 3, 4}) {
            for (const int64_t words : {1, 15, 16, 17, 32, 39}) {
                for (const int64_t groups : {1, 3}) {
                    INFO(rows << " rows, " << blocks << " blocks of columns, " << groups << " groups of " << words << " words");
                    Product product(rows, blocks, groups, words, random.between(0, 3), random);
                    const int64_t before = AmxEmulator::products();
                    runtime::multiply(product.matrices());
                    CHECK(product.wrong() == 0);
                    if (!AmxEmulator::native()) { // each tile once
                        CHECK(AmxEmulator::products() - before == tiles_of(rows, 16) * blocks * groups * tiles_of(words, 16));
                    }
                }
            }
        }
    }
    Product none(1, 1, 1, 1, 0, random);
    runtime::Matrices m = none.matrices();
    m.num_rows = 0;
    runtime::multiply(m);
    CHECK(none.sums[0] == 5.0f);
}

namespace {

// Compiles a problem of bf16 with amx=1 and holds it to the reference over some shapes; returns false where amx is refused.
bool check_with_amx(Problem p, int number, uint64_t seed, int shapes) {
    std::string error;
    const std::string target = gen::resolve_target("host", &error);
    p.dtype = POLYHEAD_BF16;
    p.f32_weights = 0;
    REQUIRE(gen::complete(&p) == "");
    const std::string tiling = is_linear(p) ? "amx=1" : "frame=query_lanes amx=1";
    const std::string line = generate_line(p) + " --tiling '" + tiling + "'";
    INFO(line);
    const CompiledKernel compiled(p, {target, tiling, "amx_" + std::to_string(number)});
    if (compiled.error().find("amx 1 needs") != std::string::npos || compiled.error().find("amx 1 is not for") != std::string::npos) {
        return false;
    }
    REQUIRE(compiled.error() == "");
    CHECK(compiled.kernel().supported() == AmxEmulator::native());
    const AmxEmulator emulator;
    CHECK(compiled.kernel().supported());
    KernelSubject subject(compiled.kernel(), seed);
    Random random(seed);
    const int64_t before = AmxEmulator::products();
    double worst = 0;
    for (int i = 0; i < shapes; i++) {
        CHECK(check_answer(subject.subject(), sweep_shape(p, i, seed, random), &worst) == "");
    }
    CHECK(check_same_bits(subject.subject(), same_bits_shape(p, seed)) == "");
    CHECK((AmxEmulator::native() || AmxEmulator::products() > before));
    print_swept("amx", number, shapes + 1, worst, line);
    return true;
}

bool multiplies_pairs_here() {
    std::string error;
    const gen::Machine machine = gen::machine_of(gen::parsed_target(gen::resolve_target("host", &error)));
    if (AmxEmulator::possible() && machine.multiplies_pairs(POLYHEAD_BF16)) {
        return true;
    }
    note_not_run("amx in kernels", "no dot products of pairs on this machine");
    return false;
}

} // namespace

TEST_CASE("amx: kernels that ask for it are right, and run nowhere else", "[sweep]") {
    if (!multiplies_pairs_here()) {
        return;
    }
    std::vector<Problem> problems = {linear_problem(64, 80), linear_problem(202, 33), linear_problem(1030, 16)};
    problems[1].bias = 1;
    for (const int head_dim_v : {16, 24, 32}) { // heads of the context that lie apart, and that do not
        Problem layer = mha_problem(96, 4, head_dim_v == 32 ? 2 : 4, 32, head_dim_v);
        layer.bias = head_dim_v == 24;
        layer.cross = head_dim_v == 16;
        layer.lse = head_dim_v == 24;
        layer.causal = head_dim_v == 32 ? POLYHEAD_BOTTOM_RIGHT : POLYHEAD_NOT_CAUSAL;
        problems.push_back(layer);
    }
    Problem attention = sdpa_problem(4, 64, 2);
    problems.push_back(attention); // every third one in a quick run: linear, a layer, attention
    attention.causal = POLYHEAD_BOTTOM_RIGHT;
    attention.kv_lengths = attention.lse = 1;
    attention.head_dim_v = 40;
    problems.push_back(attention);
    attention.mask = POLYHEAD_BOOLEAN_MASK;
    attention.window = 1;
    problems.push_back(attention);
    for (size_t i = test_all() ? 0 : 1; i < problems.size(); i += test_all() ? 1 : 3) {
        CHECK(check_with_amx(problems[i], static_cast<int>(i), 11 + i, 6));
    }
}

TEST_CASE("amx: random problems", "[sweep]") {
    if (!multiplies_pairs_here()) {
        return;
    }
    int checked = 0;
    for_each_of_sweep("amx/", first_numbers(sweep_count(2, 18)), [&](int number, uint64_t seed) {
        Random random(seed);
        checked += check_with_amx(random_problem(random), number, seed, test_all() ? 12 : 6) ? 1 : 0;
    });
    CHECK((checked > 0 || std::getenv("POLYHEAD_SWEEP_ONLY") != nullptr || !test_all()));
}

TEST_CASE("amx: the first variant of a target that may have it, with others behind it", "[sweep]") {
    const std::string before = "x86-64-linux-avx512_cannonlake-avx512_skylake-avx512-avx2-avx-fma-f16c-sse41";
    const std::string zen = "x86-64-linux-avx512_zen4-" + before.substr(13),
                      rapids = "x86-64-linux-avx512_sapphirerapids-" + before.substr(13);
    const auto variants_with_amx = [](Problem p, const std::string &target, int dtype) {
        p.dtype = dtype;
        REQUIRE(gen::complete(&p) == "");
        std::string error, found;
        for (const gen::VariantPlan &plan : gen::plan_variants(p, {target}, "", &error, {"", false})) {
            found += plan.tiling.amx != 0 ? "A" : "-";
            CHECK((plan.tiling.amx == 0 || plan.min_seq_len_q == (p.op == POLYHEAD_SDPA ? 33 : 0)));
        }
        CHECK(error == "");
        return found;
    };
    CHECK(variants_with_amx(linear_problem(64, 64), rapids, POLYHEAD_BF16) == "A--"); // the second is for few rows
    CHECK(variants_with_amx(linear_problem(65, 64), rapids, POLYHEAD_BF16) == "--");
    CHECK(variants_with_amx(mha_problem(64, 2), rapids, POLYHEAD_BF16) == "A-");
    CHECK(variants_with_amx(sdpa_problem(2, 32), rapids, POLYHEAD_BF16) == "-A-"); // the first is for up to 16 queries
    CHECK(variants_with_amx(sdpa_problem(2, 33), rapids, POLYHEAD_BF16) == "--");
    Problem rotated = sdpa_problem(2, 32), few = rotated;
    rotated.rope = POLYHEAD_ROPE_HALF_SPLIT;
    few.seq_len_q = 32;
    CHECK(variants_with_amx(rotated, rapids, POLYHEAD_BF16) == "--");
    CHECK(variants_with_amx(few, rapids, POLYHEAD_BF16) == "-");
    for (const int dtype : {POLYHEAD_F32, POLYHEAD_F16, POLYHEAD_BF16}) {
        const std::string &target = dtype == POLYHEAD_BF16 ? zen : rapids;
        CHECK(variants_with_amx(mha_problem(64, 2), target, dtype) == "-");
        CHECK(variants_with_amx(sdpa_problem(2, 32), target, dtype) == "--");
    }
}

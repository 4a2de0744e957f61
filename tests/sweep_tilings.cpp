// The sweep over tilings: random points of the table of knobs for every CPU frame and kind of machine, compiled by the test, held to the
// reference and to the same bits. Quick tier: two per frame on a machine that POLYHEAD_SWEEP_SEED chooses. POLYHEAD_TEST_ALL=1: 40 per
// frame and machine, unless POLYHEAD_CPU_FEATURES makes this machine one that the list has anyhow. POLYHEAD_SWEEP_ONLY=<number> repeats
// one of each frame.

#include "instruments/calls/compiled_kernel.h"
#include "plan/knob_rules.h"
#include "plan/plan.h"
#include "plan/target.h"

#include "instruments/calls/not_run.h"
#include "instruments/calls/problems.h"
#include "random_tiling.h"
#include "support/sweep_compiled.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int tilings = 40, quick_tilings = 1, shapes_per_tiling = 6;
constexpr double flops_per_check = 3e7; // of the reference

const std::vector<std::string> machines = {"host", "x86-64-linux-avx2-fma-f16c-avx-sse41", "x86-64-linux-sse41"};

// Keys that fill several chunks, or several splits, and no whole one. Parts of keys are dealt to splits in turns.
int64_t many_keys(const gen::Tiling &t) {
    const int64_t unit = t.split_len > 0 ? t.split_len : int64_t(t.kv_tile) * std::max(t.key_splits, 1);
    return std::min<int64_t>(3 * unit + unit / 2 + 1, 5000);
}

// Returns the number of shapes.
int check(const CompiledKernel &compiled, const gen::VariantPlan &plan, uint64_t seed, double *worst) {
    const Problem &p = call_problem(compiled.kernel());
    Random random(seed ^ 0x736861706573u);
    KernelSubject subject(compiled.kernel(), seed);
    INFO("pack: " << subject.pack_status().message);
    REQUIRE(subject.pack_status().code == POLYHEAD_OK);
    const int64_t most_rows = plan.max_seq_len_q > 0 ? plan.max_seq_len_q : 70;
    int shapes = 0;
    for (; shapes < shapes_per_tiling; shapes++) {
        Shape shape = sweep_shape(p, shapes, seed, random);
        if (is_sdpa(p)) { // EXCLUDED: more queries than the variant serves: POLYHEAD_UNSUPPORTED (c_api.h)
            shape.seq_len_q = std::min<int64_t>(shape.seq_len_q, most_rows);
        }
        CHECK(check_answer(subject.subject(), shape, worst, flops_per_check) == "");
    }
    if (is_sdpa(p) && p.seq_len_kv == 0) {
        const Shape shape = plain_shape(p, 1, std::min<int64_t>(most_rows, 7), many_keys(plan.tiling), seed);
        CHECK(check_answer(subject.subject(), shape, worst, flops_per_check) == "");
        shapes++;
    }
    Shape shape = same_bits_shape(p, seed);
    shape.seq_len_q = is_sdpa(p) ? std::min<int64_t>(shape.seq_len_q, most_rows) : shape.seq_len_q;
    CHECK(check_same_bits(subject.subject(), shape) == "");
    return shapes + 1;
}

void sweep(const std::string &frame) {
    const int all = tilings * static_cast<int>(machines.size());
    for_each_of_sweep("tilings/" + frame + "/", rotating_numbers(0, all, quick_tilings), [&](int number, uint64_t seed) {
        const std::string &name = machines[static_cast<size_t>(number / tilings)];
        if (left_to_all(name)) {
            return;
        }
        Random random(seed);
        std::string error;
        const std::string text = gen::resolve_target(name, &error);
        REQUIRE(error == "");
        const gen::Machine machine = gen::machine_of(gen::parsed_target(text));
        Problem p = tiled_problem(frame, random);
        REQUIRE(gen::complete(&p) == "");
        if (!gen::frame_named(frame)->serves(p, machine)) { // head lanes take dims that lanes divide
            p.head_dim_v = p.head_dim;
        }
        const std::string tiling = random_tiling(frame, p, machine, random);
        const std::string line = generate_line(p) + " --target " + text + " --tiling '" + tiling + "'";
        INFO(line);
        REQUIRE(!tiling.empty());
        const std::vector<gen::VariantPlan> plans = gen::plan_variants(p, {text}, tiling, &error);
        REQUIRE(error == "");
        const CompiledKernel compiled(p, {text, tiling, "tilings_" + std::to_string(number)});
        REQUIRE(compiled.error() == "");
        if (!compiled.kernel().supported()) {
            note_not_run("kernel of " + line, "no variant for this machine");
            return;
        }
        note_run();
        double worst = 0;
        const int shapes = check(compiled, plans[0], seed, &worst);
        print_swept("tilings", number, shapes, worst, line);
    });
}

} // namespace

TEST_CASE("tiling sweep: query lanes") {
    sweep("query_lanes");
}

TEST_CASE("tiling sweep: head lanes") {
    sweep("head_lanes");
}

TEST_CASE("tiling sweep: key lanes") {
    sweep("key_lanes");
}

// Shorter than the vectors of numbers of a row.
TEST_CASE("tilings: gradients in tiles of one to three queries") {
    Problem p = sdpa_problem(2, 8);
    p.op = POLYHEAD_SDPA_BACKWARD;
    p.causal = POLYHEAD_TOP_LEFT;
    p.kv_lengths = 1;
    REQUIRE(gen::complete(&p) == "");
    std::string error;
    const std::string target = gen::resolve_target(machines.back(), &error);
    for (const int queries : {1, 2, 3}) {
        const std::string tiling = "frame=key_lanes grad_rows=1 score_rows=1 q_tile=" + std::to_string(queries);
        INFO(tiling);
        const std::vector<gen::VariantPlan> plans = gen::plan_variants(p, {target}, tiling, &error);
        REQUIRE(error == "");
        const CompiledKernel compiled(p, {target, tiling, "short_tiles_" + std::to_string(queries)});
        REQUIRE(compiled.error() == "");
        double worst = 0;
        check(compiled, plans[0], static_cast<uint64_t>(queries), &worst);
    }
}

TEST_CASE("tiling sweep: linear layers") {
    sweep("linear");
}

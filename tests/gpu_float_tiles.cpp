// Floats that a warp multiplies as three products of tf32: problems with one and with several features, compiled by the test, over lengths
// around the borders of tiles and chunks, against the reference by the rule of f32. Quick tier: a few kernels chosen by
// POLYHEAD_SWEEP_SEED. POLYHEAD_TEST_ALL=1: all. POLYHEAD_SWEEP_ONLY=<number> repeats one.

#include "gpu_warp_problems.h"
#include "support/required_device.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

const char *const target = "host-cuda-cuda_capability_80";

Problem float_problem(int number, Random &random) {
    Problem p = warp_problem(number, random);
    p.dtype = POLYHEAD_F32;
    p.precision = POLYHEAD_TF32X3;
    return p;
}

} // namespace

TEST_CASE("gpu float tiles: features over lengths around the borders of tiles") {
    if (!required_cuda()) {
        return;
    }
    sweep_warps("gpu float tiles", target, "warp_tiles",
                {"", "", "", " kv_tile=16", " kv_tile=32 thread_rows=1", " kv_tile=48 row_groups=2 thread_rows=1",
                 " kv_tile=16 row_groups=1 thread_rows=1"},
                float_problem);
}

TEST_CASE("gpu float tiles: tiles of 64 and of 128 rows give a row the same bits") {
    if (required_cuda()) {
        check_tiles_agree(target, {"frame=warp_tiles", "frame=warp_tiles thread_rows=1", "frame=warp_tiles row_groups=2"}, POLYHEAD_F32);
    }
}

// Values that are not finite, behind lengths and in a row that some queries see; keys that wrap around chunks; a scale below 0.
TEST_CASE("gpu float tiles: what a row does not see changes none of its bits, and infinities stay what they are") {
    const TestDevice *const device = required_cuda();
    if (!device) {
        return;
    }
    Problem p = sdpa_problem(2, 40, 1);
    p.head_dim_v = 24;
    p.precision = POLYHEAD_TF32X3;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    p.kv_lengths = 1;
    const CompiledKernel compiled(p, {target, "frame=warp_tiles kv_tile=24", "gpu_float_exclusion"});
    REQUIRE(compiled.error() == "");
    const KernelSubject subject(forced_variants(compiled.kernel(), *device).at(0), 1, false, device->raw());
    Shape shape = plain_shape(p, 2, 70, 90, 11);
    shape.lengths = {77, 90};
    shape.poison = true;
    double worst = 0;
    for (const int64_t poison_key : {-1, 13, 60}) {
        shape.poison_key = poison_key;
        shape.softmax_scale = poison_key == 13 ? std::optional<float>(-0.2f) : std::nullopt;
        INFO(poison_key);
        CHECK(check_answer(subject.subject(), shape, &worst, 3e7) == "");
    }
}

TEST_CASE("gpu float tiles: sums over many keys") {
    if (required_cuda()) {
        check_long_sums(target, "frame=warp_tiles row_groups=1 thread_rows=1", POLYHEAD_F32, 0.15);
    }
}

// Products that a warp makes together: problems with one and with several features, in f16 and bf16, compiled by the test, over lengths
// around the borders of tiles and chunks, against the reference. Quick tier: a few kernels chosen by POLYHEAD_SWEEP_SEED.
// POLYHEAD_TEST_ALL=1: all. POLYHEAD_SWEEP_ONLY=<number> repeats one.

#include "gpu_warp_problems.h"
#include "support/required_device.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {
const char *const target = "host-cuda-cuda_capability_80";
} // namespace

TEST_CASE("gpu warp tiles: tiles of 64 and of 128 rows give a row the same bits") {
    if (!required_cuda()) {
        return;
    }
    check_tiles_agree(target, {"frame=warp_tiles", "frame=warp_tiles thread_rows=1", "frame=warp_tiles row_groups=2"});
}

TEST_CASE("gpu warp tiles: sums over many keys") {
    if (required_cuda()) {
        check_long_sums(target, "frame=warp_tiles row_groups=1 thread_rows=1", POLYHEAD_F16, 0.75);
    }
}

// Halide forgets the count of a loop where a stage in it chooses by a value, as softcap does.
TEST_CASE("gpu warp tiles: rows of short batch rows see no whole chunk of a long one, also with softcap") {
    const TestDevice *const device = required_cuda();
    if (!device) {
        return;
    }
    Problem p = sdpa_problem(1, 64);
    p.dtype = POLYHEAD_BF16;
    p.softcap = 1;
    p.kv_lengths = 1;
    const CompiledKernel compiled(p, {target, "frame=warp_tiles", "gpu_warp_counts"});
    REQUIRE(compiled.error() == "");
    const KernelSubject subject(forced_variants(compiled.kernel(), *device).at(0), 1, false, device->raw());
    Shape shape = plain_shape(p, 2, 16, 96, 1);
    shape.lengths = {2, 85};
    double worst = 0;
    CHECK(check_answer(subject.subject(), shape, &worst, 3e7) == "");
}

TEST_CASE("gpu warp tiles: a value that is not finite is added from the page that it lies in") {
    const TestDevice *const device = required_cuda();
    if (!device) {
        return;
    }
    Problem p = sdpa_problem(1, 16);
    p.dtype = POLYHEAD_F16;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    p.page_size = 16;
    const CompiledKernel compiled(p, {target, "frame=warp_tiles", "gpu_warp_pages"});
    REQUIRE(compiled.error() == "");
    const KernelSubject subject(forced_variants(compiled.kernel(), *device).at(0), 1, false, device->raw());
    Shape shape = plain_shape(p, 1, 40, 48, 3);
    shape.poison_key = 25; // of the second page of a word of bits
    double worst = 0;
    CHECK(check_answer(subject.subject(), shape, &worst, 3e7) == "");
}

TEST_CASE("gpu warp tiles: features over lengths around the borders of tiles") {
    if (!required_cuda()) {
        return;
    }
    sweep_warps(
        "gpu warp tiles", target, "warp_tiles",
        {"", "", "", " kv_tile=16", " kv_tile=32 thread_rows=1", " kv_tile=48 row_groups=2", " kv_tile=16 row_groups=1 thread_rows=1"});
}

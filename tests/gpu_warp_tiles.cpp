// Products that a warp makes together: problems with one and with several features, in f16 and bf16, compiled by the test, over lengths
// around the borders of tiles and chunks, against the reference. Quick tier: a few kernels chosen by POLYHEAD_SWEEP_SEED.
// POLYHEAD_TEST_ALL=1: all. POLYHEAD_SWEEP_ONLY=<number> repeats one.

#include "gpu_warp_problems.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("gpu warp tiles: features over lengths around the borders of tiles") {
    INFO(TestDevice::get().error());
    REQUIRE(TestDevice::get().raw() != nullptr);
    if (TestDevice::get().api() != Api::cuda) {
        SUCCEED("no warp multiplies there");
        return;
    }
    sweep_warps(
        "gpu warp tiles", "host-cuda-cuda_capability_80", "warp_tiles",
        {"", "", "", " kv_tile=16", " kv_tile=32 thread_rows=1", " kv_tile=48 row_groups=2", " kv_tile=16 row_groups=1 thread_rows=1"});
}

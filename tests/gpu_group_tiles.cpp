// Products that four warps make together, on a device of capability 9.0: the problems of warp tiles, compiled by the test, against the
// reference. POLYHEAD_TEST_ALL=1: all. POLYHEAD_SWEEP_ONLY=<number> repeats one.

#include "gpu_warp_problems.h"
#include "support/required_device.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("gpu group tiles: tiles of 64 and of 128 rows give a row the same bits") {
    required_device();
    check_tiles_agree("host-cuda-cuda_capability_90a", {"frame=group_tiles", "frame=group_tiles row_groups=4"});
}

TEST_CASE("gpu group tiles: features over lengths around the borders of tiles") {
    required_device();
    sweep_warps("gpu group tiles", "host-cuda-cuda_capability_90a", "group_tiles",
                {"", "", " kv_tile=64", " kv_tile=16", " kv_tile=32 row_groups=4", " kv_tile=48 row_groups=12"});
}

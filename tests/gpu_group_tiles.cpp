// Products that four warps make together, on a device of capability 9.0: the problems of warp tiles, compiled by the test, against the
// reference. POLYHEAD_TEST_ALL=1: all. POLYHEAD_SWEEP_ONLY=<number> repeats one.

#include "gpu_warp_problems.h"
#include "support/required_device.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("gpu group tiles: tiles of 64 and of 128 rows give a row the same bits") {
    required_device();
    check_tiles_agree("host-cuda-cuda_capability_90a",
                      {"frame=group_tiles", "frame=group_tiles row_groups=4", "frame=group_tiles row_groups=12"});
}

TEST_CASE("gpu group tiles: sums over many keys") {
    required_device();
    check_long_sums("host-cuda-cuda_capability_90a", "frame=group_tiles row_groups=4", POLYHEAD_F16, 0.75);
}

// Three groups over many chunks, of which no barrier of the block is between: each goes on as far as the others let it.
TEST_CASE("gpu group tiles: groups of warps that are not in step") {
    required_device();
    Problem p = sdpa_problem(1, 64);
    p.dtype = POLYHEAD_F16;
    const CompiledKernel compiled(p, {"host-cuda-cuda_capability_90a", "frame=group_tiles kv_tile=16 row_groups=12", "gpu_groups_apart"});
    REQUIRE(compiled.error() == "");
    const KernelSubject subject(forced_variants(compiled.kernel(), TestDevice::get()).at(0), 3, false, TestDevice::get().raw());
    for (const int64_t keys : {15, 16, 33, 64, 111}) { // 0, 1, 2, 4 and 6 whole chunks
        CHECK(check_answer(subject.subject(), plain_shape(p, 1, 150, keys, 11)) == "");
    }
}

TEST_CASE("gpu group tiles: features over lengths around the borders of tiles") {
    required_device();
    sweep_warps("gpu group tiles", "host-cuda-cuda_capability_90a", "group_tiles",
                {"", "", " kv_tile=64", " kv_tile=16", " kv_tile=32 row_groups=4", " kv_tile=48 row_groups=12"});
}

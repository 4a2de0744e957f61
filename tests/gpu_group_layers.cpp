// A layer whose attention is products of four warps reads the heads that products of a warp have made, or a cache, on a device of
// capability 9.0.
#include <string>

#include "instruments/calls/compiled_kernel.h"
#include "instruments/calls/problems.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/device.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("gpu group tiles: heads of a layer") {
    INFO(TestDevice::get().error());
    REQUIRE(TestDevice::get().raw() != nullptr);
    Problem p = mha_problem(40, 2, 1, 24);
    p.dtype = POLYHEAD_BF16;
    p.bias = 1;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    p.kv_lengths = 1;
    const CompiledKernel compiled(p, {"host-cuda-cuda_capability_90a", "frame=group_tiles", "gpu_group_layer"});
    REQUIRE(compiled.error() == "");
    const KernelSubject subject(forced_variants(compiled.kernel(), Api::cuda).at(0), 3, false, TestDevice::get().raw());
    for (const int64_t rows : {1, 17, 70}) {
        Shape shape = plain_shape(p, 2, rows, rows, 5);
        shape.lengths = {static_cast<int32_t>(rows), static_cast<int32_t>(rows / 2)};
        shape.poison_key = rows / 2; // rows before it must not see its value, which is found in a row of heads
        CHECK(check_answer(subject.subject(), shape) == "");
    }
}

TEST_CASE("gpu group tiles: the cache of a layer") {
    INFO(TestDevice::get().error());
    REQUIRE(TestDevice::get().raw() != nullptr);
    Problem p = mha_problem(40, 2, 1, 24);
    p.dtype = POLYHEAD_F16;
    p.cache = 1;
    p.page_size = 16;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    const CompiledKernel compiled(p, {"host-cuda-cuda_capability_90a", "frame=group_tiles", "gpu_group_cache"});
    REQUIRE(compiled.error() == "");
    const KernelSubject subject(forced_variants(compiled.kernel(), Api::cuda).at(0), 3, false, TestDevice::get().raw());
    for (const int64_t rows : {1, 17, 70}) {
        Shape shape = plain_shape(p, 2, rows, rows + 130, 5);
        shape.lengths = {static_cast<int32_t>(shape.seq_len_kv - shape.seq_len_q), 9};
        shape.poison = true;
        CHECK(check_answer(subject.subject(), shape) == "");
    }
}

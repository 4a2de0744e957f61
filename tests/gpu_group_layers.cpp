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

namespace {

// Answers of the kernel of group tiles that is compiled for a layer, for numbers of rows below, at and above those of a tile.
template <typename ShapeOf> void check_layer(const Problem &p, const char *name, ShapeOf shape_of) {
    INFO(TestDevice::get().error());
    REQUIRE(TestDevice::get().raw() != nullptr);
    const CompiledKernel compiled(p, {"host-cuda-cuda_capability_90a", "frame=group_tiles", name});
    REQUIRE(compiled.error() == "");
    const KernelSubject subject(forced_variants(compiled.kernel(), Api::cuda).at(0), 3, false, TestDevice::get().raw());
    for (const int64_t rows : {1, 17, 70}) {
        CHECK(check_answer(subject.subject(), shape_of(rows)) == "");
    }
}

} // namespace

TEST_CASE("gpu group tiles: heads of a layer") {
    Problem p = mha_problem(40, 2, 1, 24);
    p.dtype = POLYHEAD_BF16;
    p.bias = 1;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    p.kv_lengths = 1;
    check_layer(p, "gpu_group_layer", [&](int64_t rows) {
        Shape shape = plain_shape(p, 2, rows, rows, 5);
        shape.lengths = {static_cast<int32_t>(rows), static_cast<int32_t>(rows / 2)};
        shape.poison_key = rows / 2; // rows before it must not see its value, which is found in a row of heads
        return shape;
    });
}

TEST_CASE("gpu group tiles: the cache of a layer") {
    Problem p = mha_problem(40, 2, 1, 24);
    p.dtype = POLYHEAD_F16;
    p.cache = 1;
    p.page_size = 16;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    check_layer(p, "gpu_group_cache", [&](int64_t rows) {
        Shape shape = plain_shape(p, 2, rows, rows + 130, 5);
        shape.lengths = {static_cast<int32_t>(shape.seq_len_kv - shape.seq_len_q), 9};
        shape.poison = true;
        return shape;
    });
}

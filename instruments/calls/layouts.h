// Test tensors in guarded memory, and the ways they may lie in it.
#ifndef POLYHEAD_INSTRUMENTS_LAYOUTS_H
#define POLYHEAD_INSTRUMENTS_LAYOUTS_H

#include <array>
#include <cstdint>
#include <vector>

#include <polyhead/polyhead.h>

#include "../reference/half.h"
#include "guard.h"
#include "random.h"

namespace polyhead::test {

// How a tensor lies in memory. "padded" leaves gaps after rows, heads and batch rows; "shared" has batch stride 0 (key, value).
enum class Layout { bhsd, bshd, bhsd_padded, bshd_padded, shared };

const char *layout_name(Layout layout);
// Strides of a [B,H,T,d] view.
std::vector<int64_t> head_strides(Layout layout, int64_t heads, int64_t length, int64_t dim);
// Strides of a [B,T,features] view; bshd puts time outermost.
std::vector<int64_t> token_strides(Layout layout, int64_t batch, int64_t length, int64_t features);
std::vector<int64_t> dense_strides(const std::vector<int64_t> &shape);

// A guarded tensor and its view.
struct Tensor {
    GuardedBuffer memory;
    polyhead_tensor view{};
};
// stride in elements, outermost first; memory reaches exactly to the last element.
Tensor make_tensor(DType dtype, const std::vector<int64_t> &shape, const std::vector<int64_t> &stride, Place place);
// A tensor of a 16-bit type with the same shape, strides and values. The values themselves become what the type can hold of them.
Tensor store(Tensor &values, int32_t dtype, Place place);
void fill_normal(const Tensor &tensor, Random &random, float scale, float mean = 0);

// Calls visit(int64_t offset, i0, i1, i2) with the first element of every innermost row of a view of rank 1 to 4.
template <class Visit> void for_each_offset(const polyhead_tensor &t, Visit visit) {
    std::array<int64_t, 3> extent = {1, 1, 1};
    for (int dim = 0; dim + 1 < t.rank; dim++) {
        extent[static_cast<size_t>(dim)] = t.shape[dim];
    }
    for (int64_t i = 0; i < extent[0]; i++) {
        for (int64_t j = 0; j < extent[1]; j++) {
            for (int64_t k = 0; k < extent[2]; k++) {
                const std::array<int64_t, 3> index = {i, j, k};
                int64_t offset = 0;
                for (int dim = 0; dim + 1 < t.rank; dim++) {
                    offset += index[static_cast<size_t>(dim)] * t.stride[dim];
                }
                visit(offset, i, j, k);
            }
        }
    }
}

// Calls visit(float *row, int64_t i0, i1, i2) for every innermost row of an f32 view.
template <class Visit> void for_each_row(const polyhead_tensor &t, Visit visit) {
    for_each_offset(t, [&](int64_t offset, int64_t i, int64_t j, int64_t k) { visit(static_cast<float *>(t.data) + offset, i, j, k); });
}

} // namespace polyhead::test
#endif

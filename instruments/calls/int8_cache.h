// Keys and values of an int8 cache, and queries that are rounded to int8 as kernels may do it.
#ifndef POLYHEAD_INSTRUMENTS_INT8_CACHE_H
#define POLYHEAD_INSTRUMENTS_INT8_CACHE_H

#include <functional>

#include "layouts.h"

namespace polyhead::test {

// Integers of the shape and strides of rows [B,H_kv,T,d], and scales [B,H_kv,T,n].
struct Int8Rows {
    Tensor integers, scales;
};

struct Int8Choice {
    Layout layout; // of the scales
    Place place;
    int64_t channels;                                // that share a scale; 0: all of a row
    float scale;                                     // of every row; 0: each row has its own, from its largest entry
    std::function<bool(int64_t b, int64_t n)> valid; // within the length of its batch row: the scale is finite
};

// The floats become what the integers and scales stand for. A row that is not finite is a poisoned one: its numbers become as large as they
// can be, or NaN where that is allowed.
Int8Rows to_int8(Tensor &floats, const Int8Choice &choice);

// What integers and scales stand for, dense.
Tensor to_floats(const polyhead_tensor &integers, const polyhead_tensor &scales);

// The query [B,H,T,d] rounded to 255 steps of each row, dense.
Tensor in_steps(const polyhead_tensor &query);

} // namespace polyhead::test
#endif

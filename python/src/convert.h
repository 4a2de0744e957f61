// Converts elements of arrays to the types of the runtime and back: f16, bf16, f64 and f32, int64 to int32. Strided, without Python.
#pragma once

#include <cstdint>

#include <polyhead/c_api.h>

namespace polyhead::python {

// Element types of arrays: those of the runtime, and those that are converted to them.
enum class Element : int32_t {
    f32 = POLYHEAD_F32,
    f16 = POLYHEAD_F16,
    bf16 = POLYHEAD_BF16,
    i8 = POLYHEAD_I8,
    i32 = POLYHEAD_I32,
    boolean = POLYHEAD_BOOL,
    f64 = 100,
    i64 = 101,
};

int element_bytes(Element element);

// True when convert() goes from the one to the other.
bool converts(Element from, Element to);

// A tensor of so many dimensions, strides in elements.
struct Strided {
    void *data;
    Element element;
    int32_t rank;
    const int64_t *shape;
    const int64_t *stride;
};

// Writes every element of `from` into `to`, which has the same shape. A finite number stays finite when it becomes f32: what is too
// large becomes the largest, because -inf as a mask means something else than a very small number. Integers are clamped.
void convert(const Strided &from, const Strided &to);

} // namespace polyhead::python

// The types in which tensors store floats, and conversions between them: functions of the runtime convert by these alone.
#ifndef POLYHEAD_RUNTIME_STORED_H
#define POLYHEAD_RUNTIME_STORED_H

#include <cstdint>

#include <polyhead/c_problem.h>
#include <polyhead/half.h>

namespace polyhead::runtime {

constexpr const char *storage_types = "f32, f16 or bf16";

// Calls visit() with an element of the C++ type of a dtype; false: the dtype stores no floats.
template <typename Visit> bool with_stored(int32_t dtype, const Visit &visit) noexcept {
    switch (dtype) {
    case POLYHEAD_F32:
        visit(float());
        return true;
    case POLYHEAD_F16:
        visit(f16());
        return true;
    case POLYHEAD_BF16:
        visit(bf16());
        return true;
    default:
        return false;
    }
}

inline bool stores_floats(int32_t dtype) noexcept {
    return with_stored(dtype, [](auto) {});
}

// An element as a float, and back: rounded to nearest even.
template <typename Stored> float as_float(Stored x) noexcept {
    return to_float(x);
}
template <> inline float as_float(float x) noexcept {
    return x;
}
template <typename Stored> Stored as_stored(float x) noexcept;
template <> inline float as_stored(float x) noexcept {
    return x;
}
template <> inline f16 as_stored(float x) noexcept {
    return to_f16(x);
}
template <> inline bf16 as_stored(float x) noexcept {
    return to_bf16(x);
}

} // namespace polyhead::runtime
#endif

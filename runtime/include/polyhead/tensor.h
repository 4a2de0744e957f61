// Views of the caller's tensors: types, shapes, strides, layouts. Included by polyhead.h.
#ifndef POLYHEAD_TENSOR_H
#define POLYHEAD_TENSOR_H

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include <polyhead/c_api.h>
#include <polyhead/device.h>
#include <polyhead/half.h>

namespace polyhead {

enum class DType : int32_t {
    f32 = POLYHEAD_F32,
    f16 = POLYHEAD_F16,
    bf16 = POLYHEAD_BF16,
    i8 = POLYHEAD_I8,
    i32 = POLYHEAD_I32,
    boolean = POLYHEAD_BOOL,
};

// A tensor that a call reads: pointer, shape and strides, outermost dimension first; the memory is the caller's. Default-constructed =
// absent. The view is absent when shape and stride differ in length.
struct TensorView : polyhead_tensor {
    TensorView() noexcept : polyhead_tensor{} {}
    TensorView(const void *data, DType dtype, std::initializer_list<int64_t> shape) noexcept;
    TensorView(const void *data, DType dtype, std::initializer_list<int64_t> shape, std::initializer_list<int64_t> stride) noexcept;
    // rank extents; rank strides, or null = contiguous.
    TensorView(const void *data, DType dtype, int32_t rank, const int64_t *shape, const int64_t *stride = nullptr) noexcept;
};

// A tensor that a call writes. It can be read as well.
struct MutableTensorView : TensorView {
    MutableTensorView() noexcept = default;
    MutableTensorView(void *memory, DType type, std::initializer_list<int64_t> extents) noexcept : TensorView(memory, type, extents) {}
    MutableTensorView(void *memory, DType type, std::initializer_list<int64_t> extents, std::initializer_list<int64_t> strides) noexcept
        : TensorView(memory, type, extents, strides) {}
    MutableTensorView(void *memory, DType type, int32_t dimensions, const int64_t *extents, const int64_t *strides = nullptr) noexcept
        : TensorView(memory, type, dimensions, extents, strides) {}
};

// The DType of a C++ type. Other types: TensorView(data, dtype, shape).
template <class T> struct dtype_of;
template <> struct dtype_of<float> : std::integral_constant<DType, DType::f32> {};
template <> struct dtype_of<f16> : std::integral_constant<DType, DType::f16> {};
template <> struct dtype_of<bf16> : std::integral_constant<DType, DType::bf16> {};
#ifdef __STDCPP_FLOAT16_T__
template <> struct dtype_of<decltype(0.0f16)> : std::integral_constant<DType, DType::f16> {};
#endif
#ifdef __STDCPP_BFLOAT16_T__
template <> struct dtype_of<decltype(0.0bf16)> : std::integral_constant<DType, DType::bf16> {};
#endif
template <> struct dtype_of<int8_t> : std::integral_constant<DType, DType::i8> {};
template <> struct dtype_of<int32_t> : std::integral_constant<DType, DType::i32> {};
template <> struct dtype_of<bool> : std::integral_constant<DType, DType::boolean> {};

// A view of const elements is read, any other can be written.
template <class T> using ViewOf = std::conditional_t<std::is_const_v<T>, TensorView, MutableTensorView>;
template <class T> ViewOf<T> view(T *data, std::initializer_list<int64_t> shape) noexcept {
    return {data, dtype_of<std::remove_cv_t<T>>::value, shape};
}
template <class T> ViewOf<T> view(T *data, std::initializer_list<int64_t> shape, std::initializer_list<int64_t> stride) noexcept {
    return {data, dtype_of<std::remove_cv_t<T>>::value, shape, stride};
}
// A contiguous view of memory of a device, beginning `offset` elements after data.
MutableTensorView view(const Device &device, void *data, DType dtype, std::initializer_list<int64_t> shape, int64_t offset = 0) noexcept;

// The same memory seen as [B,H,T,d]: from [B,T,H,d], from [B,T,H*d], and from packed tokens [total,H,d]. No copies; an impossible request
// gives an absent view.
TensorView from_bshd(const TensorView &tensor) noexcept;
TensorView from_bsd(const TensorView &tensor, int64_t num_heads) noexcept;
TensorView from_packed(const TensorView &tensor) noexcept;
MutableTensorView from_bshd(const MutableTensorView &tensor) noexcept;
MutableTensorView from_bsd(const MutableTensorView &tensor, int64_t num_heads) noexcept;
MutableTensorView from_packed(const MutableTensorView &tensor) noexcept;

} // namespace polyhead
#endif

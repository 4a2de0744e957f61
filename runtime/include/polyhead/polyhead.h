// polyhead: attention kernels generated for one problem and one machine. The one header that users include.
//
//     #include <polyhead/polyhead.h>
//     #include <minilm_layer.h>              // written by `polyhead generate` or polyhead_add_kernel()
//     polyhead::Weights weights;
//     polyhead::Status status = minilm_layer.pack(tensors, &weights);
//     polyhead::MhaArgs args;
//     args.input = polyhead::view(x, {batch, seq_len, 384});
//     args.weights = &weights;
//     args.out = polyhead::view(y, {batch, seq_len, 384});
//     status = minilm_layer.run(args);
//     if (!status.ok()) log(status.message());
//
// No function prints or aborts. Only the functions that return std::string may throw (std::bad_alloc). Strides are in elements.
#ifndef POLYHEAD_POLYHEAD_H
#define POLYHEAD_POLYHEAD_H

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>

#include <polyhead/c_api.h>
#include <polyhead/device.h>
#include <polyhead/half.h>

namespace polyhead {

using Problem = polyhead_problem;
using Variant = polyhead_variant;

enum class DType : int32_t {
    f32 = POLYHEAD_F32,
    f16 = POLYHEAD_F16,
    bf16 = POLYHEAD_BF16,
    i8 = POLYHEAD_I8,
    i32 = POLYHEAD_I32,
    boolean = POLYHEAD_BOOL,
};

// Corner in which the causal diagonal ends when seq_len_q differs from the valid key length.
enum class Alignment : int32_t { of_problem = 0, bottom_right = POLYHEAD_BOTTOM_RIGHT, top_left = POLYHEAD_TOP_LEFT };

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

// Weights as nn.Linear stores them ([out_features, in_features]); see polyhead_weight_tensors.
struct WeightTensors : polyhead_weight_tensors {
    WeightTensors() noexcept : polyhead_weight_tensors{} {}
    // Packed in_proj_weight [H*d + H_kv*d + H_kv*d_v, D] (rows: query, key, value) with its bias, and the output projection.
    WeightTensors(const TensorView &in_proj_, const TensorView &in_bias_, const TensorView &out_proj_, const TensorView &out_bias_) noexcept
        : polyhead_weight_tensors{} {
        in_proj = in_proj_;
        in_bias = in_bias_;
        out_proj = out_proj_;
        out_bias = out_bias_;
    }
};

// Packed weights that own their memory, on the host or on a device. Movable. Filled by Kernel::pack and Device::put.
class Weights {
public:
    Weights() noexcept : raw_{} {}
    ~Weights();
    Weights(Weights &&other) noexcept;
    Weights &operator=(Weights &&other) noexcept;
    Weights(const Weights &) = delete;
    Weights &operator=(const Weights &) = delete;
    const polyhead_weights *raw() const noexcept { return &raw_; }
    size_t bytes() const noexcept { return raw_.bytes; }

private:
    friend class Kernel;
    friend class Device;
    polyhead_weights raw_;
};

// Arguments name the device that computes; none is the CPU. Tensors are there, or on the host and are copied there and back.

// Masks, modifiers and outputs of attention; give those that the kernel was built with. See polyhead_args for meaning and defaults.
struct AttentionArgs {
    TensorView kv_lengths;              // int32 [B], optional at run time
    std::optional<float> softmax_scale; // default 1/sqrt(head_dim)
    Alignment alignment = Alignment::of_problem;
    TensorView position_offsets; // int32 [B]
    struct Window {
        int32_t left = -1, right = -1; // inclusive; -1 = unbounded
    };
    std::optional<Window> window;
    TensorView mask;                                // bool or floats, broadcast as [B,H,T_q,T_kv]
    TensorView score_bias;                          // floats, the same
    float softcap = 0;                              // > 0 exactly when built with softcap
    TensorView alibi_slopes;                        // f32 [H] or [B,H]
    TensorView sinks;                               // f32 [H]
    TensorView rope_cos, rope_sin;                  // f32 [P, rotary_dim / 2]
    TensorView positions_q;                         // int32 [B,T_q]
    TensorView positions_kv;                        // int32 [B,T_kv]
    TensorView head_gate;                           // f32 [H]
    const TensorView *expression_tensors = nullptr; // in the order of their declarations
    int32_t num_expression_tensors = 0;
    MutableTensorView lse;          // f32 [B,H,T_q], exactly when built with lse
    MutableTensorView scores;       // f32 [B,H,T_q,T_kv], exactly when built with scores
    MutableTensorView weights_mean; // f32 [B,T_q,T_kv], exactly when built with weights_mean
    const Device *device = nullptr;
};

// softmax(softmax_scale * query key^T + mask) value, per head.
struct SdpaArgs : AttentionArgs {
    TensorView query;      // [B,H,T_q,d]
    TensorView key;        // [B,H_kv,T_kv,d]; with pages [pages,H_kv,page_size,d]
    TensorView value;      // [B,H_kv,T_kv,d_v]; with pages [pages,H_kv,page_size,d_v]; none when built with value_in_key
    TensorView page_table; // int32 [B,max_pages], exactly when built with page_size
    // f32 [B,H_kv,T_kv,n], with pages [pages,H_kv,page_size,n], exactly when built with int8_cache; n is 1 or d / scale_channels.
    TensorView key_scales, value_scales;
    // int32 [B+1] on the host: packed tokens of B sequences; query and out are then [1,H,total,d], key and value [1,H_kv,total,d].
    TensorView cu_seqlens_q, cu_seqlens_kv;
    MutableTensorView out; // [B,H,T_q,d_v]
};

// The whole layer: projections, attention, concat, output projection.
struct MhaArgs : AttentionArgs {
    TensorView input; // [B,T_q,D]; with cross: the query input
    TensorView key;   // [B,T_kv,kdim], only with cross
    TensorView value; // [B,T_kv,vdim], only with cross
    const Weights *weights = nullptr;
    TensorView cache_lengths;                 // int32 [B]: valid keys before the call, exactly when built with cache
    MutableTensorView key_cache, value_cache; // [B,H_kv,capacity,d], [B,H_kv,capacity,d_v]; or pages, see polyhead_args
    TensorView page_table;                    // int32 [B,max_pages], exactly when built with page_size
    MutableTensorView out;                    // [B,T_q,D]
};

// out = input W^T + b.
struct LinearArgs {
    TensorView input; // [M,K]
    const Weights *weights = nullptr;
    MutableTensorView out; // [M,N]
    const Device *device = nullptr;
};

// A generated kernel: stateless, constant-initialised, safe to call from many threads.
// NAME.h defines `inline constexpr polyhead::Kernel NAME`.
class Kernel : public polyhead_kernel {
public:
    constexpr explicit Kernel(const polyhead_kernel &table) noexcept : polyhead_kernel(table) {}

    // Runs the first variant that this machine and these lengths allow. Unless the status is ok(), nothing was written to out or lse.
    Status run(const SdpaArgs &args) const noexcept;
    Status run(const MhaArgs &args) const noexcept;
    Status run(const LinearArgs &args) const noexcept;

    // Packs nn.Linear weights, of the storage type or f32, for this kernel. The sources may be freed afterwards.
    Status pack(const WeightTensors &tensors, Weights *weights) const noexcept;
    size_t weights_bytes() const noexcept { return polyhead_weights_bytes(this); }
    // Packs into the caller's memory (64-byte aligned, weights_bytes() long).
    Status pack_into(const WeightTensors &tensors, void *memory, polyhead_weights *packed) const noexcept {
        return Status(polyhead_pack(this, &tensors, memory, packed));
    }

    // Bytes a call with these arguments allocates while it runs; -1 when they are refused.
    int64_t scratch_bytes(const SdpaArgs &args) const noexcept;
    int64_t scratch_bytes(const MhaArgs &args) const noexcept;
    int64_t scratch_bytes(const LinearArgs &args) const noexcept;
    // Which variant would run, and why the ones before it would not. May throw std::bad_alloc.
    std::string explain(const SdpaArgs &args) const;
    std::string explain(const MhaArgs &args) const;
    std::string explain(const LinearArgs &args) const;
    // True when at least one variant can run on this machine's CPU, or on the device.
    bool supported(const Device *device = nullptr) const noexcept;
};

// The kernel of the set that computes this problem, or null. A kernel of a fixed length takes only this length, one of a free length any.
const Kernel *find_kernel(const Kernel *const *set, size_t count, const Problem &problem) noexcept;
// Why find_kernel() chooses this kernel, or the `polyhead generate` line that would add one.
std::string explain(const Kernel *const *set, size_t count, const Problem &problem);

inline void set_num_threads(int threads) noexcept {
    polyhead_set_num_threads(threads);
}
inline int num_threads() noexcept {
    return polyhead_num_threads();
}
// Microseconds that an idle helper thread looks for the next call before it sleeps; below 0: the default (see c_api.h).
inline void set_wait(int microseconds) noexcept {
    polyhead_set_wait(microseconds);
}
inline int wait() noexcept {
    return polyhead_wait();
}

} // namespace polyhead
#endif

// polyhead: attention kernels generated for one problem and one machine. The one header users read.
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
// Nothing prints or aborts, and nothing throws but the functions that return std::string (bad_alloc). Strides are in elements.
#ifndef POLYHEAD_POLYHEAD_H
#define POLYHEAD_POLYHEAD_H

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include <polyhead/c_api.h>
#include <polyhead/device.h>

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

// A caller-owned tensor: pointer, shape and strides, outermost dimension first. Default-constructed = absent.
// Strides of another number than the shape's dimensions give an absent view.
struct TensorView : polyhead_tensor {
    TensorView() noexcept : polyhead_tensor{} {}
    TensorView(void *data, DType dtype, std::initializer_list<int64_t> shape) noexcept;
    TensorView(void *data, DType dtype, std::initializer_list<int64_t> shape, std::initializer_list<int64_t> stride) noexcept;
};

// Contiguous views. Inputs are never written through, so a const pointer is fine for them.
TensorView view(const float *data, std::initializer_list<int64_t> shape) noexcept;
TensorView view(const float *data, std::initializer_list<int64_t> shape, std::initializer_list<int64_t> stride) noexcept;
TensorView view(const int32_t *data, std::initializer_list<int64_t> shape) noexcept;
// A contiguous view of memory of a device, beginning `offset` elements behind data.
TensorView view(const Device &device, void *data, DType dtype, std::initializer_list<int64_t> shape, int64_t offset = 0) noexcept;

// The same memory seen as [B,H,T,d]: from [B,T,H,d], and from [B,T,H*d]. No copies; an impossible request gives an absent view.
TensorView from_bshd(const TensorView &tensor) noexcept;
TensorView from_bsd(const TensorView &tensor, int64_t num_heads) noexcept;

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

// Arguments name the device that computes, or none for the CPU. Tensors lie there or on the host, from where they are copied and back.

// Masks, modifiers and outputs of attention: given for what the kernel was built with. See polyhead_args for meaning and defaults.
struct AttentionArgs {
    TensorView kv_lengths;              // int32 [B], optional at run time
    std::optional<float> softmax_scale; // default 1/sqrt(head_dim)
    Alignment alignment = Alignment::of_problem;
    TensorView position_offsets; // int32 [B]
    struct Window {
        int32_t left = -1, right = -1; // inclusive; -1 = unbounded
    };
    std::optional<Window> window;
    TensorView mask;                                // bool or f32, broadcast as [B,H,T_q,T_kv]
    TensorView score_bias;                          // f32, the same
    float softcap = 0;                              // > 0 exactly when built with softcap
    TensorView alibi_slopes;                        // f32 [H] or [B,H]
    TensorView sinks;                               // f32 [H]
    TensorView rope_cos, rope_sin;                  // f32 [P, rotary_dim / 2]
    TensorView positions_q;                         // int32 [B,T_q]
    TensorView positions_kv;                        // int32 [B,T_kv]
    TensorView head_gate;                           // f32 [H]
    const TensorView *expression_tensors = nullptr; // in the order of their declarations
    int32_t num_expression_tensors = 0;
    TensorView lse;          // f32 [B,H,T_q], exactly when built with lse
    TensorView scores;       // f32 [B,H,T_q,T_kv], exactly when built with scores
    TensorView weights_mean; // f32 [B,T_q,T_kv], exactly when built with weights_mean
    const Device *device = nullptr;
};

// softmax(softmax_scale * query key^T + mask) value, per head.
struct SdpaArgs : AttentionArgs {
    TensorView query; // [B,H,T_q,d]
    TensorView key;   // [B,H_kv,T_kv,d]
    TensorView value; // [B,H_kv,T_kv,d_v]
    TensorView out;   // [B,H,T_q,d_v]
};

// The whole layer: projections, attention, concat, output projection.
struct MhaArgs : AttentionArgs {
    TensorView input; // [B,T_q,D]; with cross: the query input
    TensorView key;   // [B,T_kv,kdim], only with cross
    TensorView value; // [B,T_kv,vdim], only with cross
    const Weights *weights = nullptr;
    TensorView out; // [B,T_q,D]
};

// out = input W^T + b.
struct LinearArgs {
    TensorView input; // [M,K]
    const Weights *weights = nullptr;
    TensorView out; // [M,N]
    const Device *device = nullptr;
};

// A generated kernel: stateless, constant-initialised, safe to call from many threads.
// NAME.h defines `inline constexpr polyhead::Kernel NAME`.
class Kernel : public polyhead_kernel {
public:
    constexpr explicit Kernel(const polyhead_kernel &table) noexcept : polyhead_kernel(table) {}

    // Runs the first variant that this machine and these lengths allow. Unless ok() nothing was written to out or lse.
    Status run(const SdpaArgs &args) const noexcept;
    Status run(const MhaArgs &args) const noexcept;
    Status run(const LinearArgs &args) const noexcept;

    // Packs nn.Linear weights for this kernel. The sources may be freed afterwards.
    Status pack(const WeightTensors &tensors, Weights *weights) const noexcept;
    size_t weights_bytes() const noexcept { return polyhead_weights_bytes(this); }
    // The same into the caller's memory (64-byte aligned, weights_bytes() long).
    Status pack_into(const WeightTensors &tensors, void *memory, polyhead_weights *packed) const noexcept {
        return Status(polyhead_pack(this, &tensors, memory, packed));
    }

    // Bytes a call with these arguments allocates while it runs; -1 when they are refused.
    int64_t scratch_bytes(const SdpaArgs &args) const noexcept;
    int64_t scratch_bytes(const MhaArgs &args) const noexcept;
    // Which variant would run, and why the ones before it would not. May throw std::bad_alloc.
    std::string explain(const SdpaArgs &args) const;
    std::string explain(const MhaArgs &args) const;
    // True when at least one variant can run on this machine's CPU, or on the device.
    bool supported(const Device *device = nullptr) const noexcept;
};

// The kernel of the set that computes this problem (a fixed length serves exactly itself, a free one any), or null.
const Kernel *find_kernel(const Kernel *const *set, size_t count, const Problem &problem) noexcept;
// Why that kernel, or the `polyhead generate` line that would add one.
std::string explain(const Kernel *const *set, size_t count, const Problem &problem);

inline void set_num_threads(int threads) noexcept {
    polyhead_set_num_threads(threads);
}
inline int num_threads() noexcept {
    return polyhead_num_threads();
}

} // namespace polyhead
#endif

// Checks the arguments of one call, cheapest rules first; nothing is read but the tables and the key lengths, nothing is written.
#include "validate.h"

#include <cmath>
#include <cstring>

#include "status.h"
#include "tensor_rules.h"
#include "weight_layout.h"

namespace polyhead::runtime {
namespace {

Extent fixed_or_any(int32_t length) noexcept {
    return {length > 0 ? length : any_extent, nullptr};
}

Extent built(int64_t extent) noexcept {
    return {extent, nullptr};
}

bool self_attention(const polyhead_problem &p) noexcept {
    return p.op == POLYHEAD_MHA && !p.cross;
}

bool check_operation(const polyhead_kernel &kernel, const polyhead_args &args, polyhead_status *status) noexcept {
    if (args.op == kernel.problem.op) {
        return true;
    }
    return refuse(status, POLYHEAD_WRONG_OPERATION, "arguments: of operation %s, expected %s, which kernel %s computes", op_name(args.op),
                  op_name(kernel.problem.op), kernel.name);
}

bool refuse_given(const polyhead_tensor &tensor, const char *name, const char *reason, polyhead_status *status) noexcept {
    if (absent(tensor)) {
        return true;
    }
    return refuse(status, POLYHEAD_WRONG_OPERATION, "%s: given, expected none, because the kernel %s", name, reason);
}

bool check_surplus(const polyhead_problem &p, const polyhead_args &args, polyhead_status *status) noexcept {
    const bool linear = p.op == POLYHEAD_LINEAR;
    if (linear || self_attention(p)) {
        const char *reason = linear ? "is a linear layer" : "is self-attention";
        if (!refuse_given(args.key, "key", reason, status) || !refuse_given(args.value, "value", reason, status)) {
            return false;
        }
    }
    if (!(p.kv_lengths && !linear) && !refuse_given(args.kv_lengths, "kv_lengths", "was built without key lengths", status)) {
        return false;
    }
    if (!(p.lse && !linear) && !refuse_given(args.lse, "lse", "was built without lse", status)) {
        return false;
    }
    if (p.op == POLYHEAD_SDPA && args.weights) {
        return refuse(status, POLYHEAD_WRONG_OPERATION, "weights: given, expected none, because the kernel is bare attention");
    }
    if (linear && args.has_softmax_scale) {
        return refuse(status, POLYHEAD_WRONG_OPERATION, "softmax_scale: given, expected none, because the kernel is a linear layer");
    }
    return true;
}

bool check_scalars(const polyhead_problem &p, const polyhead_args &args, polyhead_status *status) noexcept {
    // The kernel multiplies by log2 e as well; the product must stay finite.
    if (args.has_softmax_scale && !std::isfinite(args.softmax_scale * 1.4426951f)) {
        return refuse(status, POLYHEAD_BAD_VALUE, "softmax_scale: value %g, expected a finite number below 2.3e38",
                      static_cast<double>(args.softmax_scale));
    }
    if (args.alignment < POLYHEAD_NOT_CAUSAL || args.alignment > POLYHEAD_TOP_LEFT) {
        return refuse(status, POLYHEAD_BAD_VALUE, "alignment: value %d, expected 0 (of the problem), 1 (bottom_right) or 2 (top_left)",
                      args.alignment);
    }
    if (args.alignment != 0 && p.causal == POLYHEAD_NOT_CAUSAL) {
        return refuse(status, POLYHEAD_BAD_VALUE, "alignment: value %d, expected 0, because the kernel is not causal", args.alignment);
    }
    return true;
}

bool check_sdpa_tensors(const polyhead_problem &p, const polyhead_args &a, CallShape *shape, polyhead_status *status) noexcept {
    const Extent heads = built(p.num_heads), kv_heads = built(p.num_kv_heads);
    if (!check_tensor({"query", &a.query, p.dtype, Role::input, 4, {{}, heads, fixed_or_any(p.seq_len_q), built(p.head_dim)}}, status)) {
        return false;
    }
    const Extent batch{a.query.shape[0], "query"}, seq_len_q{a.query.shape[2], "query"};
    if (!check_tensor({"key", &a.key, p.dtype, Role::input, 4, {batch, kv_heads, fixed_or_any(p.seq_len_kv), built(p.head_dim)}}, status)) {
        return false;
    }
    const Extent seq_len_kv{a.key.shape[2], "key"};
    if (!check_tensor({"value", &a.value, p.dtype, Role::input, 4, {batch, kv_heads, seq_len_kv, built(p.head_dim_v)}}, status)) {
        return false;
    }
    if (!check_tensor({"out", &a.out, p.dtype, Role::output, 4, {batch, heads, seq_len_q, built(p.head_dim_v)}}, status)) {
        return false;
    }
    *shape = {a.query.shape[0], a.query.shape[2], a.key.shape[2]};
    return true;
}

bool check_mha_tensors(const polyhead_problem &p, const polyhead_args &a, CallShape *shape, polyhead_status *status) noexcept {
    const bool self = self_attention(p);
    const Extent length = fixed_or_any(p.seq_len_q > 0 || !self ? p.seq_len_q : p.seq_len_kv);
    if (!check_tensor({"input", &a.query, p.dtype, Role::input, 3, {{}, length, built(p.embed_dim)}}, status)) {
        return false;
    }
    const Extent batch{a.query.shape[0], "input"}, seq_len_q{a.query.shape[1], "input"};
    *shape = {a.query.shape[0], a.query.shape[1], a.query.shape[1]};
    if (!self) {
        if (!check_tensor({"key", &a.key, p.dtype, Role::input, 3, {batch, fixed_or_any(p.seq_len_kv), built(p.kdim)}}, status)) {
            return false;
        }
        shape->seq_len_kv = a.key.shape[1];
        const Extent seq_len_kv{a.key.shape[1], "key"};
        if (!check_tensor({"value", &a.value, p.dtype, Role::input, 3, {batch, seq_len_kv, built(p.vdim)}}, status)) {
            return false;
        }
    }
    if (!check_tensor({"out", &a.out, p.dtype, Role::output, 3, {batch, seq_len_q, built(p.embed_dim)}}, status)) {
        return false;
    }
    return true;
}

bool check_linear_tensors(const polyhead_problem &p, const polyhead_args &a, CallShape *shape, polyhead_status *status) noexcept {
    if (!check_tensor({"input", &a.query, p.dtype, Role::input, 2, {fixed_or_any(p.seq_len_q), built(p.embed_dim)}}, status)) {
        return false;
    }
    const Extent rows{a.query.shape[0], "input"};
    *shape = {1, a.query.shape[0], 1};
    return check_tensor({"out", &a.out, p.dtype, Role::output, 2, {rows, built(p.out_features)}}, status);
}

// A layer keeps the projections of the whole batch; each is one allocation that Halide addresses with 31 bits.
bool check_projections(const polyhead_problem &p, const CallShape &s, polyhead_status *status) noexcept {
    const struct {
        const char *name;
        double elements; // a product of four extents may not fit 64 bits
    } projections[] = {
        {"query", double(s.batch) * double(s.seq_len_q) * p.num_heads * p.head_dim},
        {"key", double(s.batch) * double(s.seq_len_kv) * p.num_kv_heads * p.head_dim},
        {"value", double(s.batch) * double(s.seq_len_kv) * p.num_kv_heads * p.head_dim_v},
        {"attention", double(s.batch) * double(s.seq_len_q) * p.num_heads * p.head_dim_v},
    };
    for (const auto &projection : projections) {
        if (projection.elements * sizeof(float) < 2147483648.0) {
            continue;
        }
        return refuse(status, POLYHEAD_UNSUPPORTED,
                      "input: the %s of %lld batch rows between the stages takes %.0f bytes, expected less than 2^31: split the batch",
                      projection.name, static_cast<long long>(s.batch), projection.elements * sizeof(float));
    }
    return true;
}

// Where one tensor, or the weights, lie against where the call runs.
bool check_place(const char *name, const polyhead_device *place, const polyhead_device *device, polyhead_status *status) noexcept {
    if (!place || place == device) {
        return true;
    }
    if (!device) {
        return refuse(status, POLYHEAD_WRONG_DEVICE, "%s: lies on device %s, expected host memory, because the call names no device", name,
                      place->name);
    }
    return refuse(status, POLYHEAD_WRONG_DEVICE, "%s: lies on device %s, expected host memory or the device of the call, %s%s", name,
                  place->name, device->name, std::strcmp(place->name, device->name) == 0 ? " opened another time" : "");
}

struct NamedTensor {
    const char *name;
    const polyhead_tensor *tensor;
};

// All tensors of a call; unused ones are absent.
struct Tensors {
    NamedTensor named[6];
    Tensors(const polyhead_args &args, const char *first) noexcept
        : named{{first, &args.query}, {"key", &args.key}, {"value", &args.value}, {"kv_lengths", &args.kv_lengths},
                {"out", &args.out},   {"lse", &args.lse}} {}
};

bool check_places(const polyhead_args &args, const char *first, polyhead_status *status) noexcept {
    for (const NamedTensor &t : Tensors(args, first).named) {
        if (!absent(*t.tensor) && !check_place(t.name, t.tensor->device, args.device, status)) {
            return false;
        }
    }
    return !args.weights || check_place("weights", args.weights->device, args.device, status);
}

// Asks the device whether it holds what was said to be there; after shapes and strides are known to be right.
bool check_device_memory(const polyhead_args &args, const char *first, polyhead_status *status) noexcept {
    if (!args.device) {
        return true;
    }
    for (const NamedTensor &t : Tensors(args, first).named) {
        if (t.tensor->device && !empty(*t.tensor) && !args.device->check(range_of(t.name, *t.tensor), status)) {
            return false;
        }
    }
    const polyhead_weights *w = args.weights;
    return !w || !w->device || args.device->check({"weights", w->data, 0, static_cast<int64_t>(w->bytes), 0}, status);
}

bool check_kv_lengths(const polyhead_args &args, const CallShape &shape, const char *first, polyhead_status *status) noexcept {
    const polyhead_tensor &t = args.kv_lengths;
    if (absent(t)) {
        return true;
    }
    if (!check_tensor({"kv_lengths", &t, POLYHEAD_I32, Role::lengths, 1, {{shape.batch, first}}}, status)) {
        return false;
    }
    if (t.device) {
        return true; // reading them would wait for the device: kernels clamp them instead
    }
    const int32_t *lengths = static_cast<const int32_t *>(t.data) + t.offset;
    for (int64_t b = 0; b < shape.batch; ++b) {
        const int32_t length = lengths[shape.batch > 1 ? b * t.stride[0] : 0];
        if (length < 0 || length > shape.seq_len_kv) {
            return refuse(status, POLYHEAD_BAD_VALUE, "kv_lengths: value %d at index %lld of dimension 0, expected 0 to %lld (seq_len_kv)",
                          length, static_cast<long long>(b), static_cast<long long>(shape.seq_len_kv));
        }
    }
    return true;
}

bool check_lse(const polyhead_problem &p, const polyhead_args &args, const CallShape &shape, const char *first,
               polyhead_status *status) noexcept {
    const Extent batch{shape.batch, first}, seq_len_q{shape.seq_len_q, first};
    return check_tensor({"lse", &args.lse, POLYHEAD_F32, Role::output, 3, {batch, built(p.num_heads), seq_len_q}}, status);
}

bool check_weights(const polyhead_kernel &kernel, const polyhead_weights *weights, polyhead_status *status) noexcept {
    if (!weights) {
        return refuse(status, POLYHEAD_NULL_POINTER, "weights: missing, expected the packed weights of kernel %s", kernel.name);
    }
    if (!weights->data) {
        return refuse(status, POLYHEAD_NULL_POINTER, "weights: null pointer, expected packed weights (pack them first)");
    }
    const uint32_t id = weight_layout_id(kernel.problem);
    if (weights->layout != id) {
        return refuse(status, POLYHEAD_WRONG_WEIGHTS, "weights: layout id %08x, expected %08x: they were packed for another problem",
                      weights->layout, id);
    }
    if (weights->panel != POLYHEAD_WEIGHT_PANEL) {
        return refuse(status, POLYHEAD_WRONG_WEIGHTS, "weights: panel %d, expected %d", weights->panel, POLYHEAD_WEIGHT_PANEL);
    }
    if (weights->dtype != kernel.problem.dtype) {
        return refuse(status, POLYHEAD_WRONG_WEIGHTS, "weights: dtype %s, expected %s", dtype_name(weights->dtype),
                      dtype_name(kernel.problem.dtype));
    }
    const size_t bytes = weight_layout(kernel.problem).bytes;
    if (weights->bytes != bytes) {
        return refuse(status, POLYHEAD_WRONG_WEIGHTS, "weights: %zu bytes, expected %zu", weights->bytes, bytes);
    }
    if (!weights->device && reinterpret_cast<uintptr_t>(weights->data) % 64 != 0) {
        return refuse(status, POLYHEAD_WRONG_WEIGHTS, "weights: address %p, expected a multiple of 64", weights->data);
    }
    return true;
}

struct NamedRange {
    const char *name;
    MemoryRange range;
};

bool check_aliasing(const polyhead_args &args, const char *first, polyhead_status *status) noexcept {
    const NamedRange outputs[] = {{"out", memory_of(args.out)}, {"lse", memory_of(args.lse)}};
    const NamedRange inputs[] = {{first, memory_of(args.query)},
                                 {"key", memory_of(args.key)},
                                 {"value", memory_of(args.value)},
                                 {"kv_lengths", memory_of(args.kv_lengths)},
                                 {"weights", memory_of(args.weights)}};
    for (const NamedRange &output : outputs) {
        for (const NamedRange &input : inputs) {
            if (!overlap(output.range, input.range)) {
                continue;
            }
            return refuse(status, POLYHEAD_ALIASED, "%s: shares memory with %s, expected memory of its own", output.name, input.name);
        }
    }
    if (overlap(outputs[0].range, outputs[1].range)) {
        return refuse(status, POLYHEAD_ALIASED, "lse: shares memory with out, expected memory of its own");
    }
    return true;
}

} // namespace

const char *first_tensor_name(const polyhead_problem &problem) noexcept {
    return problem.op == POLYHEAD_SDPA ? "query" : "input";
}

bool validate(const polyhead_kernel &kernel, const polyhead_args &args, CallShape *shape, polyhead_status *status) noexcept {
    const polyhead_problem p = with_defaults(kernel.problem);
    const char *first = first_tensor_name(p);
    if (!check_operation(kernel, args, status) || !check_surplus(p, args, status) || !check_scalars(p, args, status) ||
        !check_places(args, first, status)) {
        return false;
    }
    switch (p.op) {
    case POLYHEAD_SDPA:
        if (!check_sdpa_tensors(p, args, shape, status)) {
            return false;
        }
        break;
    case POLYHEAD_MHA:
        if (!check_mha_tensors(p, args, shape, status) || !check_projections(p, *shape, status)) {
            return false;
        }
        break;
    default:
        if (!check_linear_tensors(p, args, shape, status)) {
            return false;
        }
    }
    if (p.op != POLYHEAD_SDPA && !check_weights(kernel, args.weights, status)) {
        return false;
    }
    if (p.op != POLYHEAD_LINEAR && !check_kv_lengths(args, *shape, first, status)) {
        return false;
    }
    if (p.op != POLYHEAD_LINEAR && p.lse && !check_lse(p, args, *shape, first, status)) {
        return false;
    }
    return check_aliasing(args, first, status) && check_device_memory(args, first, status);
}

} // namespace polyhead::runtime

// Checks the arguments of one call, cheapest rules first. Nothing is read but the tables, and lengths and positions on the host; nothing
// is written. Here are the order of the rules and what every operation has: its tensors, lengths and weights.
#include "validate.h"

#include "../contract/tensors.h"
#include "status.h"
#include "tensor_rules.h"
#include "validate_parts.h"
#include "../contract/weight_layout.h"

namespace polyhead::runtime {
namespace {

constexpr int32_t most_heads = 65535; // of a call, where the number is free: what the grids of devices have

Extent fixed_or_any(int32_t length) noexcept {
    return {length > 0 ? length : any_extent, nullptr};
}

Extent built(int64_t extent) noexcept {
    return {extent, nullptr};
}

// Structs of another size were written by another version of the headers: nothing else in them can be read.
bool check_sizes(const polyhead_kernel &kernel, const polyhead_args &args, polyhead_status *status) noexcept {
    if (args.size != sizeof args) {
        return refuse(
            status, POLYHEAD_UNSUPPORTED,
            "arguments: polyhead_args of %u bytes, expected %zu: begin them with polyhead_args_of() and compile with the headers of "
            "polyhead %s",
            args.size, sizeof args, polyhead_version());
    }
    return check_size(kernel, status);
}

bool check_reserved(const polyhead_args &args, polyhead_status *status) noexcept {
    const char *given = args.scratch ? "scratch" : args.scratch_bytes != 0 ? "scratch_bytes" : args.executor ? "executor" : nullptr;
    return !given || refuse(status, POLYHEAD_UNSUPPORTED, "%s: given, expected none, because this version has no use for it", given);
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
    if (p.value_in_key && !refuse_given(args.value, "value", "takes it from key (value_in_key)", status)) {
        return false;
    }
    if (p.op != POLYHEAD_SDPA || p.page_size > 0) {
        const char *reason = p.op != POLYHEAD_SDPA ? "does not compute sdpa" : "takes keys in pages, whose lengths are kv_lengths";
        if ((p.op != POLYHEAD_SDPA && !refuse_given(args.cu_seqlens_q, "cu_seqlens_q", reason, status)) ||
            !refuse_given(args.cu_seqlens_kv, "cu_seqlens_kv", reason, status)) {
            return false;
        }
    }
    if (p.op == POLYHEAD_SDPA && args.weights) {
        return refuse(status, POLYHEAD_WRONG_OPERATION, "weights: given, expected none, because the kernel computes sdpa");
    }
    return true;
}

// A fixed length holds for each sequence of packed tokens: check_sequences() and the rules of the parts.
bool check_sdpa_tensors(const polyhead_problem &p, const polyhead_args &a, CallShape *shape, polyhead_status *status) noexcept {
    const bool packed_q = !absent(a.cu_seqlens_q), packed_kv = !absent(a.cu_seqlens_kv);
    const Extent queries = packed_q ? Extent{} : fixed_or_any(p.seq_len_q), one{1, "calls with packed tokens"};
    if (!check_tensor({"query",
                       &a.query,
                       p.dtype,
                       Role::input,
                       4,
                       {packed_q ? one : Extent{}, fixed_or_any(p.num_heads), queries, built(p.head_dim)}},
                      status)) {
        return false;
    }
    const int64_t num_heads = a.query.shape[1];
    if (free_heads(p) && (num_heads % group_size_of(p) != 0 || num_heads > most_heads)) {
        return refuse(status, POLYHEAD_WRONG_SHAPE, "query: extent %lld of dimension 1, expected a multiple of group_size %d, at most %d",
                      static_cast<long long>(num_heads), group_size_of(p), most_heads);
    }
    if (num_heads == 0 && p.weights_mean) {
        return refuse(status, POLYHEAD_WRONG_SHAPE,
                      "query: extent 0 of dimension 1, expected at least 1, because weights_mean is the mean over heads");
    }
    const Extent heads{num_heads, free_heads(p) ? "query" : nullptr}, kv_heads = built(num_heads / group_size_of(p));
    int64_t sequences = a.query.shape[0];
    if (!check_sequences(a, &sequences, status)) {
        return false;
    }
    const Extent batch = packed_q ? Extent{sequences, "the sequences of cu_seqlens_q"} : Extent{sequences, "query"};
    const Extent seq_len_q{a.query.shape[2], "query"};
    const bool pages = p.page_size > 0;
    if (pages && !check_tensor({"page_table", &a.page_table, POLYHEAD_I32, Role::input, 2, {batch, {}}}, status)) {
        return false;
    }
    const Extent key_rows = pages ? built(p.page_size) : packed_kv ? Extent{} : fixed_or_any(p.seq_len_kv);
    const Extent key_batch = pages ? Extent{} : packed_kv ? one : batch;
    if (!check_tensor({"key", &a.key, key_dtype(p), Role::input, 4, {key_batch, kv_heads, key_rows, built(p.head_dim)}}, status)) {
        return false;
    }
    const Extent outermost{a.key.shape[0], "key"}, value_rows{a.key.shape[2], "key"};
    if (!p.value_in_key &&
        !check_tensor({"value", &a.value, key_dtype(p), Role::input, 4, {outermost, kv_heads, value_rows, built(p.head_dim_v)}},
                      status)) {
        return false;
    }
    const Extent out_batch{a.query.shape[0], "query"};
    if (!check_tensor({"out", &a.out, p.dtype, Role::output, 4, {out_batch, heads, seq_len_q, built(p.head_dim_v)}}, status)) {
        return false;
    }
    *shape = {sequences, a.query.shape[2], pages ? a.page_table.shape[1] * p.page_size : a.key.shape[2], num_heads};
    shape->packed_q = packed_q;
    shape->packed_kv = packed_kv;
    return true;
}

bool check_mha_tensors(const polyhead_problem &p, const polyhead_args &a, CallShape *shape, polyhead_status *status) noexcept {
    const bool self = self_attention(p);
    const Extent length = fixed_or_any(p.seq_len_q > 0 || !self ? p.seq_len_q : p.seq_len_kv);
    if (!check_tensor({"input", &a.query, p.dtype, Role::input, 3, {{}, length, built(p.embed_dim)}}, status)) {
        return false;
    }
    const Extent batch{a.query.shape[0], "input"}, seq_len_q{a.query.shape[1], "input"};
    *shape = {a.query.shape[0], a.query.shape[1], a.query.shape[1], p.num_heads};
    if (p.cache && !check_cache_tensors(p, a, shape, status)) {
        return false;
    }
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
    if (weights->dtype != weight_dtype(kernel.problem)) {
        return refuse(status, POLYHEAD_WRONG_WEIGHTS, "weights: dtype %s, expected %s", dtype_name(weights->dtype),
                      dtype_name(weight_dtype(kernel.problem)));
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

} // namespace

const char *first_tensor_name(const polyhead_problem &problem) noexcept {
    return problem.op == POLYHEAD_SDPA ? "query" : "input";
}

bool check_size(const polyhead_kernel &kernel, polyhead_status *status) noexcept {
    if (kernel.problem.size == sizeof kernel.problem) {
        return true;
    }
    return refuse(status, POLYHEAD_UNSUPPORTED, "kernel %s: polyhead_problem of %u bytes, expected %zu: generate it with polyhead %s",
                  kernel.name, kernel.problem.size, sizeof kernel.problem, polyhead_version());
}

bool validate(const polyhead_kernel &kernel, const polyhead_args &args, CallShape *shape, polyhead_status *status) noexcept {
    if (!check_sizes(kernel, args, status) || !check_reserved(args, status)) {
        return false;
    }
    polyhead_problem p = with_defaults(kernel.problem);
    if (!check_operation(kernel, args, status) || !check_surplus(p, args, status) || !check_surplus_optional(kernel, args, status) ||
        !check_numbers(p, args, status) || !check_places(kernel, args, status)) {
        return false;
    }
    if (!(p.op == POLYHEAD_SDPA  ? check_sdpa_tensors(p, args, shape, status)
          : p.op == POLYHEAD_MHA ? check_mha_tensors(p, args, shape, status)
                                 : check_linear_tensors(p, args, shape, status))) {
        return false;
    }
    p = with_heads(p, shape->num_heads);
    if (p.op != POLYHEAD_SDPA && !check_weights(kernel, args.weights, status)) {
        return false;
    }
    if (shape->ragged()) { // what its tensors hold is checked in parts, as distances are
        if (!check_ragged(kernel, args, *shape, status) || !check_optional_tensors(kernel, p, args, *shape, status)) {
            return false;
        }
    } else if (p.op != POLYHEAD_LINEAR &&
               !(check_optional_tensors(kernel, p, args, *shape, status) && check_values(p, args, *shape, status))) {
        return false;
    }
    return check_device_memory(kernel, args, status) && check_aliasing(kernel, args, status);
}

} // namespace polyhead::runtime

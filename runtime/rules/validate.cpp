// Checks the arguments of one call, cheapest rules first. Nothing is read but the tables, and lengths and positions on the host; nothing
// is written. Here are the order of the rules and what every operation has: its tensors, lengths and weights.
#include "validate.h"

#include "../../contract/tensors.h"
#include "../../contract/weight_layout.h"
#include "../status.h"
#include "bound_extents.h"
#include "tensor_rules.h"
#include "validate_parts.h"

namespace polyhead::runtime {
namespace {

constexpr int32_t most_heads = 65535; // of a call, where the number is free: what the grids of devices have

bool check_on_device(const polyhead_args &args, polyhead_status *status) noexcept {
    if (args.device && (args.executor || args.scratch)) {
        return refuse(status, POLYHEAD_UNSUPPORTED, "%s: given, expected none, because the call is on a device",
                      args.executor ? "executor" : "scratch");
    }
    return true;
}

// Heads of a call, where their number is free, and how many sequences packed tokens have.
bool check_query(const polyhead_problem &p, const polyhead_args &args, BoundExtents *bound, polyhead_status *status) noexcept {
    const int64_t num_heads = args.query.shape[1];
    if (free_heads(p) && p.free_group_size == 0 && (num_heads % group_size_of(p) != 0 || num_heads > most_heads)) {
        return refuse(status, POLYHEAD_WRONG_SHAPE, "query: extent %lld of dimension 1, expected a multiple of group_size %d, at most %d",
                      static_cast<long long>(num_heads), group_size_of(p), most_heads);
    }
    if (free_heads(p) && num_heads > most_heads) {
        return refuse(status, POLYHEAD_WRONG_SHAPE, "query: extent %lld of dimension 1, expected at most %d",
                      static_cast<long long>(num_heads), most_heads);
    }
    if (num_heads == 0 && p.weights_mean) {
        return refuse(status, POLYHEAD_WRONG_SHAPE,
                      "query: extent 0 of dimension 1, expected at least 1, because weights_mean is the mean over heads");
    }
    int64_t sequences = args.query.shape[0];
    if (!check_sequences(args, &sequences, status)) {
        return false;
    }
    if (!absent(args.cu_seqlens_q)) {
        bound->give(POLYHEAD_EXTENT_B, sequences, "the sequences of cu_seqlens_q");
    }
    return true;
}

// Key/value heads of a call, where their number is free.
bool check_key(const polyhead_args &args, polyhead_status *status) noexcept {
    const int64_t num_heads = args.query.shape[1], num_kv_heads = args.key.shape[1];
    return num_heads == 0 || (num_kv_heads > 0 && num_heads % num_kv_heads == 0) ||
           refuse(status, POLYHEAD_WRONG_SHAPE, "key: extent %lld of dimension 1, expected a divisor of the %lld heads of query",
                  static_cast<long long>(num_kv_heads), static_cast<long long>(num_heads));
}

// The lengths of a call, from the tensors that have them.
bool check_lengths(const TensorSet &taken, const polyhead_args &args, BoundExtents *bound, polyhead_status *status) noexcept {
    const polyhead_problem problem = bound->problem();
    for (const TensorRow &row : taken &length_rows) {
        if (!check_lengths_of(row, args, bound, status) ||
            (row.tensor == &polyhead_args::query && by_heads(problem) && !check_query(problem, args, bound, status)) ||
            (row.tensor == &polyhead_args::key && problem.free_group_size != 0 && !check_key(args, status))) {
            return false;
        }
    }
    if (problem.page_size > 0) { // with pages the table says how many keys there are
        bound->give(POLYHEAD_EXTENT_KV, args.page_table.shape[1] * problem.page_size, "page_table");
    } else if (attends_itself(problem) && !problem.cache) { // a layer of its own keys
        bound->give(POLYHEAD_EXTENT_KV, args.query.shape[1], first_tensor_name(problem));
    }
    return !problem.cache || check_capacity(problem, args, bound->shape(), status);
}

} // namespace

bool check_operation(const KernelTable &kernel, const polyhead_args &args, polyhead_status *status) noexcept {
    if (args.op == kernel.problem.op) {
        return true;
    }
    return refuse(status, POLYHEAD_WRONG_OPERATION, "arguments: of operation %s, expected %s, which kernel %s computes", op_name(args.op),
                  op_name(kernel.problem.op), kernel.name);
}

bool check_weights(const KernelTable &kernel, const polyhead_weights *weights, polyhead_status *status) noexcept {
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

bool check_contents(const KernelTable &kernel, const polyhead_problem &problem, const polyhead_args &args, const Resources &resources,
                    const CallShape &shape, polyhead_status *status) noexcept {
    if (!shape.ragged() && attends(problem) && !check_values(problem, args, shape, resources.workers, status)) {
        return false;
    }
    // What needs memory comes last: nothing is written before it is known where the tensors are.
    return check_device_memory(kernel, args, status) && check_aliasing(kernel, args, status) && check_scratch(kernel, args, status) &&
           (!problem.cache || problem.shared_cache || check_cache_use(problem, args, shape, resources.memory, status));
}

bool validate(const KernelTable &kernel, const polyhead_args &args, const Resources &resources, CallShape *shape,
              polyhead_status *status) noexcept {
    const polyhead_problem &given = kernel.problem;
    if (!check_on_device(args, status) || !check_operation(kernel, args, status) || !check_surplus(kernel, args, status) ||
        !check_numbers(given, args, status) || !check_places(kernel, args, status)) {
        return false;
    }
    BoundExtents bound(given, !absent(args.cu_seqlens_q), !absent(args.cu_seqlens_kv));
    if (!check_lengths(kernel.tensors, args, &bound, status) || (has_weights(given) && !check_weights(kernel, args.weights, status))) {
        return false;
    }
    *shape = bound.shape();
    shape->sums_rows = shape->sums_rows || kernel.num_gradients > 0;
    // What tensors of packed tokens hold is checked in parts, as distances are.
    return (!shape->ragged() || check_ragged(kernel, args, *shape, status)) && check_other_tensors(kernel, bound, args, status) &&
           check_contents(kernel, bound.problem(), args, resources, *shape, status);
}

} // namespace polyhead::runtime

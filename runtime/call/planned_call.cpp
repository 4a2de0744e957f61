// Plans: calls whose form was checked before.
#include "planned_call.h"

#include <algorithm>
#include <new>

#include "../memory/memory.h"
#include "../rules/validate_parts.h"
#include "../status.h"
#include "../threads/floating_point.h"
#include "call_guard.h"
#include "dispatch.h"
#include "given_call.h"
#include "needed_keys.h"
#include "neutral_rows.h"
#include "scratch_bytes.h"

namespace polyhead::runtime {
namespace {

// A tensor as the plan has it, but for its address.
bool check_same_form(const char *name, const polyhead_tensor &t, const polyhead_tensor &planned, polyhead_status *status) noexcept {
    if (absent(planned) || absent(t)) {
        return absent(planned) == absent(t) || refuse(status, POLYHEAD_WRONG_OPERATION, "%s: %s, expected %s: the plan was made so", name,
                                                      absent(t) ? "missing" : "given", absent(t) ? "a tensor" : "none");
    }
    if (t.dtype != planned.dtype) {
        return refuse(status, POLYHEAD_WRONG_DTYPE, "%s: dtype %s, expected %s, as in the plan", name, dtype_name(t.dtype),
                      dtype_name(planned.dtype));
    }
    if (t.rank != planned.rank) {
        return refuse(status, POLYHEAD_WRONG_SHAPE, "%s: rank %d, expected %d, as in the plan", name, t.rank, planned.rank);
    }
    for (int32_t i = 0; i < t.rank; ++i) {
        if (t.shape[i] != planned.shape[i]) {
            return refuse(status, POLYHEAD_WRONG_SHAPE, "%s: extent %lld of dimension %d, expected %lld, as in the plan", name,
                          static_cast<long long>(t.shape[i]), i, static_cast<long long>(planned.shape[i]));
        }
        if (t.stride[i] != planned.stride[i] && t.shape[i] > 1) {
            return refuse(status, POLYHEAD_WRONG_STRIDE, "%s: stride %lld of dimension %d, expected %lld, as in the plan", name,
                          static_cast<long long>(t.stride[i]), i, static_cast<long long>(planned.stride[i]));
        }
    }
    if (t.device != planned.device) {
        return refuse(status, POLYHEAD_WRONG_DEVICE, "%s: lies on %s, expected %s, as in the plan", name,
                      t.device ? t.device->name : "the host", planned.device ? planned.device->name : "the host");
    }
    return empty(t) || check_address(name, t, status);
}

bool same_windows(const polyhead_args &a, const polyhead_args &b) noexcept {
    return a.has_window == b.has_window && (!a.has_window || (a.window_left == b.window_left && a.window_right == b.window_right));
}

} // namespace
} // namespace polyhead::runtime

using namespace polyhead::runtime;

polyhead_plan::polyhead_plan(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape) noexcept
    : kernel_(kernel), problem_(with_heads(kernel.problem, shape.num_heads, shape.num_kv_heads)), form_(args), shape_(shape) {
    if (args.weights) {
        weights_ = *args.weights;
        form_.weights = &weights_;
    }
    for (int32_t i = 0; i < kernel_.num_declarations; ++i) {
        expression_tensors_[i] = args.expression_tensors[i];
    }
    form_.expression_tensors = expression_tensors_;
    std::copy_n(args.expression_gradients, kernel_.num_gradients, expression_gradients_);
    form_.expression_gradients = expression_gradients_;
    form_.plan = nullptr;
    const bool keys_counted = !absent(args.kv_lengths) || kernel_.problem.cache != 0;
    if (args.device || shape_.ragged() || shape_.nothing_to_do() || shape_.no_pairs() || keys_counted) {
        return;
    }
    shape_.needed_keys = needed_keys(kernel_, form_, shape_);
    polyhead_status status = success();
    const polyhead_variant *const variant = select_variant(kernel_, form_, shape_, &status);
    if (!variant || neutral_row_bytes(kernel_.problem, form_, shape_.needed_keys) > 0 ||
        !fits(fit_of(kernel_.problem, *variant, form_, shape_), kernel_.problem, shape_)) {
        return;
    }
    variant_ = variant;
    bytes_ = cpu_bytes(kernel_, *variant, form_, shape_);
    planned_ = polyhead::runtime::Call::make(room_, kernel_, form_, shape_, nullptr);
}

bool polyhead_plan::check_made_for(const polyhead_kernel *table, polyhead_status *status) const noexcept {
    if (mark_ != ours) {
        return refuse(status, POLYHEAD_BAD_VALUE, "plan: not a plan, or freed, expected one of polyhead_make_plan()");
    }
    return kernel_.same(table) ||
           refuse(status, POLYHEAD_WRONG_OPERATION, "plan: made for another kernel, expected a plan of the kernel that is run");
}

bool polyhead_plan::check_form(const polyhead_args &args, polyhead_status *status) const noexcept {
    for (const TensorRow &row : kernel_.tensors) {
        if (!check_same_form(said_of(row), args.*row.tensor, form_.*row.tensor, status)) {
            return false;
        }
    }
    for (int32_t i = 0; i < kernel_.num_declarations; ++i) {
        if (!check_same_form(kernel_.declarations[i].name, args.expression_tensors[i], expression_tensors_[i], status)) {
            return false;
        }
    }
    for (int32_t i = 0; i < kernel_.num_gradients; ++i) {
        const char *const name = kernel_.gradient_name(kernel_.gradients[i]);
        if (!check_same_form(name, args.expression_gradients[i], expression_gradients_[i], status)) {
            return false;
        }
    }
    return args.device == form_.device || refuse(status, POLYHEAD_WRONG_DEVICE, "device: another one than that of the plan");
}

bool polyhead_plan::check(const polyhead_args &args, const Resources &resources, polyhead_status *status) const noexcept {
    return check_operation(kernel_, args, status) && check_surplus(kernel_, args, status) && check_numbers(kernel_.problem, args, status) &&
           check_form(args, status) && (!has_weights(kernel_.problem) || check_weights(kernel_, args.weights, status)) &&
           (!shape_.ragged() || check_ragged(kernel_, args, shape_, status)) &&
           check_contents(kernel_, problem_, args, resources, shape_, status);
}

bool polyhead_plan::serves(const polyhead_args &args) const noexcept {
    polyhead_status status;
    return variant_ && args.alignment == form_.alignment && same_windows(args, form_) &&
           select_variant(kernel_, args, shape_, &status) == variant_;
}

polyhead_status polyhead_plan::run(const polyhead_args &args, const Resources &resources) const noexcept {
    return run_planned(kernel_, *variant_, *planned_, args, bytes_, resources);
}

polyhead_status polyhead_make_plan(const polyhead_kernel *table, const polyhead_args *given, polyhead_plan **plan) {
    const CallGuard guard;
    const DefinedArithmetic arithmetic;
    if (!plan) {
        return failure(POLYHEAD_NULL_POINTER, "plan: null pointer, expected where the plan goes");
    }
    *plan = nullptr;
    GivenCall call;
    polyhead_status status = success();
    if (!call.read(table, given, &status)) {
        return status;
    }
    Workers workers = call.workers();
    CallMemory memory;
    CallShape shape;
    if (!validate(*call.kernel, *call.args, {&workers, &memory}, &shape, &status)) {
        return status;
    }
    void *const block = new_block(sizeof(polyhead_plan));
    if (!block) {
        refuse(&status, POLYHEAD_OUT_OF_MEMORY, "plan: %zu bytes could not be allocated", sizeof(polyhead_plan));
        return status;
    }
    *plan = new (block) polyhead_plan(*call.kernel, *call.args, shape);
    return status;
}

void polyhead_free_plan(polyhead_plan *plan) {
    const CallGuard guard;
    if (plan) {
        plan->~polyhead_plan();
        free_block(plan);
    }
}

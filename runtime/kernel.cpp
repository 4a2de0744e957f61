// The three questions about one call: run it, which variant would run, how much memory would it take.
#include <cstring>

#include "call.h"
#include "device_call.h"
#include "dispatch.h"
#include "floating_point.h"
#include "kernel_error.h"
#include "needed_keys.h"
#include "neutral_rows.h"
#include "no_keys.h"
#include "optional_tensors.h"
#include "scratch.h"
#include "scratch_bytes.h"
#include "status.h"
#include "tensor_rules.h"
#include "thread_pool.h"
#include "threads.h"
#include "validate.h"
#include "weight_layout.h"

#ifndef POLYHEAD_VERSION
#error "the build defines POLYHEAD_VERSION"
#endif

namespace polyhead::runtime {
namespace {

// Checks everything and chooses the variant; null when the call has nothing to compute. False and a status when it is refused.
bool prepare(const polyhead_kernel *kernel, const polyhead_args *args, CallShape *shape, const polyhead_variant **variant,
             polyhead_status *status) noexcept {
    *variant = nullptr;
    if (!kernel) {
        return refuse(status, POLYHEAD_NULL_POINTER, "kernel: null pointer, expected a kernel");
    }
    if (!args) {
        return refuse(status, POLYHEAD_NULL_POINTER, "args: null pointer, expected arguments");
    }
    if (args->device && !args->device->usable()) {
        *status = device_of_parent(args->device->name);
        return false;
    }
    if (!validate(*kernel, *args, shape, status)) {
        return false;
    }
    if (shape->nothing_to_do()) {
        return true;
    }
    shape->needed_keys = needed_keys(with_defaults(kernel->problem), *args, *shape); // once: another thread may change the lengths
    *variant = select_variant(*kernel, *args, *shape, status);
    return *variant != nullptr;
}

// What a call takes with the present number of threads.
int64_t call_bytes(const polyhead_kernel &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &s) noexcept {
    return scratch_bytes(kernel.problem, variant, args, s, num_threads()) + neutral_row_bytes(kernel.problem, args, s);
}

// A line that names what was built into the kernel, when anything was.
void describe_features(const polyhead_problem &p, Text *text) noexcept {
    const char *last = "", *between = "  with ";
    const auto name = [&](bool exists, const char *feature) {
        if (exists && std::strcmp(feature, last) != 0) { // several tensors may serve one feature
            text->append("%s%s", between, feature);
            last = feature;
            between = ", ";
        }
    };
    if (p.op != POLYHEAD_LINEAR) {
        name(p.causal != POLYHEAD_NOT_CAUSAL, "causal mask");
        name(p.window != 0, "window");
        name(p.softcap != 0, "softcap");
        for (const OptionalTensor &row : optional_inputs) {
            name(row.exists(p), row.feature);
        }
        name(p.expression && p.expression[0], "expression");
        for (const OptionalTensor &row : optional_outputs) {
            name(row.exists(p), row.feature);
        }
    }
    text->append("%s", *last ? "\n" : "");
}

void describe_call(const polyhead_kernel &kernel, const polyhead_args &args, const CallShape &s, Text *text) noexcept {
    const polyhead_problem &p = kernel.problem;
    text->append("%s: %s", kernel.name, op_name(p.op));
    if (p.op == POLYHEAD_LINEAR) {
        text->append(", %lld rows", static_cast<long long>(s.seq_len_q));
    } else {
        text->append(", batch %lld, seq_len_q %lld, seq_len_kv %lld", static_cast<long long>(s.batch), static_cast<long long>(s.seq_len_q),
                     static_cast<long long>(s.seq_len_kv));
    }
    args.device ? text->append(", on %s\n", args.device->name) : text->append(", %d threads\n", num_threads());
    describe_features(p, text);
}

// Runs a variant on the CPU. All memory that the kernel needs is allocated before it starts: this thread has the shared part and its own
// part, each helper of the pool has its own part.
polyhead_status run_on_cpu(const polyhead_kernel &kernel, const polyhead_variant &variant, const polyhead_args &args,
                           const CallShape &shape) noexcept {
    constexpr int64_t most = int64_t(1) << 56; // what follows does not overflow
    polyhead_status status = success();
    const ThreadsInUse threads;
    CallContext context(threads.pool());
    const int64_t bytes = scratch_bytes(kernel.problem, variant, args, shape, threads.threads());
    const int64_t of_thread = thread_scratch_bytes(variant, shape);
    const bool possible = bytes >= 0 && bytes < most && of_thread < most;
    const int64_t here = possible ? bytes - (threads.threads() - 1) * of_thread : 0;
    const HeldScratch scratch(&context, possible ? static_cast<size_t>(here) + Scratch::overhead : SIZE_MAX);
    if (!scratch.held() || (threads.pool() && !threads.pool()->hold_scratch(static_cast<size_t>(of_thread) + Scratch::overhead))) {
        refuse(&status, POLYHEAD_OUT_OF_MEMORY, "kernel %s: %lld bytes of scratch memory could not be allocated", kernel.name,
               static_cast<long long>(bytes));
        return status;
    }
    const int result = Call(kernel, args, shape, &context).run(variant);
    if (result != 0) {
        kernel_failure(kernel.name, result, context, &status);
    }
    return status;
}

} // namespace
} // namespace polyhead::runtime

polyhead_status polyhead_run(const polyhead_kernel *kernel, const polyhead_args *args) {
    using namespace polyhead::runtime;
    const DefinedArithmetic arithmetic;
    CallShape shape;
    polyhead_status status = success();
    const polyhead_variant *variant = nullptr;
    if (!prepare(kernel, args, &shape, &variant, &status) || !variant) {
        return status;
    }
    if (shape.no_keys()) {
        answer_without_keys(kernel->problem, *args, &status);
        return status;
    }
    NeutralRows rows;
    args = rows.complete(*kernel, args, shape, &status);
    if (!args) {
        return status;
    }
    return args->device ? run_on_device(*kernel, *variant, *args, shape) : run_on_cpu(*kernel, *variant, *args, shape);
}

polyhead_status polyhead_explain(const polyhead_kernel *kernel, const polyhead_args *args, char *text, size_t text_bytes) {
    using namespace polyhead::runtime;
    const DefinedArithmetic arithmetic;
    Text out(text, text_bytes);
    CallShape shape;
    polyhead_status status = success();
    const polyhead_variant *chosen = nullptr;
    if (!prepare(kernel, args, &shape, &chosen, &status)) {
        out.append("refused: %s\n", status.message);
        return status;
    }
    describe_call(*kernel, *args, shape, &out);
    if (!chosen) {
        out.append("  runs nothing: there is nothing to compute\n");
        return status;
    }
    if (shape.no_keys()) {
        out.append("  runs nothing: there are no keys, every row is an empty row\n");
        return status;
    }
    for (const polyhead_variant *v = kernel->variants; v != chosen; ++v) {
        out.append("  not %s: ", v->name);
        eligible(*kernel, *v, *args, shape, &out);
        out.append("\n");
    }
    out.append("  runs %s: target %s, scratch %lld bytes, tiling %s\n", chosen->name, chosen->target ? chosen->target : "unknown",
               static_cast<long long>(call_bytes(*kernel, *chosen, *args, shape)), chosen->tiling ? chosen->tiling : "unknown");
    return status;
}

int64_t polyhead_scratch_bytes(const polyhead_kernel *kernel, const polyhead_args *args, polyhead_status *status) {
    using namespace polyhead::runtime;
    const DefinedArithmetic arithmetic;
    CallShape shape;
    polyhead_status prepared = success();
    const polyhead_variant *variant = nullptr;
    prepare(kernel, args, &shape, &variant, &prepared);
    if (status) {
        *status = prepared;
    }
    return variant ? call_bytes(*kernel, *variant, *args, shape) : 0;
}

const char *polyhead_version(void) {
    return POLYHEAD_VERSION;
}

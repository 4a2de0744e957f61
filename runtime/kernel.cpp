// The three questions about one call: run it, which variant would run, how much memory would it take.
#include <cstring>

#include "../contract/tensors.h"
#include "../contract/verbose.h"
#include "../contract/weight_layout.h"
#include "call/call_guard.h"
#include "call/call_in_parts.h"
#include "call/cpu_call.h"
#include "call/device.h"
#include "call/device_call.h"
#include "call/dispatch.h"
#include "call/given_call.h"
#include "call/needed_keys.h"
#include "call/neutral_rows.h"
#include "call/no_keys.h"
#include "call/planned_call.h"
#include "call/resources.h"
#include "call/scratch_bytes.h"
#include "call/told_call.h"
#include "rules/validate.h"
#include "status.h"
#include "threads/floating_point.h"
#include "threads/threads.h"

#ifndef POLYHEAD_VERSION
#error "the build defines POLYHEAD_VERSION"
#endif

namespace polyhead::runtime {
namespace {

// Chooses the variant of a checked call with something to compute; null and a status when there is none. Null also for packed tokens, of
// which each part has its own.
const polyhead_variant *choose(const KernelTable &kernel, const polyhead_args &args, CallShape *shape, polyhead_status *status) noexcept {
    if (shape->ragged()) {
        return nullptr;
    }
    shape->needed_keys = needed_keys(kernel, args, *shape); // once: another thread may change the lengths
    return select_variant(kernel, args, *shape, status);
}

// What a checked call takes beside what it holds. Of a call on a device, what it takes there.
int64_t bytes_of_call(const KernelTable &kernel, const polyhead_variant *variant, const polyhead_args &args, const CallShape &s,
                      const CallInParts &parts, Workers &workers) noexcept {
    if (variant && s.no_pairs()) {
        return static_cast<int64_t>(bytes_without_keys(kernel.problem, args));
    }
    if (!variant || parts.needed()) {
        return parts.bytes(workers.count());
    }
    const int64_t bytes =
        args.device ? scratch_bytes(kernel.problem, *variant, args, s, 1) : cpu_bytes(kernel, *variant, args, s).of(workers.count());
    return bytes == INT64_MAX ? bytes : bytes + neutral_row_bytes(kernel.problem, args, s.needed_keys);
}

int64_t all_bytes(const KernelTable &kernel, const polyhead_variant *variant, const polyhead_args &args, const CallShape &s,
                  const CallInParts &parts, const Resources &resources) noexcept {
    const int64_t bytes = bytes_of_call(kernel, variant, args, s, parts, *resources.workers);
    if (args.device) {
        return bytes;
    }
    resources.memory->foresee(bytes);
    return resources.memory->most();
}

// A line that names what was built into the kernel, when anything was.
void describe_features(const KernelTable &kernel, Text *text) noexcept {
    const polyhead_problem &p = kernel.problem;
    const char *last = "", *between = "  with ";
    const auto name = [&](bool exists, const char *feature) {
        if (exists && std::strcmp(feature, last) != 0) { // several tensors may serve one feature
            text->append("%s%s", between, feature);
            last = feature;
            between = ", ";
        }
    };
    if (attends(p)) {
        name(p.causal != POLYHEAD_NOT_CAUSAL, "causal mask");
        name(p.window != 0, "window");
        for (const NumberRow &row : numbers) {
            name(row.given && takes(p, row), row.name);
        }
        for (const TensorRow &row : kernel.tensors &option_rows) {
            name(true, row.feature);
        }
        name(p.expression && p.expression[0], "expression");
        for (const TensorRow &row : kernel.tensors &result_rows) {
            name(row.feature && !row.updated, row.feature); // lengths of a cache named it
        }
        for (int32_t i = 0; i < kernel.num_gradients; ++i) {
            name(true, kernel.gradient_name(kernel.gradients[i]));
        }
    }
    text->append("%s", *last ? "\n" : "");
}

void describe_call(const KernelTable &kernel, const polyhead_args &args, const CallShape &s, Workers &workers, Text *text) noexcept {
    const polyhead_problem &p = kernel.problem;
    text->append("%s: %s", kernel.name, op_name(p.op));
    if (s.ragged()) {
        text->append(", %lld sequences, %lld %s, %lld %s", static_cast<long long>(s.batch), static_cast<long long>(s.seq_len_q),
                     s.packed_q ? "queries" : "queries each", static_cast<long long>(s.seq_len_kv), s.packed_kv ? "keys" : "keys each");
    } else if (!attends(p)) {
        text->append(", %lld rows", static_cast<long long>(s.seq_len_q));
    } else {
        text->append(", batch %lld, seq_len_q %lld, seq_len_kv %lld", static_cast<long long>(s.batch), static_cast<long long>(s.seq_len_q),
                     static_cast<long long>(s.seq_len_kv));
    }
    if (args.device) {
        text->append(", on %s\n", args.device->name);
    } else {
        text->append(workers.of_caller() ? ", executor of width %d\n" : ", %d threads\n", workers.count());
    }
    describe_features(kernel, text);
}

polyhead_status run_completed(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                              const Resources &resources) noexcept {
    polyhead_status status = success();
    NeutralRows rows;
    if (!rows.make(kernel.problem, args, shape.needed_keys, resources.memory, &status)) {
        return status;
    }
    polyhead_args completed;
    const polyhead_args *complete = &args;
    if (rows.any()) {
        completed = args;
        rows.put_into(&completed, shape.needed_keys);
        complete = &completed;
    }
    return args.device ? run_on_device(kernel, variant, *complete, shape) : run_on_cpu(kernel, variant, *complete, shape, resources);
}

polyhead_status run_variant(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                            const Resources &resources) noexcept {
    return run_entered(args.device, [&] { return run_completed(kernel, variant, args, shape, resources); });
}

polyhead_status run_without_keys(const polyhead_problem &problem, const polyhead_args &args, CallMemory *memory) noexcept {
    polyhead_status status = success();
    const size_t bytes = bytes_without_keys(problem, args);
    CallBlock block;
    if (block.take(memory, static_cast<int64_t>(bytes))) {
        answer_without_keys(problem, args, block.get(), &status);
    } else {
        refuse(&status, POLYHEAD_OUT_OF_MEMORY, "%zu bytes for an answer without keys could not be allocated", bytes);
    }
    return status;
}

polyhead_status run_call(const GivenCall &call, const Resources &resources) noexcept {
    const KernelTable &kernel = *call.kernel;
    const polyhead_args &args = *call.args;
    CallShape shape;
    polyhead_status status = success();
    if (args.plan) {
        if (!args.plan->check(args, resources, &status)) {
            return status;
        }
        if (args.plan->serves(args)) {
            return args.plan->run(args, resources);
        }
        shape = args.plan->shape();
    } else if (!validate(kernel, args, resources, &shape, &status)) {
        return status;
    }
    if (shape.nothing_to_do()) {
        return status;
    }
    const polyhead_variant *variant = choose(kernel, args, &shape, &status);
    if (variant && shape.no_pairs()) {
        return run_without_keys(kernel.problem, args, resources.memory);
    }
    CallInParts parts(kernel, args, shape, resources);
    if (status.code != POLYHEAD_OK || !parts.prepare(variant, &status)) {
        return status;
    }
    return !variant || parts.needed() ? parts.run() : run_variant(kernel, *variant, args, shape, resources);
}

polyhead_status run_given(const polyhead_kernel *table, const polyhead_args *args) noexcept {
    const CallGuard guard;
    const DefinedArithmetic arithmetic;
    GivenCall call;
    polyhead_status status = success();
    if (!call.read(table, args, &status)) {
        return status;
    }
    Workers workers = call.workers();
    CallMemory memory(call.args->scratch, call.args->scratch_bytes);
    status = run_call(call, {&workers, &memory});
    if (memory.too_small()) {
        polyhead_status otherwise = success(); // what is refused with any memory is said first
        const int64_t expected = polyhead_scratch_bytes(table, args, &otherwise);
        if (otherwise.code == POLYHEAD_OK) {
            say_expected_scratch(call.args->scratch_bytes, expected, &status);
        } else {
            status = otherwise;
        }
    }
    say_fault(workers, &status);
    return status;
}

} // namespace
} // namespace polyhead::runtime

polyhead_status polyhead_run(const polyhead_kernel *table, const polyhead_args *args) {
    using namespace polyhead::runtime;
    return polyhead::contract::is_verbose ? run_and_tell(table, args, run_given) : run_given(table, args);
}

polyhead_status polyhead_explain(const polyhead_kernel *table, const polyhead_args *args, char *text, size_t text_bytes) {
    using namespace polyhead::runtime;
    const CallGuard guard;
    const DefinedArithmetic arithmetic;
    Text out(text, text_bytes);
    const auto refused = [&](const polyhead_status &status) {
        out.append("refused: %s\n", status.message);
        return status;
    };
    GivenCall call;
    polyhead_status status = success();
    if (!call.read(table, args, &status)) {
        return refused(status);
    }
    const KernelTable &kernel = *call.kernel;
    Workers workers = call.workers();
    CallMemory memory;
    CallShape shape;
    const Resources resources{&workers, &memory};
    if (!validate(kernel, *call.args, resources, &shape, &status)) {
        return refused(status);
    }
    const polyhead_variant *chosen = shape.nothing_to_do() ? nullptr : choose(kernel, *call.args, &shape, &status);
    CallInParts parts(kernel, *call.args, shape, resources);
    const bool runs = !shape.nothing_to_do() && !(chosen && shape.no_pairs());
    if (status.code != POLYHEAD_OK || (runs && !parts.prepare(chosen, &status))) {
        return refused(status);
    }
    describe_call(kernel, *call.args, shape, workers, &out);
    if (!runs) {
        out.append("  runs nothing: there %s\n", shape.nothing_to_do() ? "is nothing to compute"
                                                 : shape.backward      ? "is nothing to add up, gradients are 0"
                                                                       : "are no keys, every row is an empty row");
        return status;
    }
    const int64_t bytes = all_bytes(kernel, chosen, *call.args, shape, parts, resources);
    if (!chosen || parts.needed()) {
        parts.describe(bytes, &out);
        return status;
    }
    for (int32_t i = 0; &kernel.variants[i] != chosen; ++i) {
        out.append("  not %s: ", kernel.variants[i].name);
        eligible(kernel, kernel.variants[i], *call.args, shape, &out);
        out.append("\n");
    }
    out.append("  runs %s: target %s, scratch %lld bytes, tiling %s\n", chosen->name, chosen->target ? chosen->target : "unknown",
               static_cast<long long>(bytes), chosen->tiling ? chosen->tiling : "unknown");
    return status;
}

int64_t polyhead_scratch_bytes(const polyhead_kernel *table, const polyhead_args *args, polyhead_status *status) {
    using namespace polyhead::runtime;
    const CallGuard guard;
    const DefinedArithmetic arithmetic;
    GivenCall call;
    polyhead_status found = success();
    int64_t bytes = 0;
    if (call.read(table, args, &found)) {
        Workers workers = call.workers();
        CallMemory memory; // held as a call would hold the caller's
        CallShape shape;
        const Resources resources{&workers, &memory};
        if (validate(*call.kernel, *call.args, resources, &shape, &found) && !shape.nothing_to_do()) {
            const polyhead_variant *variant = choose(*call.kernel, *call.args, &shape, &found);
            CallInParts parts(*call.kernel, *call.args, shape, resources);
            if (found.code == POLYHEAD_OK && ((variant && shape.no_pairs()) || parts.prepare(variant, &found))) {
                bytes = all_bytes(*call.kernel, variant, *call.args, shape, parts, resources);
            }
        }
    }
    if (status) {
        *status = found;
    }
    return bytes;
}

const char *polyhead_version(void) {
    return POLYHEAD_VERSION;
}

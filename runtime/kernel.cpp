// The three questions about one call: run it, which variant would run, how much memory would it take.
#include <cstring>

#include "../contract/tensors.h"
#include "../contract/weight_layout.h"
#include "call/call_guard.h"
#include "call/call_in_parts.h"
#include "call/cpu_call.h"
#include "call/device.h"
#include "call/device_call.h"
#include "call/dispatch.h"
#include "call/needed_keys.h"
#include "call/neutral_rows.h"
#include "call/no_keys.h"
#include "call/scratch_bytes.h"
#include "memory/memory.h"
#include "rules/served.h"
#include "rules/validate.h"
#include "status.h"
#include "threads/floating_point.h"
#include "threads/threads.h"

#ifndef POLYHEAD_VERSION
#error "the build defines POLYHEAD_VERSION"
#endif

namespace polyhead::runtime {
namespace {

// Checks the whole call. False and a status when it is refused.
// *args: those of the caller, or as this library knows them in *room.
bool check(const polyhead_kernel *table, KernelTable *kernel, const polyhead_args **args, polyhead_args *room, CallShape *shape,
           polyhead_status *status) noexcept {
    if (!table) {
        return refuse(status, POLYHEAD_NULL_POINTER, "kernel: null pointer, expected a kernel");
    }
    if (!*args) {
        return refuse(status, POLYHEAD_NULL_POINTER, "args: null pointer, expected arguments");
    }
    *args =
        served(**args, room, {"arguments", "polyhead_args", "begin them with polyhead_args_of() and compile with the headers of"}, status);
    if (!*args || !kernel->read(table, status)) {
        return false;
    }
    if ((*args)->device && !(*args)->device->usable()) {
        *status = device_of_parent((*args)->device->name);
        return false;
    }
    return validate(*kernel, **args, shape, status);
}

// Chooses the variant of a checked call with something to compute; null and a status when there is none. Null also for packed tokens, of
// which each part has its own.
const polyhead_variant *choose(const KernelTable &kernel, const polyhead_args &args, CallShape *shape, polyhead_status *status) noexcept {
    if (shape->ragged()) {
        return nullptr;
    }
    shape->needed_keys = needed_keys(kernel, args, *shape); // once: another thread may change the lengths
    return select_variant(kernel, args, *shape, status);
}

// What a call takes with the present number of threads.
int64_t call_bytes(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &s) noexcept {
    return scratch_bytes(kernel.problem, variant, args, s, num_threads()) + neutral_row_bytes(kernel.problem, args, s.needed_keys);
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
    }
    text->append("%s", *last ? "\n" : "");
}

void describe_call(const KernelTable &kernel, const polyhead_args &args, const CallShape &s, Text *text) noexcept {
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
    args.device ? text->append(", on %s\n", args.device->name) : text->append(", %d threads\n", num_threads());
    describe_features(kernel, text);
}

polyhead_status run_variant(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args,
                            const CallShape &shape) noexcept {
    polyhead_status status = success();
    NeutralRows rows;
    if (!rows.make(kernel.problem, args, shape.needed_keys, &status)) {
        return status;
    }
    polyhead_args completed;
    const polyhead_args *complete = &args;
    if (rows.any()) {
        completed = args;
        rows.put_into(&completed, shape.needed_keys);
        complete = &completed;
    }
    return args.device ? run_on_device(kernel, variant, *complete, shape) : run_on_cpu(kernel, variant, *complete, shape);
}

polyhead_status run_without_keys(const polyhead_problem &problem, const polyhead_args &args) noexcept {
    polyhead_status status = success();
    const size_t bytes = bytes_without_keys(problem, args);
    void *const memory = take_memory(bytes);
    if (memory) {
        answer_without_keys(problem, args, memory, &status);
    } else {
        refuse(&status, POLYHEAD_OUT_OF_MEMORY, "%zu bytes for an answer without keys could not be allocated", bytes);
    }
    give_memory(memory);
    return status;
}

} // namespace
} // namespace polyhead::runtime

polyhead_status polyhead_run(const polyhead_kernel *table, const polyhead_args *args) {
    using namespace polyhead::runtime;
    const CallGuard guard;
    const DefinedArithmetic arithmetic;
    KernelTable kernel;
    polyhead_args room;
    CallShape shape;
    polyhead_status status = success();
    if (!check(table, &kernel, &args, &room, &shape, &status) || shape.nothing_to_do()) {
        return status;
    }
    const polyhead_variant *variant = choose(kernel, *args, &shape, &status);
    if (variant && shape.no_keys()) {
        return run_without_keys(kernel.problem, *args);
    }
    CallInParts parts(kernel, *args, shape);
    if (status.code != POLYHEAD_OK || !parts.prepare(variant, &status)) {
        return status;
    }
    return parts.needed() ? parts.run() : run_variant(kernel, *variant, *args, shape);
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
    KernelTable kernel;
    polyhead_args room;
    CallShape shape;
    polyhead_status status = success();
    if (!check(table, &kernel, &args, &room, &shape, &status)) {
        return refused(status);
    }
    const polyhead_variant *chosen = shape.nothing_to_do() ? nullptr : choose(kernel, *args, &shape, &status);
    CallInParts parts(kernel, *args, shape);
    const bool runs = !shape.nothing_to_do() && !(chosen && shape.no_keys());
    if (status.code != POLYHEAD_OK || (runs && !parts.prepare(chosen, &status))) {
        return refused(status);
    }
    describe_call(kernel, *args, shape, &out);
    if (!runs) {
        out.append("  runs nothing: there %s\n",
                   shape.nothing_to_do() ? "is nothing to compute" : "are no keys, every row is an empty row");
        return status;
    }
    if (parts.needed()) {
        parts.describe(num_threads(), &out);
        return status;
    }
    for (int32_t i = 0; &kernel.variants[i] != chosen; ++i) {
        out.append("  not %s: ", kernel.variants[i].name);
        eligible(kernel, kernel.variants[i], *args, shape, &out);
        out.append("\n");
    }
    out.append("  runs %s: target %s, scratch %lld bytes, tiling %s\n", chosen->name, chosen->target ? chosen->target : "unknown",
               static_cast<long long>(call_bytes(kernel, *chosen, *args, shape)), chosen->tiling ? chosen->tiling : "unknown");
    return status;
}

int64_t polyhead_scratch_bytes(const polyhead_kernel *table, const polyhead_args *args, polyhead_status *status) {
    using namespace polyhead::runtime;
    const CallGuard guard;
    const DefinedArithmetic arithmetic;
    KernelTable kernel;
    polyhead_args room;
    CallShape shape;
    polyhead_status found = success();
    int64_t bytes = 0;
    if (check(table, &kernel, &args, &room, &shape, &found) && !shape.nothing_to_do()) {
        const polyhead_variant *variant = choose(kernel, *args, &shape, &found);
        CallInParts parts(kernel, *args, shape);
        if (found.code == POLYHEAD_OK && !(variant && shape.no_keys()) && parts.prepare(variant, &found)) {
            bytes = parts.needed() ? parts.scratch_bytes(num_threads()) : call_bytes(kernel, *variant, *args, shape);
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

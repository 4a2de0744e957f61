// Planned variants become code here.
#include "compile.h"

#include <algorithm>
#include <exception>

#include <Halide.h>

#include "../contract/dtypes.h"
#include "../contract/problem.h"
#include "../plan/language/expression.h"
#include "../runtime/call_context.h"
#include "compiler_warnings.h"
#include "halide_target.h"
#include "kernel_generator.h"
#include "lowered_text.h"
#include "lowering.h"
#include "shared_memory.h"
#include "task_scratch.h"

namespace polyhead::gen {

namespace {

// What is read off the code while it is compiled.
void read_lowered(const Halide::Internal::Stmt &lowered, VariantFacts *facts) {
    facts->scratch.per_thread = task_scratch(lowered);
    facts->shared_bytes = shared_memory(lowered);
}

VariantFacts facts_of(const Problem &p, const VariantPlan &plan, const Target &target) {
    VariantFacts facts;
    const Machine machine = machine_of(target);
    const Product *tiles = plan.tiling.amx != 0 ? machine.core_product(p.dtype) : nullptr;
    facts.cpu_features = machine.cpu_features | (tiles ? tiles->required : 0);
    facts.api = machine.device.api;
    facts.capability = machine.capability;
    if (contract::by_heads(p) && plan.tiling.load_width > 1) {
        facts.alignment = plan.tiling.load_width * contract::dtype_bytes(p.dtype);
    }
    facts.scratch = scratch_terms(*plan.frame, p, plan.tiling, machine);
    return facts;
}

bool reads_bytes(const Problem &p) {
    Expression expression;
    if (p.expression && p.expression[0]) {
        Expression::parse(p.expression, "expression", &expression); // a refusal is told elsewhere
    }
    const auto &tensors = expression.tensors();
    return p.mask == POLYHEAD_BOOLEAN_MASK ||
           std::any_of(tensors.begin(), tensors.end(), [](const ExpressionTensor &t) { return t.dtype == POLYHEAD_BOOL; });
}

// Asserts stay on: a failed allocation is a status, not a crash. Shapes are validated before the call, so no bounds query. The user
// context is the call to the runtime: its memory, its device, the text of its error.
Halide::Target kernel_target(const Target &given, const Problem &p) {
    using Feature = Halide::Target::Feature;
    Halide::Target target = halide_target(given);
    // Halide divides by a constant through a wider product; the key/value head of a head is such a quotient.
    const int group_size = contract::group_size_of(p);
    if (target.has_feature(Feature::Vulkan) && (group_size & (group_size - 1)) != 0) {
        target.set_feature(Feature::VulkanInt64);
    }
    if (target.has_feature(Feature::Vulkan) && reads_bytes(p)) {
        target.set_feature(Feature::VulkanInt8);
    }
    target.set_feature(Feature::NoBoundsQuery);
    target.set_feature(Feature::UserContext);
    return target;
}

struct InProcessCode {
    Halide::Callable callable;
    size_t num_arguments;
    runtime::KernelCalls calls;
};

// The user context of code compiled in process, and that of the call, which the runtime knows.
struct InProcessContext : Halide::JITUserContext {
    const runtime::KernelCalls *calls;
    void *call;

    static InProcessContext *of(Halide::JITUserContext *user) { return static_cast<InProcessContext *>(user); }
};

using InProcessTask = int (*)(Halide::JITUserContext *, int, uint8_t *);

struct InProcessLoop {
    Halide::JITUserContext *user;
    InProcessTask task;
    uint8_t *closure;
};

int run_loop(Halide::JITUserContext *user, InProcessTask task, int first, int count, uint8_t *closure) {
    InProcessLoop loop{user, task, closure};
    const auto run_task = [](void *, int index, uint8_t *state) {
        const auto *of = reinterpret_cast<const InProcessLoop *>(state);
        return of->task(of->user, index, of->closure);
    };
    const InProcessContext *context = InProcessContext::of(user);
    return context->calls->do_par_for(context->call, run_task, first, count, reinterpret_cast<uint8_t *>(&loop));
}

// Memory, threads and the text of errors are those of the call, as in code that is compiled ahead of time.
int call_in_process(void *context, void **argv) {
    const auto *code = static_cast<const InProcessCode *>(context);
    InProcessContext user_context;
    user_context.calls = &code->calls;
    user_context.call = *static_cast<void **>(argv[0]);
    user_context.handlers.custom_malloc = [](Halide::JITUserContext *user, size_t bytes) {
        return InProcessContext::of(user)->calls->malloc(InProcessContext::of(user)->call, bytes);
    };
    user_context.handlers.custom_free = [](Halide::JITUserContext *user, void *block) {
        InProcessContext::of(user)->calls->free(InProcessContext::of(user)->call, block);
    };
    user_context.handlers.custom_do_par_for = run_loop;
    user_context.handlers.custom_error = [](Halide::JITUserContext *user, const char *text) {
        if (runtime::CallContext *call = runtime::CallContext::of(InProcessContext::of(user)->call)) {
            call->report(text);
        }
    };
    Halide::JITUserContext *const user = &user_context;
    const void *arguments[64] = {&user};
    std::copy(argv + 1, argv + 1 + code->num_arguments, arguments + 1);
    return code->callable.call_argv_fast(code->num_arguments + 1, arguments);
}

} // namespace

CompiledVariant compile_variant(const Problem &p, const VariantPlan &plan, const std::string &symbol, const std::string &object_path,
                                const std::vector<std::string> &extra_outputs, std::string *error) {
    CompiledVariant out;
    Target target;
    error->clear();
    if (!parse_target(plan.target, &target, error)) {
        return out;
    }
    static_cast<VariantFacts &>(out) = facts_of(p, plan, target);
    if (plan.frame->schedule_version() == 0 || !plan.autoscheduler.empty()) {
        *error = "the frame plain and Halide's autoschedulers are only for comparisons in process, "
                 "expected another frame and no autoscheduler";
        return out;
    }
    out.symbol = symbol;
    out.object_path = object_path;
    try {
        const CompilerWarnings warnings;
        const Lowering lowering;
        const Halide::Target full = kernel_target(target, p).with_feature(Halide::Target::NoRuntime);
        Halide::Module module = kernel_generator(p, plan, full)->build_module(symbol);
        std::map<Halide::OutputFileType, std::string> files = {{Halide::OutputFileType::object, object_path}};
        const std::string stem = object_path.substr(0, object_path.rfind('.'));
        for (const std::string &extra : extra_outputs) {
            if (extra == "stmt") {
                files[Halide::OutputFileType::stmt] = stem + ".stmt";
            } else if (extra == "assembly") {
                files[Halide::OutputFileType::assembly] = stem + ".s";
            }
        }
        module.compile(files);
        *error = warnings.sentence();
        read_lowered(lowering.statement(), &out);
    } catch (...) {
        *error = thrown_sentence();
    }
    return out;
}

std::string lower_variant(const Problem &p, const VariantPlan &plan, std::string *error) {
    Target target;
    if (!parse_target(plan.target, &target, error)) {
        return "";
    }
    try {
        const CompilerWarnings warnings;
        const Lowering lowering;
        const Halide::Target full = kernel_target(target, p).with_feature(Halide::Target::NoRuntime);
        const Halide::Module module = kernel_generator(p, plan, full)->build_module("polyhead_kernel");
        *error = warnings.sentence();
        return lowered_text(lowering.statement(), module);
    } catch (...) {
        *error = thrown_sentence();
    }
    return "";
}

InProcessVariant compile_in_process(const Problem &p, const VariantPlan &plan, const runtime::KernelCalls &calls, std::string *error) {
    InProcessVariant out;
    Target target;
    error->clear();
    if (!parse_target(plan.target, &target, error)) {
        return out;
    }
    static_cast<VariantFacts &>(out) = facts_of(p, plan, target);
    try {
        const CompilerWarnings warnings;
        const Lowering lowering;
        auto generator = kernel_generator(
            p, plan, kernel_target(target, p).with_feature(Halide::Target::JIT).without_feature(Halide::Target::UserContext));
        auto compiled = std::make_shared<InProcessCode>();
        const std::map<std::string, Halide::JITExtern> externs = {{"polyhead_amx_linear", Halide::JITExtern(calls.amx_linear)},
                                                                  {"polyhead_amx_scores", Halide::JITExtern(calls.amx_scores)},
                                                                  {"polyhead_amx_values", Halide::JITExtern(calls.amx_values)},
                                                                  {"polyhead_fetch", Halide::JITExtern(calls.fetch)},
                                                                  {"polyhead_fetch_pairs", Halide::JITExtern(calls.fetch_pairs)}};
        compiled->callable = generator->compile_to_callable(nullptr, &externs);
        compiled->num_arguments = generator->arginfos().size();
        compiled->calls = calls;
        read_lowered(lowering.statement(), &out);
        out.context = compiled;
        out.call = call_in_process;
        *error = warnings.sentence();
    } catch (...) {
        *error = thrown_sentence();
    }
    return out;
}

std::string compile_runtime(const std::string &path, const std::string &text) {
    Target target;
    std::string error;
    if (!parse_target(text, &target, &error)) {
        return error;
    }
    try {
        Halide::compile_standalone_runtime({{Halide::OutputFileType::object, path}}, halide_target(target));
    } catch (...) {
        return thrown_sentence();
    }
    return "";
}

std::string thrown_sentence() {
    std::string text = "the compiler failed with an unknown exception";
    try {
        throw;
    } catch (const Halide::Error &error) {
        text = error.what();
    } catch (const std::exception &exception) {
        text = exception.what();
    } catch (...) {
        return text;
    }
    std::replace(text.begin(), text.end(), '\n', ' ');
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
}

} // namespace polyhead::gen

// Variants are planned and compiled here.
#include "compile.h"

#include <algorithm>
#include <exception>
#include <sstream>

#include <Halide.h>

#include "../runtime/call_context.h"
#include "../schedules/apply.h"
#include "../schedules/scratch_terms.h"
#include "../schedules/task_scratch.h"
#include "compiler_warnings.h"
#include "plan_records.h"
#include "target.h"

namespace polyhead::gen {

using Halide::Target;

namespace {

// Decode up to here through head lanes: beyond it a tile of queries wastes less than reading the keys lane by lane.
constexpr int head_lanes_max_seq_len_q = 16;

// What a thread takes is read off the code while it is compiled.
VariantFacts facts_of(const Problem &p, const VariantPlan &plan, const Target &target) {
    VariantFacts facts;
    const Machine machine = machine_of(target);
    facts.cpu_features = cpu_features_of(target);
    facts.api = machine.api;
    facts.capability = machine.capability;
    if (p.op == POLYHEAD_SDPA && plan.tiling.load_width > 1) {
        facts.alignment = plan.tiling.load_width * (p.dtype == POLYHEAD_F32 ? 4 : 2);
    }
    facts.scratch = scratch_terms(plan.frame, p, plan.tiling, machine);
    return facts;
}

Halide::Internal::AbstractGeneratorPtr make_generator(const Problem &p, const VariantPlan &plan, const Target &target) {
    auto generator = Halide::Internal::GeneratorRegistry::create("polyhead_kernel", Halide::GeneratorContext(target));
    generator->set_generatorparam_value("frame", plan.frame);
    generator->set_generatorparam_value("scheduled_by", plan.autoscheduler);
    generator->set_generatorparam_value("expression", std::string(p.expression ? p.expression : ""));
#define POLYHEAD_SET(name) generator->set_generatorparam_value(#name, std::to_string(p.name));
    POLYHEAD_PROBLEM_FIELDS(POLYHEAD_SET)
#undef POLYHEAD_SET
#define POLYHEAD_SET(name, meaning, ...) generator->set_generatorparam_value(#name, std::to_string(plan.tiling.name));
    POLYHEAD_TILING_KNOBS(POLYHEAD_SET)
#undef POLYHEAD_SET
    return generator;
}

// Asserts stay on: a failed allocation is a status, not a crash. Shapes are validated before the call, so no bounds query. The user
// context is the call to the runtime: its memory, its device, the text of its error.
Target kernel_target(Target target, const Problem &p) {
    // Halide divides by a constant through a wider product; the key/value head of a head is such a quotient.
    const int group_size = p.op == POLYHEAD_LINEAR ? 1 : p.num_heads / p.num_kv_heads;
    if (target.has_feature(Target::Vulkan) && (group_size & (group_size - 1)) != 0) {
        target.set_feature(Target::VulkanInt64);
    }
    target.set_feature(Target::NoBoundsQuery);
    target.set_feature(Target::UserContext);
    return target;
}

// Overrides: the words that are no knobs, and the tiling.
struct Overrides {
    std::string frame, autoscheduler, autoscheduler_fields;
    Tiling tiling;
};

std::string read_overrides(const std::string &text, Overrides *overrides) {
    std::istringstream words(text);
    std::string word, knobs;
    auto starts = [&word](const char *with) { return word.rfind(with, 0) == 0; };
    while (words >> word) {
        const std::string value = word.substr(std::min(word.find('='), word.size() - 1) + 1);
        if (starts("frame=")) {
            overrides->frame = value;
        } else if (starts("autoscheduler=")) {
            overrides->autoscheduler = value;
        } else if (starts("autoscheduler.")) {
            overrides->autoscheduler_fields += " " + word.substr(word.find('.') + 1);
        } else {
            knobs += word + " ";
        }
    }
    return overrides->tiling.set_all(knobs);
}

struct InProcessCode {
    Halide::Callable callable;
    size_t num_arguments;
};

// What code compiled in process takes as user context, and the call that it stands for.
struct InProcessContext : Halide::JITUserContext {
    runtime::CallContext *call;
};

int call_in_process(void *context, void **argv) {
    InProcessContext user_context;
    user_context.call = runtime::CallContext::of(*static_cast<void **>(argv[0]));
    user_context.handlers.custom_error = [](Halide::JITUserContext *user, const char *text) {
        if (runtime::CallContext *call = static_cast<InProcessContext *>(user)->call) {
            call->report(text);
        }
    };
    Halide::JITUserContext *const user = &user_context;
    const auto *code = static_cast<const InProcessCode *>(context);
    const void *arguments[64] = {&user};
    std::copy(argv + 1, argv + 1 + code->num_arguments, arguments + 1);
    return code->callable.call_argv_fast(code->num_arguments + 1, arguments);
}

// `here`: this target has a variant already.
bool wanted_by_default(const std::string &frame, const Problem &p, const Machine &machine, bool here) {
    if (frame == "head_lanes") {
        return p.seq_len_q <= head_lanes_max_seq_len_q;
    }
    if (frame == "plain") {
        return false;
    }
    if (frame == "query_lanes") {
        return !here || p.seq_len_q == 0; // a fixed length may be served by head lanes
    }
    // Lanes are what makes thread rows fast; without them every key is read once per row.
    return frame == "thread_rows" ? machine.warp() > 1 : frame != "block_tiles" || !here;
}

// Tensors whose addresses and strides allow it are read four elements at a time, by a variant of their own.
bool wide_loads_pay(const std::string &frame, const Problem &p, const Tiling &t) {
    const int piece = 4 * t.row_lanes;
    return frame == "thread_rows" && p.op == POLYHEAD_SDPA && p.rope == POLYHEAD_NO_ROPE && t.row_lanes > 1 && p.head_dim % piece == 0 &&
           p.head_dim_v % piece == 0;
}

std::string target_refusal(const Problem &p, const std::string &target, const Machine &machine) {
    const bool has_16_bits = machine.api == POLYHEAD_CUDA || machine.api == POLYHEAD_OPENCL;
    if (p.dtype != POLYHEAD_F32 && !has_16_bits) {
        return "dtype " + dtype_name(p.dtype) + " is not supported on target " + target + ": expected f32, or a CUDA or OpenCL target";
    }
    return "";
}

// A kernel for one query length that its only frame never takes.
std::string length_refusal(const VariantPlan &plan, const Problem &p) {
    return plan.max_seq_len_q == 0 || p.seq_len_q <= plan.max_seq_len_q
               ? ""
               : "tiling: frame " + plan.frame + " serves query lengths up to " + std::to_string(plan.max_seq_len_q) +
                     ", found seq_len_q " + std::to_string(p.seq_len_q);
}

// The variants of one target by frame and default, or by the overrides.
std::vector<VariantPlan> default_plans(const Problem &p, const Target &target, const Overrides &given, std::string *error) {
    const Machine machine = machine_of(target);
    std::vector<VariantPlan> plans;
    for (const char *frame : {"head_lanes", "query_lanes", "thread_rows", "block_tiles", "linear", "plain"}) {
        const bool decode = std::string(frame) == "head_lanes";
        const bool wanted = given.frame.empty() ? wanted_by_default(frame, p, machine, !plans.empty()) : given.frame == frame;
        if (!wanted || !frame_serves(frame, p, machine)) {
            continue;
        }
        plans.push_back({frame, target.to_string(), default_tiling(frame, p, machine, given.tiling), 0,
                         decode ? head_lanes_max_seq_len_q : 0, "",
                         given.autoscheduler.empty() ? "" : given.autoscheduler + given.autoscheduler_fields});
        *error = length_refusal(plans.back(), p);
        if (error->empty()) {
            *error = tiling_refusal(frame, p, plans.back().tiling, machine);
        }
        if (!error->empty()) {
            return {};
        }
    }
    return plans;
}

} // namespace

std::string VariantPlan::text() const {
    return "frame=" + frame + " " + tiling.to_string() + (record.empty() ? "" : ", from " + record);
}

std::vector<VariantPlan> plan_variants(const Problem &p, const std::vector<std::string> &targets, const std::string &overrides,
                                       std::string *error, const TuningChoice &tuning, std::vector<std::string> *complaints) {
    *error = refusal(p);
    Overrides given;
    if (error->empty()) {
        *error = read_overrides(overrides, &given);
    }
    const bool overridden = overrides.find('=') != std::string::npos;
    RecordFinder finder;
    if (error->empty() && !overridden) {
        *error = finder.open(tuning);
    }
    if (complaints) {
        *complaints = finder.complaints();
    }
    std::vector<VariantPlan> plans;
    std::vector<FrameOnMachine> frames;
    for (const std::string &text : targets) {
        Target target;
        if (!error->empty() || !parse_target(text, &target, error)) {
            return {};
        }
        const Machine machine = machine_of(target);
        *error = target_refusal(p, target.to_string(), machine);
        std::vector<VariantPlan> here = error->empty() ? default_plans(p, target, given, error) : std::vector<VariantPlan>();
        if (!error->empty()) {
            return {};
        }
        if (!overridden) {
            here = finder.apply(p, machine, target_class(target), here);
        }
        for (const VariantPlan &plan : here) {
            frames.push_back({plan.frame, machine});
            if (given.tiling.load_width == 0 && wide_loads_pay(plan.frame, p, plan.tiling)) {
                plans.push_back(plan);
                plans.back().tiling.load_width = 4;
            }
            plans.push_back(plan);
        }
    }
    if (plans.empty()) {
        *error = "no frame" + (given.frame.empty() ? std::string() : " '" + given.frame + "'") +
                 " serves this problem: expected query_lanes, head_lanes or linear, on a GPU thread_rows, block_tiles or linear";
    } else {
        *error = unread_knobs(frames, p, given.tiling);
    }
    return error->empty() ? plans : std::vector<VariantPlan>();
}

CompiledVariant compile_variant(const Problem &p, const VariantPlan &plan, const std::string &symbol, const std::string &object_path,
                                const std::vector<std::string> &extra_outputs, std::string *error) {
    CompiledVariant out;
    Target target;
    error->clear();
    if (!parse_target(plan.target, &target, error)) {
        return out;
    }
    static_cast<VariantFacts &>(out) = facts_of(p, plan, target);
    if (plan.frame == "plain" || !plan.autoscheduler.empty()) {
        *error = "the frame plain and Halide's autoschedulers are for comparisons in process: expected a frame and a schedule of ours";
        return out;
    }
    out.symbol = symbol;
    out.object_path = object_path;
    try {
        const CompilerWarnings warnings;
        const TaskScratch task;
        const Target full = kernel_target(target, p).with_feature(Target::NoRuntime);
        Halide::Module module = make_generator(p, plan, full)->build_module(symbol);
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
        out.scratch.per_thread = task.bytes();
    } catch (...) {
        *error = thrown_sentence();
    }
    return out;
}

InProcessVariant compile_in_process(const Problem &p, const VariantPlan &plan, std::string *error) {
    InProcessVariant out;
    Target target;
    error->clear();
    if (!parse_target(plan.target, &target, error)) {
        return out;
    }
    static_cast<VariantFacts &>(out) = facts_of(p, plan, target);
    try {
        const CompilerWarnings warnings;
        const TaskScratch task;
        auto generator = make_generator(p, plan, kernel_target(target, p).with_feature(Target::JIT).without_feature(Target::UserContext));
        auto compiled = std::make_shared<InProcessCode>();
        compiled->callable = generator->compile_to_callable();
        compiled->num_arguments = generator->arginfos().size();
        out.scratch.per_thread = task.bytes();
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
    const bool object = path.size() > 2 && path.substr(path.size() - 2) == ".o";
    try {
        const auto type = object ? Halide::OutputFileType::object : Halide::OutputFileType::static_library;
        Halide::compile_standalone_runtime({{type, path}}, target);
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

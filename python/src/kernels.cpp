// The class Kernel of the module, and the functions that make one.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "../../contract/problem_fields.h"
#include "../../load/bundle.h"
#include "../../tools/request.h"
#include "../../tools/space.h"
#include "call.h"
#include "no_fork.h"
#include "without_lock.h"

namespace polyhead::python {
namespace {

using Kernels = std::shared_ptr<const LoadedKernel>;

// The fields of a problem by name; those that are not named are 0. `expression` owns the text that the problem points to.
Problem problem_of(nb::dict fields, std::string *expression) {
    Problem problem{};
    for (const auto &[key, value] : fields) {
        const auto name = nb::cast<std::string>(key);
        int32_t *field = nullptr;
        for (const contract::ProblemField &known : contract::problem_fields) {
            field = name == known.name ? &(problem.*known.value) : field;
        }
        if (field) {
            *field = nb::cast<int32_t>(value);
        } else if (name == "expression") {
            *expression = nb::cast<std::string>(value);
            problem.expression = expression->empty() ? nullptr : expression->c_str();
        } else {
            throw wrong_type("a problem has no field '" + name + "'");
        }
    }
    return problem;
}

// Calls f without the interpreter's lock; a KeyboardInterrupt meanwhile is Python's.
template <class F> auto compiling(F f) {
    try {
        const WithoutLock others_may_run;
        const NoFork no_fork;
        return f();
    } catch (const Interrupted &) {
        throw nb::python_error();
    }
}

// For calls of sdpa() and of layers.
Kernels kernel_of_fields(nb::dict fields, const std::string &target, int64_t seq_len_q) {
    std::string expression;
    const Problem problem = problem_of(fields, &expression);
    return compiling([&] {
        if (target == "host" && contract::by_heads(problem)) {
            return common_kernel_for(problem, seq_len_q, default_limits());
        }
        std::vector<std::string> targets;
        if (const std::string sentence = gen::read_targets(target, false, problem, &targets); !sentence.empty()) {
            throw Refusal(POLYHEAD_BAD_VALUE, sentence);
        }
        return kernel_for(problem, targets, "", {seq_len_q}, {}, default_limits());
    });
}

// The words of a generate command line, without a name.
tools::Request request_of(const std::vector<std::string> &flags) {
    default_limits(); // finds the compiler
    std::vector<const char *> argv = {"polyhead", "kernel"};
    for (const std::string &flag : flags) {
        argv.push_back(flag.c_str());
    }
    tools::Request request;
    std::string help;
    const std::string sentence = tools::parse_request(int(argv.size()), argv.data(), &request, &help);
    if (!sentence.empty() || !help.empty()) {
        throw Refusal(POLYHEAD_BAD_VALUE, sentence.empty() ? "help: found an option that prints help, expected a problem" : sentence);
    }
    return request;
}

Kernels kernel_of_flags(const std::vector<std::string> &flags) {
    return compiling([&] {
        default_limits();
        const tools::Request request = request_of(flags);
        return kernel_for(request.problem, request.targets, request.tiling, {}, {request.tuned, request.use_records},
                          interruptible(request.limits));
    });
}

tools::Request complete_request_of(const std::vector<std::string> &flags) {
    tools::Request request = request_of(flags);
    const std::string sentence = gen::complete(&request.problem);
    if (!sentence.empty()) {
        throw Refusal(POLYHEAD_BAD_VALUE, sentence);
    }
    return request;
}

std::string tiling_space(const std::vector<std::string> &flags) {
    std::string error;
    std::string text = tools::space_text(complete_request_of(flags), &error);
    if (!error.empty()) {
        throw Refusal(POLYHEAD_BAD_VALUE, error);
    }
    return text;
}

std::string tiling_refusal(const std::vector<std::string> &flags, const std::string &frame, const std::string &tiling) {
    return tools::point_refusal(complete_request_of(flags), frame, tiling);
}

nb::dict problem_dict(const LoadedKernel &kernel) {
    const polyhead_problem &p = kernel.table().problem;
    nb::dict fields;
    for (const contract::ProblemField &field : contract::problem_fields) {
        fields[field.name] = p.*field.value;
    }
    fields["expression"] = p.expression ? p.expression : "";
    return fields;
}

// What the package asks of an operation: its first input, and what out is like beside it.
nb::dict operation_facts(const LoadedKernel &kernel) {
    const polyhead_problem &p = kernel.table().problem;
    nb::dict facts;
    facts["attends"] = contract::attends(p);
    facts["by_heads"] = contract::by_heads(p);
    nb::list gradients; // of its inputs: the results of a backward call
    for (const contract::TensorRow &row : contract::taken_by(p) & contract::result_rows) {
        if (contract::is_backward(p)) {
            gradients.append(row.name);
        }
    }
    facts["gradients"] = gradients;
    for (const contract::TensorRow &row : contract::taken_by(p)) {
        if (row.tensor == &polyhead_args::query) {
            facts["first_input"] = row.name;
        } else if (row.tensor == &polyhead_args::out) {
            facts["out_width"] = contract::fixed_extent(row.extents[row.rank - 1], p);
        }
    }
    return facts;
}

// The fields of a problem by name: None where True or False is said, the words of a choice, or no words for a number.
nb::dict problem_fields() {
    nb::dict fields;
    for (const contract::ProblemField &field : contract::problem_fields) {
        nb::list words;
        for (int i = 0; i < field.num_choices(); ++i) {
            words.append(field.choices[i].word);
        }
        fields[field.name] = field.kind == contract::FieldKind::yes_no ? nb::object(nb::none()) : nb::object(nb::tuple(words));
    }
    return fields;
}

// By dtype of a problem: that of an array, and polyhead_dtype.
nb::dict storage_types() {
    nb::dict storage;
    for (const contract::DTypeRow &row : contract::dtypes) {
        if (row.storage) {
            storage[row.name] = nb::make_tuple(element_name(Element(row.id)), row.id);
        }
    }
    return storage;
}

// Numbers of calls, and what a tuner measures with.
nb::dict usual_numbers() {
    nb::dict usual;
    for (const contract::NumberRow &row : contract::numbers) {
        if (row.given) {
            usual[row.name] = row.usual;
        }
    }
    return usual;
}

// Words of a command line; paths among them keep their bytes.
std::vector<std::string> words_of(const nb::list &given) {
    std::vector<std::string> words;
    for (const auto &word : given) {
        words.push_back(bytes_of_path(word));
    }
    return words;
}

nb::list declarations(const LoadedKernel &kernel) {
    nb::list all;
    for (int32_t i = 0; i < kernel.table().num_declarations; ++i) {
        const polyhead_declaration &d = kernel.table().declarations[i];
        nb::list extents;
        for (int32_t k = 0; k < d.rank; ++k) {
            extents.append(d.extents[k]);
        }
        all.append(nb::make_tuple(d.name, element_name(Element(d.dtype)), nb::tuple(extents)));
    }
    return all;
}

void run(const LoadedKernel &kernel, nb::dict arguments, const DevicePointer &device, const std::string &layout,
         const polyhead::Plan *plan) {
    CallArguments call(kernel, arguments, device, layout_named(layout));
    const WithoutLock others_may_run;
    call.run(plan);
}

std::unique_ptr<polyhead::Plan> plan(const LoadedKernel &kernel, nb::dict arguments, const DevicePointer &device,
                                     const std::string &layout) {
    CallArguments call(kernel, arguments, device, layout_named(layout));
    const WithoutLock others_may_run;
    return call.plan();
}

std::string explain(const LoadedKernel &kernel, nb::dict arguments, const DevicePointer &device, const std::string &layout) {
    CallArguments call(kernel, arguments, device, layout_named(layout));
    const WithoutLock others_may_run;
    return call.explain();
}

// Of each variant, what the numbers of its tiling mean.
std::vector<std::vector<std::string>> reasons(const LoadedKernel &kernel) {
    std::vector<std::vector<std::string>> all;
    for (const gen::VariantPlan &variant : kernel.plan().variants) {
        all.push_back(variant.reasons(kernel.table().problem));
    }
    return all;
}

int64_t scratch_bytes(const LoadedKernel &kernel, nb::dict arguments, const DevicePointer &device, const std::string &layout) {
    CallArguments call(kernel, arguments, device, layout_named(layout));
    const WithoutLock others_may_run;
    return call.scratch_bytes();
}

// The kernels of a problem, one for each target, for write_bundle(): keys and bytes of their objects.
nb::list bundle_entries(const nb::list &flags) {
    std::vector<load::BundledKernel> kernels;
    tools::Request request = request_of(words_of(flags));
    compiling([&] {
        if (const std::string sentence = gen::complete(&request.problem); !sentence.empty()) {
            throw Refusal(POLYHEAD_BAD_VALUE, sentence);
        }
        for (const std::string &target : request.targets) { // one kernel for each, as common_kernel_for() wants it
            std::string error;
            load::KernelRequest one;
            one.problem = request.problem;
            one.targets = {target};
            one.limits = interruptible(request.limits);
            one.plan.variants = gen::plan_variants(one.problem, one.targets, "", &error);
            kernels.emplace_back();
            raise(error.empty() ? LoadedKernel::add_entries(one, &kernels.back()) : load::Failure{POLYHEAD_BAD_VALUE, error});
        }
        return 0;
    });
    nb::list all;
    for (const load::BundledKernel &kernel : kernels) {
        nb::list pairs;
        for (const auto &[key, bytes] : kernel) {
            pairs.append(nb::make_tuple(nb::bytes(key.data(), key.size()), nb::bytes(bytes.data(), bytes.size())));
        }
        all.append(pairs);
    }
    return all;
}

void write_bundle(const std::string &path, const nb::list &all) {
    std::vector<load::BundledKernel> kernels;
    for (const nb::handle pairs : all) {
        kernels.emplace_back();
        for (const nb::handle pair : nb::cast<nb::list>(pairs)) {
            const auto [key, bytes] = nb::cast<std::pair<nb::bytes, nb::bytes>>(pair);
            kernels.back().emplace_back(std::string(key.c_str(), key.size()), std::string(bytes.c_str(), bytes.size()));
        }
    }
    if (const std::string sentence = load::write_bundle(path, kernels); !sentence.empty()) {
        throw Refusal(POLYHEAD_INTERNAL, sentence);
    }
}

void clear_all_kernels() {
    clear_plain();
    const WithoutLock others_may_run;
    clear_kernels();
}

void bind_bundle(nb::module_ &module) {
    using namespace nb::literals;
    module.def("bundle_entries", bundle_entries, "flags"_a);
    module.def("write_bundle", write_bundle, "path"_a, "kernels"_a);
    module.def("set_bundle", &load::set_bundle, "path"_a);
}

} // namespace

void bind_kernels(nb::module_ &module) {
    using namespace nb::literals;
    [[maybe_unused]] const nb::class_<polyhead::Plan> plan_class(module, "Plan", "The form of a call, checked; made by Kernel.plan().");
    nb::class_<PackedWeights>(module, "Weights", "Packed weights of a layer; made by Kernel.pack().")
        .def_prop_ro("nbytes", [](const PackedWeights &w) { return w.weights.bytes(); });
    const auto release = nb::call_guard<WithoutLock>();
    nb::class_<LoadedKernel>(module, "Kernel", "A kernel compiled and loaded into this process.")
        .def_prop_ro("problem", problem_dict)
        .def_prop_ro("operation", operation_facts)
        .def_prop_ro("declarations", declarations)
        .def_prop_ro("arguments", &CallArguments::names)
        .def_prop_ro("seq_len_q_range",
                     [](const LoadedKernel &k) { return nb::make_tuple(k.plan().min_seq_len_q, k.plan().max_seq_len_q); })
        .def_prop_ro("target", [](const LoadedKernel &k) { return k.target(); })
        .def("run", run, "arguments"_a, "device"_a.none() = nb::none(), "layout"_a = "bhsd", "plan"_a.none() = nb::none())
        .def("plan", plan, "arguments"_a, "device"_a.none() = nb::none(), "layout"_a = "bhsd", nb::keep_alive<0, 1>())
        .def("explain", explain, "arguments"_a, "device"_a.none() = nb::none(), "layout"_a = "bhsd")
        .def("scratch_bytes", scratch_bytes, "arguments"_a, "device"_a.none() = nb::none(), "layout"_a = "bhsd")
        .def("pack", pack, "tensors"_a, "device"_a.none() = nb::none())
        .def("reasons", reasons)
        .def("manifest", &LoadedKernel::manifest, release)
        .def(
            "listing",
            [](const LoadedKernel &k, const std::string &kind) {
                return compiling([&] {
                    std::string text;
                    raise(k.listing(kind, &text));
                    return text;
                });
            },
            "kind"_a)
        .def(
            "write",
            [](const LoadedKernel &k, const std::string &name, nb::handle directory) {
                const std::string path = bytes_of_path(directory);
                compiling([&] {
                    raise(k.write(name, path));
                    return 0;
                });
            },
            "name"_a, "directory"_a);
    module.def("kernel_of_fields", kernel_of_fields, "fields"_a, "target"_a = "host", "seq_len_q"_a = any_seq_len_q);
    bind_bundle(module);
    module.def("kernel_of_flags", [](const nb::list &flags) { return kernel_of_flags(words_of(flags)); }, "flags"_a);
    module.attr("problem_fields") = problem_fields();
    module.attr("storage_types") = storage_types();
    module.attr("usual_numbers") = usual_numbers();
    module.def("clear_kernels", clear_all_kernels);
    module.attr("kernels_kept") = kernels_kept();
    module.def("tiling_space", tiling_space, "flags"_a);
    module.def("tiling_refusal", tiling_refusal, "flags"_a, "frame"_a, "tiling"_a);
    module.def("tuning_records", &tools::records_text, "text"_a, "name"_a);
    module.def("generate_flags", [](nb::dict fields) {
        std::string expression;
        return contract::flags_of(problem_of(fields, &expression));
    });
}

} // namespace polyhead::python

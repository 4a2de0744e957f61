// A kernel compiled for this process: its objects, its table, and what tells about it.
#include "kernel.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>
#include <pthread.h>
#include <thread>

#include "../contract/weight_layout.h"
#include "maker.h"

namespace polyhead::load {
namespace {

// The work folder of the library writer is used by one thread at a time.
std::mutex &writer() {
    static std::mutex *const mutex = [] {
        pthread_atfork(nullptr, nullptr, [] { new (&writer()) std::mutex; }); // a child has no thread that holds it
        return new std::mutex;
    }();
    return *mutex;
}

Failure bad_value(const std::string &sentence) {
    return {sentence.empty() ? POLYHEAD_OK : POLYHEAD_BAD_VALUE, sentence};
}

} // namespace

std::shared_ptr<const LoadedKernel> LoadedKernel::make(const KernelRequest &request, Failure *failure) {
    const std::shared_ptr<LoadedKernel> kernel(new LoadedKernel(request));
    *failure = kernel->declare();
    *failure = *failure ? *failure : kernel->compile();
    if (*failure) {
        return nullptr;
    }
    kernel->fill_table();
    return kernel;
}

bool LoadedKernel::is_bundled(const KernelRequest &request) {
    const LoadedKernel kernel(request);
    size_t index = 0;
    for (const gen::VariantPlan &plan : request.plan.variants) {
        if (!load::is_bundled(kernel.job(plan, index++))) {
            return false;
        }
    }
    return index > 0;
}

Failure LoadedKernel::add_entries(const KernelRequest &request, BundledKernel *entries) {
    const LoadedKernel kernel(request);
    size_t index = 0;
    for (const gen::VariantPlan &plan : request.plan.variants) {
        if (Failure failure = make_entry(kernel.job(plan, index++), request.limits, &entries->emplace_back())) {
            return failure;
        }
    }
    return {};
}

LoadedKernel::LoadedKernel(const KernelRequest &request)
    : request_(request), expression_(request.problem.expression ? request.problem.expression : "") {
    library_.name = request.name;
    library_.problem = request.problem;
    library_.problem.expression = expression_.empty() ? nullptr : expression_.c_str();
    library_.tuned = request.tiling.empty() ? gen::records_file(request.tuning) : "";
}

Failure LoadedKernel::declare() {
    if (expression_.empty()) {
        return {};
    }
    const Failure failure = bad_value(gen::Expression::parse(expression_, "expression", &library_.expression));
    for (const gen::ExpressionTensor &tensor : library_.expression.tensors()) {
        polyhead_declaration declaration{tensor.name.c_str(), tensor.dtype, tensor.rank, {}, nullptr};
        if (tensor.gradient && contract::is_backward(library_.problem)) {
            declaration.gradient = gradient_names_.emplace_back(tensor.gradient_name()).c_str();
        }
        std::copy(std::begin(tensor.extents), std::end(tensor.extents), declaration.extents);
        declarations_.push_back(declaration);
    }
    return failure;
}

tools::CompileJob LoadedKernel::job(const gen::VariantPlan &plan, size_t index) const {
    return {library_.problem, plan, tools::variant_symbol(library_.name, library_.problem, request_.plan.variants, index), "", {}, {},
            request_.compares};
}

Failure LoadedKernel::compile() {
    std::vector<std::string> objects;
    for (const gen::VariantPlan &plan : request_.plan.variants) {
        const size_t index = library_.variants.size();
        const tools::CompileJob wanted = job(plan, index);
        Made made;
        if (Failure failure = make_object(wanted, request_.limits, &made)) {
            return failure;
        }
        tools::LibraryVariant variant{plan, {}, tools::variant_name(library_.name, index)};
        static_cast<gen::VariantFacts &>(variant.compiled) = made.facts;
        variant.compiled.symbol = wanted.symbol;
        library_.library_bytes += int64_t(made.object.size());
        library_.variants.push_back(variant);
        objects.push_back(std::move(made.object));
    }
    return code_.load(objects);
}

void LoadedKernel::fill_table() {
    for (const tools::LibraryVariant &v : library_.variants) {
        tilings_.push_back(v.plan.text());
    }
    for (const tools::LibraryVariant &v : library_.variants) {
        polyhead_variant variant{};
        variant.name = v.name.c_str();
        variant.target = v.plan.target.c_str();
        variant.tiling = tilings_[variants_.size()].c_str();
        variant.entry = reinterpret_cast<int (*)(void **)>(code_.function(v.compiled.symbol + "_argv"));
        contract::require(v.compiled, &variant);
        variant.min_seq_len_q = v.plan.min_seq_len_q;
        variant.max_seq_len_q = v.plan.max_seq_len_q;
        variant.scratch = v.compiled.scratch;
        variant.weight_layout = contract::weight_layout_id(library_.problem);
        variant.abi = POLYHEAD_ABI_VERSION;
        variant.min_group_size = v.plan.min_group_size;
        variant.max_group_size = v.plan.max_group_size;
        variants_.push_back(variant);
    }
    table_ = polyhead_kernel{POLYHEAD_SIZES,
                             library_.problem,
                             library_.name.c_str(),
                             variants_.data(),
                             declarations_.data(),
                             int32_t(variants_.size()),
                             int32_t(declarations_.size()),
                             library_.expression.facts(),
                             0};
}

std::string LoadedKernel::target() const {
    std::string text;
    for (const std::string &target : request_.targets) {
        text += (text.empty() ? "" : ",") + target;
    }
    return text;
}

std::string LoadedKernel::manifest() const {
    return tools::manifest_text(library_);
}

Failure LoadedKernel::listing(const std::string &kind, std::string *text) const {
    text->clear();
    for (size_t i = 0; i < library_.variants.size(); i++) {
        std::string one;
        if (Failure failure = make_listing(job(library_.variants[i].plan, i), kind, request_.limits, &one)) {
            return failure;
        }
        *text += one;
    }
    return {};
}

Failure LoadedKernel::write(const std::string &name, const std::string &directory) const {
    tools::Request request;
    request.name = name;
    request.problem = library_.problem;
    if (!expression_.empty()) {
        request.expression = std::make_shared<const std::string>(expression_);
        request.problem.expression = request.expression->c_str();
    }
    request.targets = request_.targets;
    request.tiling = request_.tiling;
    request.tuned = request_.tuning.file;
    request.use_records = request_.tuning.records;
    request.directory = directory;
    request.limits = request_.limits;
    std::unique_lock<std::mutex> alone(writer(), std::defer_lock);
    while (!alone.try_lock()) {
        if (request_.limits.while_waiting) {
            request_.limits.while_waiting();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return bad_value(tools::write_library({request}));
}

} // namespace polyhead::load

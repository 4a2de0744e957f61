// Compiles a request into a library on disk: all of its files or none.
#include "library.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "../plan/target.h"
#include "elf_symbols.h"
#include "output_files.h"

namespace polyhead::tools {
namespace {

namespace fs = std::filesystem;

// Makes a file of the work folder; an object when the path ends in .o, an archive otherwise.
std::string make_runtime(const fs::path &path, const std::string &target, const Limits &limits) {
    const fs::path object = path.parent_path() / "runtime.o", archive = path.parent_path() / "runtime.a";
    const bool archived = path.extension() != ".o";
    std::string error = make_apart({object.string(), target, {}}, limits);
    error = error.empty() ? claim_symbols(object.string(), true) : error;
    if (error.empty() && archived) {
        error = make_apart({archive.string(), target, {object.filename().string()}}, limits);
    }
    if (!error.empty()) {
        return "runtime: " + error;
    }
    fs::rename(archived ? archive : object, path);
    return "";
}

std::string compile_all(const Request &request, const std::vector<gen::VariantPlan> &plans, const fs::path &folder, Library *library) {
    library->name = request.name;
    library->problem = request.problem;
    library->expression_source = request.source.text;
    library->tuned = request.tiling.empty() ? gen::records_file({request.tuned, request.use_records}) : "";
    if (request.expression) {
        const std::string error = gen::Expression::parse(*request.expression, "expression", &library->expression);
        if (!error.empty()) {
            return error;
        }
    }
    for (const gen::VariantPlan &plan : plans) {
        std::string error;
        const size_t index = library->variants.size();
        LibraryVariant variant{plan, {}, variant_name(request.name, index)};
        const CompileJob job{request.problem,
                             plan,
                             variant_symbol(request.name, request.problem, plans, index),
                             (folder / (variant.name + ".o")).string(),
                             request.emit,
                             request.source};
        variant.compiled = compile_apart(job, request.limits, &error);
        error = error.empty() ? claim_symbols(variant.compiled.object_path, true) : error;
        if (!error.empty()) {
            return error;
        }
        library->variants.push_back(variant);
    }
    return "";
}

std::string find_listings(const fs::path &folder, std::vector<fs::path> *listings) {
    std::error_code failed;
    for (fs::directory_iterator entry(folder, failed); !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
        if (entry->path().extension() == ".stmt" || entry->path().extension() == ".s") {
            listings->push_back(entry->path());
        }
    }
    return failed ? "cannot read '" + folder.string() + "': " + failed.message() : "";
}

// APIs that a runtime can use; those in libpolyhead_gpu.a first.
constexpr const char *device_features[] = {"cuda", "opencl", "vulkan", "metal", "webgpu", "d3d12compute"};
constexpr size_t carried_features = 3;

// Kernels on CPUs need libpolyhead alone.
bool is_carried(const gen::Target &target) {
    const auto has = [&](const char *feature) { return target.has(feature); };
    const size_t carried = target.same_machine(gen::this_system()) ? carried_features : 0;
    return std::none_of(std::begin(device_features) + carried, std::end(device_features), has);
}

// Halide's runtimes for targets with APIs that libpolyhead_gpu.a of this machine does not serve: one for each machine, with the APIs of all
// its targets.
std::string add_runtimes(const Request &request, const fs::path &folder, Library *library) {
    std::vector<gen::Target> runtimes;
    for (const std::string &word : request.targets) {
        const gen::Target target = gen::parsed_target(word);
        if (is_carried(target)) {
            continue;
        }
        auto runtime = std::find_if(runtimes.begin(), runtimes.end(), [&](const gen::Target &r) { return r.same_machine(target); });
        if (runtime == runtimes.end()) {
            runtime = runtimes.insert(runtimes.end(), target.least());
        }
        for (const char *feature : device_features) {
            if (target.has(feature)) {
                runtime->features.insert(feature);
            }
        }
    }
    for (const gen::Target &runtime : runtimes) {
        const std::string name = "halide_runtime_" + runtime.to_string() + ".a";
        const std::string error = make_runtime(folder / name, runtime.to_string(), request.limits);
        if (!error.empty()) {
            return error;
        }
        library->runtime_archives.push_back(name);
    }
    return "";
}

std::string archive(const std::vector<Library> &libraries, const std::string &path, const Limits &limits) {
    std::vector<std::string> objects;
    for (const Library &library : libraries) {
        for (const LibraryVariant &variant : library.variants) {
            objects.push_back(fs::path(variant.compiled.object_path).filename().string());
        }
    }
    return make_apart({path, libraries[0].variants[0].plan.target, objects}, limits);
}

// The manifest and the header of a kernel.
std::string write_texts(const Library &library, const fs::path &folder, std::vector<fs::path> *files) {
    const std::string stem = (folder / library.name).string();
    for (const auto &[suffix, text] :
         {std::pair<std::string, std::string>{".json", manifest_text(library)}, {".h", header_text(library)}}) {
        const std::string error = write_text(stem + suffix, text);
        if (!error.empty()) {
            return error;
        }
        files->push_back(stem + suffix);
    }
    return "";
}

// All files, in the order in which they are moved.
std::string make_files(const std::vector<Request> &kernels, const std::vector<std::vector<gen::VariantPlan>> &plans, const fs::path &folder,
                       std::vector<fs::path> *files) {
    std::vector<Library> libraries(kernels.size());
    std::string error;
    for (size_t i = 0; i < kernels.size() && error.empty(); i++) {
        error = compile_all(kernels[i], plans[i], folder, &libraries[i]);
    }
    const fs::path whole = folder / (kernels[0].name + ".a");
    error = error.empty() ? find_listings(folder, files) : error;
    error = error.empty() ? add_runtimes(kernels[0], folder, &libraries[0]) : error;
    error = error.empty() ? archive(libraries, whole.string(), kernels[0].limits) : error;
    if (!error.empty()) {
        return error;
    }
    for (const std::string &name : libraries[0].runtime_archives) {
        files->push_back(folder / name);
    }
    files->push_back(whole);
    for (size_t i = libraries.size(); i-- > 0 && error.empty();) { // the header of the first one last: without it the library is not used
        libraries[i].library_bytes = static_cast<int64_t>(fs::file_size(whole));
        libraries[i].runtime_archives = libraries[0].runtime_archives;
        error = write_texts(libraries[i], folder, files);
    }
    return error;
}

} // namespace

std::vector<gen::VariantPlan> plan_request(const Request &request, std::string *error) {
    std::vector<std::string> complaints;
    std::vector<gen::VariantPlan> plans =
        gen::plan_variants(request.problem, request.targets, request.tiling, error, {request.tuned, request.use_records}, &complaints);
    for (const std::string &complaint : complaints) { // the others serve
        std::fprintf(stderr, "polyhead generate: warning: %s\n", complaint.c_str());
    }
    if (!error->empty()) {
        return {};
    }
    std::vector<gen::VariantPlan> kept;
    for (gen::VariantPlan plan : plans) {
        plan.min_seq_len_q = std::max(plan.min_seq_len_q, request.min_seq_len_q);
        if (request.max_seq_len_q > 0) {
            plan.max_seq_len_q = plan.max_seq_len_q > 0 ? std::min(plan.max_seq_len_q, request.max_seq_len_q) : request.max_seq_len_q;
        }
        const int32_t fixed = request.problem.seq_len_q, last = plan.max_seq_len_q;
        if ((last == 0 || plan.min_seq_len_q <= last) && (fixed == 0 || (fixed >= plan.min_seq_len_q && (last == 0 || fixed <= last)))) {
            kept.push_back(plan);
        }
    }
    if (kept.empty()) {
        *error = "seq-len-q-range: no variant serves query lengths " + std::to_string(request.min_seq_len_q) + ":" +
                 std::to_string(request.max_seq_len_q) +
                 (request.problem.seq_len_q > 0 ? " for seq_len_q " + std::to_string(request.problem.seq_len_q) : "");
    }
    return kept;
}

std::string write_runtime(const std::string &path, const std::string &target, const Limits &limits) {
    const fs::path whole = path, folder = whole.parent_path();
    WorkFolder work(folder.empty() ? "." : folder, whole.filename().string());
    const fs::path made = work.path() / whole.filename();
    std::string error = work.error();
    error = error.empty() ? make_runtime(made, target, limits) : error;
    return error.empty() ? work.deliver({made}) : error;
}

std::string write_library(const std::vector<Request> &kernels) {
    std::string error;
    std::vector<std::vector<gen::VariantPlan>> plans;
    for (const Request &kernel : kernels) {
        plans.push_back(plan_request(kernel, &error));
        if (!error.empty()) {
            return error;
        }
    }
    WorkFolder work(kernels[0].directory, kernels[0].name);
    if (!work.error().empty()) {
        return work.error();
    }
    std::vector<fs::path> files;
    error = make_files(kernels, plans, work.path(), &files);
    return error.empty() ? work.deliver(files) : error;
}

} // namespace polyhead::tools

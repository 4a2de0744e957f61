// Compiles kernels to objects, links them with the system's linker against this module, which carries the runtime, and loads them.
#include "loaded_kernel.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>
#include <pthread.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <thread>

#include "../../contract/weight_layout.h"
#include "../../generators/text.h"
#include "../../tools/elf_symbols.h"
#include "errors.h"
#include "no_fork.h"
#include "without_lock.h"

extern char **environ;

namespace polyhead::python {
namespace {

namespace fs = std::filesystem;

// The work folder of the library writer is used by one thread at a time.
std::mutex &writer() {
    static std::mutex *const mutex = [] {
        pthread_atfork(nullptr, nullptr, [] { new (&writer()) std::mutex; }); // a child has no thread that holds it
        return new std::mutex;
    }();
    return *mutex;
}

// A work folder under TMPDIR, which is removed at the end with everything in it.
class TemporaryFolder {
public:
    TemporaryFolder() {
        std::error_code error;
        const fs::path parent = fs::temp_directory_path(error);
        std::string pattern = (parent / "polyhead.XXXXXX").string();
        if (error || !::mkdtemp(pattern.data())) {
            const char *const asked = std::getenv("TMPDIR");
            const std::string found = asked ? asked : parent.string();
            throw Refusal(POLYHEAD_INTERNAL, "TMPDIR: found '" + found + "', expected a folder in which files can be made: " +
                                                 std::strerror(error ? error.value() : errno));
        }
        path_ = pattern;
    }
    ~TemporaryFolder() {
        std::error_code error;
        fs::remove_all(path_, error);
    }
    TemporaryFolder(const TemporaryFolder &) = delete;
    TemporaryFolder &operator=(const TemporaryFolder &) = delete;
    const std::string &path() const { return path_; }

private:
    std::string path_;
};

// The file that this module was loaded from. Kernels name it as the library they need, so that they use the runtime that is in it;
// after a rebuild that file would be loaded as a second one.
struct Module {
    std::string path;
    struct stat status{};
};

Module find_module() {
    Module module;
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void *>(&find_module), &info) != 0 && info.dli_fname) {
        module.path = fs::absolute(info.dli_fname).string();
        ::stat(module.path.c_str(), &module.status);
    }
    return module;
}

const Module at_import = find_module();

const std::string &module_path() {
    struct stat now{};
    if (::stat(at_import.path.c_str(), &now) != 0 || now.st_ino != at_import.status.st_ino || now.st_dev != at_import.status.st_dev) {
        throw Refusal(POLYHEAD_INTERNAL, at_import.path + " was replaced since it was imported; start Python again");
    }
    return at_import.path;
}

// Runs a program and waits; its complaints are in the returned text.
std::string run_program(const std::vector<std::string> &words, const std::string &log) {
    std::vector<char *> argv;
    for (const std::string &word : words) {
        argv.push_back(const_cast<char *>(word.c_str()));
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    pid_t process = 0;
    const int error = posix_spawnp(&process, argv[0], &files, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) {
        return words[0] + ": " + std::strerror(error);
    }
    int status = 0;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return "";
    }
    std::ifstream file(log);
    std::string line;
    std::getline(file, line);
    return words[0] + ": " + line;
}

void raise_unless_empty(int32_t code, const std::string &sentence) {
    if (!sentence.empty()) {
        throw Refusal(code, sentence);
    }
}

} // namespace

tools::Limits interruptible(tools::Limits limits) {
    limits.while_waiting = [] {
        const ForkMeanwhile forks; // the thread that forks has Python's lock
        const WithLock held;
        if (PyErr_CheckSignals() != 0) { // looks in Python's main thread only
            throw Interrupted();
        }
    };
    return limits;
}

tools::Limits default_limits() {
    static const bool found = [] { // the compiler lies beside the module
        tools::set_compiler_program((fs::path(at_import.path).parent_path() / "polyhead-generate").string());
        return true;
    }();
    static_cast<void>(found);
    tools::Limits limits;
    raise_unless_empty(POLYHEAD_BAD_VALUE, tools::read_limits(&limits));
    return interruptible(limits);
}

LoadedKernel::LoadedKernel(const Problem &problem, const std::string &target, const std::string &tiling, const gen::TuningChoice &tuning,
                           Plan plan, const tools::Limits &limits)
    : expression_(problem.expression ? problem.expression : ""), tiling_(tiling), tuning_(tuning), plan_(std::move(plan)), limits_(limits) {
    raise_unless_empty(POLYHEAD_BAD_VALUE, gen::refuse_target(target, false, &target_));
    library_.name = "kernel";
    library_.problem = problem;
    library_.problem.expression = expression_.empty() ? nullptr : expression_.c_str();
    library_.tuned = tiling_.empty() ? gen::records_file(tuning) : "";
    declare();
    compile();
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

void LoadedKernel::declare() {
    if (expression_.empty()) {
        return;
    }
    raise_unless_empty(POLYHEAD_BAD_VALUE, gen::Expression::parse(expression_, "expression", &library_.expression));
    for (const gen::ExpressionTensor &tensor : library_.expression.tensors()) {
        polyhead_declaration declaration{tensor.name.c_str(), tensor.dtype, tensor.rank, {}};
        std::copy(std::begin(tensor.extents), std::end(tensor.extents), declaration.extents);
        declarations_.push_back(declaration);
    }
}

gen::CompiledVariant LoadedKernel::compiled(const gen::VariantPlan &plan, const std::string &symbol, const std::string &object,
                                            const std::vector<std::string> &listings) const {
    std::string error;
    const gen::CompiledVariant variant = compile_apart({library_.problem, plan, symbol, object, listings, {}}, limits_, &error);
    error = error.empty() ? tools::claim_symbols(object, false) : error; // this module has what the kernel calls, and looks for its entry
    raise_unless_empty(POLYHEAD_INTERNAL, error);
    return variant;
}

void LoadedKernel::compile() {
    const TemporaryFolder folder;
    for (const gen::VariantPlan &plan : plan_.variants) {
        const size_t index = library_.variants.size();
        const std::string name = tools::variant_name(library_.name, index), object = folder.path() + "/" + name + ".o";
        const std::string symbol = tools::variant_symbol(library_.name, library_.problem, plan_.variants, index);
        const tools::LibraryVariant variant{plan, compiled(plan, symbol, object, {}), name};
        library_.library_bytes += int64_t(fs::file_size(object));
        library_.variants.push_back(variant);
    }
    link(folder.path());
}

void LoadedKernel::link(const std::string &folder) {
    const std::string path = folder + "/kernel.so";
    std::vector<std::string> words = {POLYHEAD_LINKER, "-shared", "-o", path};
    for (const tools::LibraryVariant &variant : library_.variants) {
        words.push_back(variant.compiled.object_path);
    }
    words.push_back(module_path());
    raise_unless_empty(POLYHEAD_INTERNAL, run_program(words, folder + "/linker.txt"));
    struct statvfs place{};
    if (::statvfs(folder.c_str(), &place) == 0 && (place.f_flag & ST_NOEXEC) != 0) {
        throw Refusal(POLYHEAD_INTERNAL, "TMPDIR: found '" + fs::path(folder).parent_path().string() +
                                             "', from which no code can be loaded (noexec), expected another folder");
    }
    code_.open(path);
    for (const tools::LibraryVariant &v : library_.variants) {
        tilings_.push_back(v.plan.text());
    }
    for (const tools::LibraryVariant &v : library_.variants) {
        polyhead_variant variant{};
        variant.name = v.name.c_str();
        variant.target = v.plan.target.c_str();
        variant.tiling = tilings_[variants_.size()].c_str();
        variant.entry = reinterpret_cast<int (*)(void **)>(code_.symbol(v.compiled.symbol + "_argv"));
        contract::require(v.compiled, &variant);
        variant.min_seq_len_q = v.plan.min_seq_len_q;
        variant.max_seq_len_q = v.plan.max_seq_len_q;
        variant.scratch = v.compiled.scratch;
        variant.weight_layout = contract::weight_layout_id(library_.problem);
        variant.abi = POLYHEAD_ABI_VERSION;
        variants_.push_back(variant);
    }
}

std::string LoadedKernel::manifest() const {
    return tools::manifest_text(library_);
}

std::string LoadedKernel::listing(const std::string &kind) const {
    const TemporaryFolder folder;
    std::string text;
    for (const tools::LibraryVariant &v : library_.variants) {
        const std::string stem = folder.path() + "/" + v.name;
        compiled(v.plan, v.compiled.symbol, stem + ".o", {kind});
        std::string one;
        if (!gen::read_file(stem + (kind == "stmt" ? ".stmt" : ".s"), &one)) {
            throw Refusal(POLYHEAD_INTERNAL, "the listing of variant " + v.name + " cannot be read");
        }
        text += one;
    }
    return text;
}

void LoadedKernel::write(const std::string &name, const std::string &directory) const {
    tools::Request request;
    request.name = name;
    request.problem = library_.problem;
    if (!expression_.empty()) {
        request.expression = std::make_shared<const std::string>(expression_);
        request.problem.expression = request.expression->c_str();
    }
    request.targets = {target_};
    request.tiling = tiling_;
    request.tuned = tuning_.file;
    request.use_records = tuning_.records;
    request.directory = directory;
    request.limits = limits_;
    std::unique_lock<std::mutex> alone(writer(), std::defer_lock);
    while (!alone.try_lock()) {
        limits_.while_waiting();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::string sentence;
    try {
        sentence = tools::write_library(request);
    } catch (const Interrupted &) {
        throw;
    } catch (...) { // the archive and runtimes are still Halide's, which reports by throwing
        sentence = gen::thrown_sentence();
    }
    raise_unless_empty(POLYHEAD_BAD_VALUE, sentence);
}

} // namespace polyhead::python

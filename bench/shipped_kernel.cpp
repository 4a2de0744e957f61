// Runs polyhead generate and the compiler, and loads what they made.
#include "shipped_kernel.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <dlfcn.h>

#include "../tests/support/problems.h"

namespace bench {
namespace {

namespace fs = std::filesystem;

std::string in_quotes(const std::string &text) {
    return "'" + text + "'";
}

// Runs a line of the shell. Returns "", or the first line that it printed.
std::string run_line(const std::string &line, const std::string &folder) {
    const std::string log = folder + "/log";
    if (std::system((line + " >" + in_quotes(log) + " 2>&1").c_str()) == 0) // NOLINT(cert-env33-c): a program for developers
        return "";
    std::ifstream file(log);
    std::string first;
    std::getline(file, first);
    return first.empty() ? "this did not run: " + line : first;
}

} // namespace

ShippedKernel::ShippedKernel(const polyhead::Problem &problem, const std::string &flags) {
    std::string folder = (fs::temp_directory_path() / "polyhead_bench.XXXXXX").string();
    if (!mkdtemp(folder.data())) {
        error_ = "cannot make a folder like " + folder;
        return;
    }
    make(folder, problem, flags);
    std::error_code ignored;
    fs::remove_all(folder, ignored);
}

void ShippedKernel::make(const std::string &folder, const polyhead::Problem &problem, const std::string &flags) {
    const std::string line = polyhead::test::generate_line(problem), words = "polyhead generate NAME ";
    error_ = run_line(POLYHEAD_GENERATE " kernel " + line.substr(words.size()) + " " + flags + " -o " + in_quotes(folder), folder);
    if (!error_.empty())
        return;
    // Every kernel has the same names here; a library must use its own.
    const std::string source = folder + "/table.cpp", library = folder + "/kernel.so";
    std::ofstream(source) << "#include \"kernel.h\"\nextern \"C\" const polyhead_kernel *table() { return &kernel; }\n";
    error_ = run_line(POLYHEAD_CXX " -std=c++17 -shared -fPIC -O1 -fno-gnu-unique -Wl,-Bsymbolic -I" POLYHEAD_INCLUDE " " +
                          in_quotes(source) + " " + in_quotes(folder + "/kernel.a") + " -o " + in_quotes(library),
                      folder);
    if (!error_.empty())
        return;
    library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    void *table = library_ ? dlsym(library_, "table") : nullptr;
    if (!table) {
        error_ = dlerror();
        return;
    }
    kernel_.emplace(*reinterpret_cast<const polyhead_kernel *(*)()>(table)());
}

ShippedKernel::~ShippedKernel() {
    if (library_)
        dlclose(library_);
}

} // namespace bench

// A kernel compiled ahead of time, linked and loaded into this process: the same code, table and run() as one that a program links.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

#include "../../generators/compile.h"
#include "../../tools/library.h"

namespace polyhead::python {

class LoadedKernel {
public:
    // Plans, compiles, links and loads; takes seconds and throws a Refusal. The problem is complete.
    LoadedKernel(const Problem &problem, const std::string &target, const std::string &tiling);
    ~LoadedKernel();
    LoadedKernel(const LoadedKernel &) = delete; // the table points into the members
    LoadedKernel &operator=(const LoadedKernel &) = delete;

    const polyhead_kernel &table() const { return table_; }
    const std::string &target() const { return target_; }
    // NAME.json as it would be written.
    std::string manifest() const;
    // "stmt" or "assembly" of every variant, compiled once more.
    std::string listing(const std::string &kind) const;
    // Writes NAME.a, NAME.h and NAME.json.
    void write(const std::string &name, const std::string &directory) const;

private:
    void declare();
    void compile(const std::string &tiling);
    void link(const std::string &folder);

    std::string expression_, target_, tiling_;
    tools::Library library_;
    std::vector<polyhead_declaration> declarations_;
    std::deque<std::string> texts_; // names of declarations and tilings of variants, which the tables point to
    std::vector<polyhead_variant> variants_;
    polyhead_kernel table_{};
    void *code_ = nullptr;
};

// The kernel of this problem, from memory or compiled now; one thread compiles, others that want the same one wait for it.
std::shared_ptr<const LoadedKernel> kernel_for(Problem problem, const std::string &target, const std::string &tiling);

} // namespace polyhead::python

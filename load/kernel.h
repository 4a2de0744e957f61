// A kernel compiled ahead of time, linked and loaded into this process: the same code, table and run() as one that a program links.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

#include "../plan/plan.h"
#include "../tools/library.h"
#include "bundle.h"
#include "loaded_code.h"

namespace polyhead::load {

// Variants to be compiled, and the query lengths for which a call needs no others.
struct Plan {
    std::vector<gen::VariantPlan> variants;
    int32_t min_seq_len_q = 0, max_seq_len_q = INT32_MAX;
};

// What is compiled: the problem is complete and its text is copied.
struct KernelRequest {
    Problem problem{};
    std::vector<std::string> targets; // as they were planned with, in full
    std::string tiling;
    gen::TuningChoice tuning;
    Plan plan;
    tools::Limits limits;
    std::string name = "kernel";
    bool compares = false; // as in tools::CompileJob
};

class LoadedKernel {
public:
    // Compiles, links and loads; takes seconds where no process did it before. Null on failure.
    static std::shared_ptr<const LoadedKernel> make(const KernelRequest &request, Failure *failure);
    // Whether the bundle has all of its objects.
    static bool is_bundled(const KernelRequest &request);
    // What a bundle needs of it, behind what is there.
    static Failure add_entries(const KernelRequest &request, BundledKernel *entries);
    LoadedKernel(const LoadedKernel &) = delete; // the table points into the members
    LoadedKernel &operator=(const LoadedKernel &) = delete;

    const polyhead_kernel &table() const { return table_; }
    const Plan &plan() const { return request_.plan; }
    // Separated by commas.
    std::string target() const;
    // NAME.json as it would be written.
    std::string manifest() const;
    // "stmt" or "assembly" of every variant, compiled once more.
    Failure listing(const std::string &kind, std::string *text) const;
    // Writes NAME.a, NAME.h and NAME.json.
    Failure write(const std::string &name, const std::string &directory) const;

private:
    explicit LoadedKernel(const KernelRequest &request);
    Failure declare();
    Failure compile();
    tools::CompileJob job(const gen::VariantPlan &plan, size_t index) const;
    void fill_table();

    KernelRequest request_;
    std::string expression_;
    tools::Library library_;
    std::vector<polyhead_declaration> declarations_;
    std::list<std::string> gradient_names_;
    std::vector<std::string> tilings_; // of the variants, which point to them
    std::vector<polyhead_variant> variants_;
    polyhead_kernel table_{};
    LoadedCode code_;
};

} // namespace polyhead::load

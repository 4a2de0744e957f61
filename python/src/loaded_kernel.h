// A kernel compiled ahead of time, linked and loaded into this process: the same code, table and run() as one that a program links.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

#include "../../tools/library.h"
#include "../../variants/compile.h"
#include "shared_object.h"

namespace polyhead::python {

// Variants to be compiled, and the query lengths for which a call needs no others.
struct Plan {
    std::vector<gen::VariantPlan> variants;
    int32_t min_seq_len_q = 0, max_seq_len_q = INT32_MAX;
};

class LoadedKernel {
public:
    // Compiles, links and loads; takes seconds and throws a Refusal. The problem is complete.
    LoadedKernel(const Problem &problem, const std::string &target, const std::string &tiling, const gen::TuningChoice &tuning, Plan plan,
                 const tools::Limits &limits);
    LoadedKernel(const LoadedKernel &) = delete; // the table points into the members
    LoadedKernel &operator=(const LoadedKernel &) = delete;

    const polyhead_kernel &table() const { return table_; }
    const Plan &plan() const { return plan_; }
    const std::string &target() const { return target_; }
    // NAME.json as it would be written.
    std::string manifest() const;
    // "stmt" or "assembly" of every variant, compiled once more.
    std::string listing(const std::string &kind) const;
    // Writes NAME.a, NAME.h and NAME.json.
    void write(const std::string &name, const std::string &directory) const;

private:
    void declare();
    void compile();
    gen::CompiledVariant compiled(const gen::VariantPlan &plan, const std::string &symbol, const std::string &object,
                                  const std::vector<std::string> &listings) const;
    void link(const std::string &folder);

    std::string expression_, target_, tiling_;
    gen::TuningChoice tuning_;
    Plan plan_;
    tools::Limits limits_;
    tools::Library library_;
    std::vector<polyhead_declaration> declarations_;
    std::vector<std::string> tilings_; // of the variants, which point to them
    std::vector<polyhead_variant> variants_;
    polyhead_kernel table_{};
    SharedObject code_;
};

// The kernel of this problem, from memory or compiled now; one thread compiles, others that need the same kernel wait for it. With a query
// length it has only the variants that such calls may use: the same variant runs, and the first call waits less.
constexpr int64_t any_seq_len_q = -1;
std::shared_ptr<const LoadedKernel> kernel_for(Problem problem, const std::string &target, const std::string &tiling, int64_t seq_len_q,
                                               const gen::TuningChoice &tuning, const tools::Limits &limits);
// How many kernels stay in memory, those that were used last: $POLYHEAD_KERNELS_KEPT, or 256. Others are unloaded with their last
// object of Python.
size_t kernels_kept();
// Removes all compiled kernels from the cache.
void clear_kernels();

// Limits of the environment, and a check for Python's signals while the compiler works: a pending KeyboardInterrupt is thrown as
// Interrupted, with Python's error set in this thread.
struct Interrupted {};
tools::Limits interruptible(tools::Limits limits);
tools::Limits default_limits();

} // namespace polyhead::python

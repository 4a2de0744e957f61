// A kernel compiled for this process by one line: the same table and the same run() as one that a program links.
#pragma once

#include <memory>
#include <string>

#include <polyhead/polyhead.h>

namespace polyhead::load {

class LoadedKernel;

struct CompiledKernelOptions {
    std::string target = "host";
    std::string tiling; // "key=value ...": overrides of the defaults; "frame=NAME" keeps one frame
    std::string name = "kernel";
    std::string tuned = {};  // the user's own tuning records
    bool use_records = true; // false: the default tilings
};

// Compiles all variants in the constructor; what only serves comparisons (the frame plain, Halide's autoschedulers), too. On refusal
// error() has one sentence and the kernel has no variants.
class CompiledKernel {
public:
    // compiler: the program polyhead-generate.
    CompiledKernel(const Problem &problem, const std::string &compiler, const CompiledKernelOptions &options = {});
    const Kernel &kernel() const noexcept { return kernel_; }
    const std::string &error() const noexcept { return error_; }

    CompiledKernel(const CompiledKernel &) = delete; // the kernel points into what it owns
    CompiledKernel &operator=(const CompiledKernel &) = delete;

private:
    std::string error_, name_, expression_;
    std::shared_ptr<const LoadedKernel> loaded_;
    Kernel kernel_;
};

} // namespace polyhead::load

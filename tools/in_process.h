// A kernel compiled into this process: the same table and the same run() as an ahead-of-time one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

namespace polyhead {

struct InProcessOptions {
    std::string target = "host";
    std::string tiling; // "key=value ...": overrides of the defaults; "frame=NAME" keeps one frame
    std::string name = "in_process";
    std::string tuned = {};  // the user's own tuning records
    bool use_records = true; // false: the default tilings
};

// Compiles all variants in the constructor. On refusal error() has one sentence and the kernel has no variants.
class InProcessKernel {
public:
    explicit InProcessKernel(const Problem &problem, const InProcessOptions &options = {});
    const Kernel &kernel() const noexcept { return kernel_; }
    const std::string &error() const noexcept { return error_; }

    InProcessKernel(const InProcessKernel &) = delete; // the kernel points into the members
    InProcessKernel &operator=(const InProcessKernel &) = delete;

private:
    struct Texts {
        std::string name, target, tiling;
    };
    std::string error_, name_, expression_;
    std::shared_ptr<const void> parsed_; // owns the names of the declarations
    std::vector<polyhead_declaration> declarations_;
    std::vector<std::unique_ptr<Texts>> texts_;
    std::vector<std::shared_ptr<void>> contexts_;
    std::vector<Variant> variants_;
    Kernel kernel_;
};

} // namespace polyhead

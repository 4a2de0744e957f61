// A kernel as users get it: generated, linked into a shared library and loaded. Code compiled in process is not the same: LLVM keeps the
// addresses of its constants in registers and reads them in each turn of a loop, 1 to 3 % of the time.
#ifndef BENCH_SHIPPED_KERNEL_H
#define BENCH_SHIPPED_KERNEL_H

#include <optional>
#include <string>

#include <polyhead/polyhead.h>

namespace bench {

class ShippedKernel {
public:
    // `flags`: more flags of polyhead generate. The program exports its functions (ENABLE_EXPORTS).
    explicit ShippedKernel(const polyhead::Problem &problem, const std::string &flags = "");
    ShippedKernel(const ShippedKernel &) = delete;
    ShippedKernel &operator=(const ShippedKernel &) = delete;
    ~ShippedKernel();

    // "", or one sentence, and then there is no kernel.
    const std::string &error() const { return error_; }
    const polyhead::Kernel &kernel() const { return *kernel_; }

private:
    void make(const std::string &folder, const polyhead::Problem &problem, const std::string &flags);

    std::string error_;
    void *library_ = nullptr;
    std::optional<polyhead::Kernel> kernel_;
};

} // namespace bench
#endif

// One kernel with one shape, ready to be timed: its tensors, its call, what the call costs, and a check against float64.
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include <memory>
#include <string>

#include <polyhead/polyhead.h>

#include "../instruments/calls/device_call.h"
#include "../instruments/calls/inputs.h"
#include "../instruments/calls/subject.h"
#include "shapes.h"

namespace bench {

class Workload {
public:
    // Every mask, modifier and length that the kernel takes is given. With a device: all tensors lie there, and run() returns after the
    // launch.
    Workload(const polyhead::Kernel &kernel, const Lengths &shape, const polyhead::Device *device = nullptr);

    // Runs once on tensors of its own and compares sampled rows with float64. Returns "", or one sentence; then run() is of no use.
    std::string check() const;
    polyhead::Status run() const { return run(kernel_); }
    // Another kernel on the same tensors: of the same problem, other lengths may be fixed.
    polyhead::Status run(const polyhead::Kernel &kernel) const;

    double flops() const; // two for a multiply-add; only the keys that lengths, causal and window leave are counted
    double bytes() const; // inputs, weights and outputs, once each
    const polyhead_args &args() const { return args_; }

private:
    const polyhead::Kernel &kernel_;
    polyhead::test::KernelSubject subject_;
    polyhead::test::Inputs inputs_;
    std::unique_ptr<polyhead::test::DeviceCall> on_device_;
    polyhead_args args_;
};

} // namespace bench
#endif

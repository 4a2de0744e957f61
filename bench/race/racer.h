// One kernel with one shape on a device, ready to be timed.
#ifndef BENCH_RACE_RACER_H
#define BENCH_RACE_RACER_H

#include <memory>
#include <string>

#include <polyhead/polyhead.h>

#include "../workload.h"

namespace bench {

class Racer {
public:
    // Tensors on the device, full of random numbers. error() is "" or a sentence.
    Racer(const polyhead::Kernel &kernel, const Lengths &lengths, const polyhead::Device &device);
    ~Racer();
    Racer(const Racer &) = delete;
    Racer &operator=(const Racer &) = delete;

    const std::string &error() const { return error_; }
    polyhead::Status run() const;
    double flops() const { return flops_; }
    std::string variant() const; // which variant runs, and why not those before it

private:
    void allocate(const polyhead::Problem &problem, const Lengths &lengths);

    const polyhead::Kernel &kernel_;
    const polyhead::Device &device_;
    std::string error_;
    void *memory_ = nullptr;
    polyhead::SdpaArgs args_;
    std::unique_ptr<Workload> layer_; // of layers, which have packed weights
    double flops_ = 0;
};

} // namespace bench
#endif

// One kernel with one shape: its buffers, its call, what the call costs, and a float64 check of sampled rows.
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include <string>
#include <vector>

#include <polyhead/polyhead.h>

#include "shapes.h"
#include "storage.h"

namespace bench {

class Workload {
public:
    // Fills the inputs with fixed pseudo-random values and packs the weights; status() says whether that worked.
    // With a device: everything lies there, and run() returns after the launch.
    Workload(const polyhead::Kernel &kernel, const Shape &shape, const polyhead::Device *device = nullptr);
    const polyhead::Status &status() const { return status_; }

    polyhead::Status run();
    // Runs once and compares sampled rows with float64. Returns "", or one sentence.
    std::string check();

    double flops() const; // two for a multiply-add; only the keys that causal leaves are counted
    double bytes() const; // inputs, weights and outputs, once each

private:
    void make_sdpa();
    void make_mha();
    void make_linear();
    void pack(const polyhead::WeightTensors &tensors);
    int64_t visible_keys(int64_t q) const;
    std::string check_row(int64_t b, int64_t h, int64_t q) const;

    const polyhead::Kernel &kernel_;
    const polyhead::Problem &p_;
    Shape shape_;
    const polyhead::Device *device_;
    polyhead::Status status_;
    Storage storage_;
    std::vector<float> query_, key_, value_, out_, lse_; // mha: query_ is the input; linear: query_ is the input
    std::vector<float> w_query_, w_key_, w_value_, w_out_, b_query_, b_key_, b_value_, b_out_;
    polyhead::Weights weights_;
    std::vector<int32_t> lengths_;
    polyhead::SdpaArgs sdpa_;
    polyhead::MhaArgs mha_;
    polyhead::LinearArgs linear_;
};

} // namespace bench
#endif

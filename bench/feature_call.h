// A case of the bench of features, ready to run: its kernel, its tensors, a check against float64.
#ifndef BENCH_FEATURE_CALL_H
#define BENCH_FEATURE_CALL_H

#include <memory>
#include <string>
#include <vector>

#include "../instruments/calls/inputs.h"
#include "../instruments/roof/roof.h"
#include "../instruments/roof/shared_library.h"
#include "../load/compiled_kernel.h"
#include "features.h"

namespace bench {

class FeatureCall {
public:
    // Compiles the frame that serves this query length, or takes what it compiled for another case of the same problem.
    explicit FeatureCall(const FeatureCase &feature_case);
    // "", or one sentence: what cannot be compiled, or which row of a run is not what float64 says.
    std::string check() const;
    void run() const;
    double work_left() const { return bench::work_left(case_.problem(), inputs_.args()); }
    // Bytes of the scores and weights that a run writes.
    double written_bytes() const;
    // What rows see of the tensors that have a number for each query and key, row by row.
    std::vector<roof::Block> seen_pairs() const;
    const polyhead_args &args() const { return inputs_.args(); }

private:
    const FeatureCase case_;
    std::shared_ptr<polyhead::load::CompiledKernel> kernel_;
    polyhead::test::Inputs inputs_;
};

// The plain kernel of another checkout on the tensors of this one's call: a library made of plain_of_checkout.cpp.
class PlainOfCheckout {
public:
    // `ours` must have run.
    PlainOfCheckout(const std::string &library, const FeatureCall &ours, int threads);
    // "", or one sentence: the library, or the first number of out that is not that of this checkout.
    std::string check() const;
    void run() const;

private:
    bool refused() const;

    roof::SharedLibrary library_;
    void (*set_threads_)(int32_t threads) = nullptr;
    int32_t (*run_)(const void *query, const void *key, const void *value, void *out, int64_t heads, int64_t tokens,
                    int64_t head_dim) = nullptr;
    const polyhead_args &args_;
    mutable std::vector<float> out_;
};

} // namespace bench
#endif

// A case of the bench of features, ready to run: a kernel compiled in process, its tensors, a check against float64.
#ifndef BENCH_FEATURE_CALL_H
#define BENCH_FEATURE_CALL_H

#include <map>
#include <memory>
#include <string>

#include "../tests/support/inputs.h"
#include "features.h"

namespace polyhead {
class InProcessKernel;
}

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

private:
    const FeatureCase case_;
    std::shared_ptr<polyhead::InProcessKernel> kernel_;
    polyhead::test::Inputs inputs_;
};

} // namespace bench
#endif

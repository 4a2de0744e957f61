// The features whose cost is promised: what each makes of a problem and of a call, how much it may cost, what work it leaves.
#ifndef BENCH_FEATURES_H
#define BENCH_FEATURES_H

#include <string>
#include <vector>

#include "../instruments/calls/inputs.h"

namespace bench {

struct Feature {
    const char *name;
    double limit;     // of time on / time off, by the work left; 0: none
    const char *slot; // of two features with the same slot a problem has one; null: no other feature is in the way
    void (*apply)(polyhead::Problem *problem, polyhead::test::Shape *shape);
};

// The modifiers and masks; and the outputs, which have no line: each costs the bytes that it writes.
const std::vector<Feature> &features();
const std::vector<Feature> &score_outputs();

// Features that are enabled together; without any it is the plain case, B1 H12 T1024 d64.
class FeatureCase {
public:
    explicit FeatureCase(std::vector<const Feature *> on = {});
    const polyhead::Problem &problem() const { return problem_; }
    const polyhead::test::Shape &shape() const { return shape_; }
    std::string name() const; // "causal + softcap"
    double limit() const;
    // All pairs that a problem can have.
    static std::vector<FeatureCase> pairs();

private:
    std::vector<const Feature *> on_;
    polyhead::Problem problem_;
    polyhead::test::Shape shape_;
};

// The part of all tiles of 32 queries x 64 keys in which lengths, causal and window leave a pair. Masks and expressions leave all.
double work_left(const polyhead::Problem &problem, const polyhead_args &args);

} // namespace bench
#endif

// What is wrong with an answer, in one line: how many elements, and the worst of them.
#ifndef POLYHEAD_INSTRUMENTS_REPORT_H
#define POLYHEAD_INSTRUMENTS_REPORT_H

#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>

#include "tolerance.h"

namespace polyhead::test {

// Adds a sentence for the worst element only: one wrong tile would print thousands.
class Report {
public:
    void judge(const char *tensor, int64_t index, float got, double reference, double tolerance) {
        // A reference that is itself not finite has nothing to say: only rows that see a poisoned key have one.
        if (std::isnan(reference) || std::isinf(reference)) {
            return;
        }
        checked_++;
        const double error = std::abs(static_cast<double>(got) - reference);
        const double ratio = within(got, reference, tolerance) ? error / tolerance : std::isnan(error) ? INFINITY : error / tolerance;
        failures_ += within(got, reference, tolerance) ? 0 : 1;
        if (!(ratio <= worst_ratio_)) {
            worst_ratio_ = ratio;
            std::ostringstream text;
            text.precision(9);
            text << tensor << "[" << index << "] is " << got << ", expected " << reference << ", error " << error << ", tolerance "
                 << tolerance;
            worst_ = text.str();
        }
    }
    void must_equal(const char *tensor, int64_t index, float got, double expected) {
        checked_++;
        if (!(static_cast<double>(got) == expected)) {
            failures_++;
            worst_ratio_ = INFINITY;
            std::ostringstream text;
            text << tensor << "[" << index << "] is " << got << ", expected exactly " << expected;
            worst_ = text.str();
        }
    }
    int64_t failures() const { return failures_; }
    double worst_ratio() const { return worst_ratio_; }
    std::string text() const {
        return failures_ == 0 ? "" : std::to_string(failures_) + " of " + std::to_string(checked_) + " elements wrong; worst: " + worst_;
    }

private:
    int64_t checked_ = 0, failures_ = 0;
    double worst_ratio_ = 0;
    std::string worst_;
};

} // namespace polyhead::test
#endif

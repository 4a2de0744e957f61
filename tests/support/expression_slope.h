// Slopes of scores against differences of the same formula in C++.
#ifndef POLYHEAD_TESTS_EXPRESSION_SLOPE_H
#define POLYHEAD_TESTS_EXPRESSION_SLOPE_H

#include <algorithm>
#include <cmath>

#include "expression_probe.h"

namespace polyhead::test {

// At a kink each part of a formula may take another branch, so that the slope may be that of neither side: there it is a number.
inline bool is_slope(float slope, double (*score)(const ProbePoint &), const ProbePoint &at) {
    constexpr double step = 1e-6;
    const auto moved = [&](double by) {
        ProbePoint point = at;
        point.score += by;
        return score(point);
    };
    const double here = score(at), above = (moved(step) - here) / step, below = (here - moved(-step)) / step;
    const double allowed = 1e-5 * std::max({1.0, std::abs(above), std::abs(here)});
    return std::abs(above - below) > allowed ? std::isfinite(slope) : std::abs(slope - above) <= allowed;
}

} // namespace polyhead::test
#endif

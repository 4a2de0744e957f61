// How far an f32 answer may lie from the float64 reference.
#ifndef POLYHEAD_TESTS_TOLERANCE_H
#define POLYHEAD_TESTS_TOLERANCE_H

#include <algorithm>
#include <cmath>

namespace polyhead::test {

// err <= 1e-5 * max(1, max abs value) + 5e-6 * abs(ref) + 4x the largest error of the plain f32 formula on that head.
// max_value is taken over the values that the row attends to.
inline double f32_tolerance(double reference, double max_value, double plain_error) {
    return 1e-5 * std::max(1.0, max_value) + 5e-6 * std::abs(reference) + 4.0 * plain_error;
}

// True when `got` is an acceptable f32 answer. NaN is never one; an infinite or zero-row reference must be met exactly by the caller.
inline bool within(float got, double reference, double tolerance) {
    const double error = std::abs(static_cast<double>(got) - reference);
    return error <= tolerance; // false for NaN on either side
}

} // namespace polyhead::test
#endif

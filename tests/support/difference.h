// The largest difference between two vectors of equal length.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "catch.h"

namespace polyhead::test {

inline double largest_difference(const std::vector<double> &a, const std::vector<double> &b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (size_t i = 0; i < a.size(); i++) {
        largest = std::max(largest, std::abs(a[i] - b[i]));
    }
    return largest;
}

} // namespace polyhead::test

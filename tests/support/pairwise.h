// A covering choice: few rows of settings in which every pair of settings of two features occurs together.
#ifndef POLYHEAD_TESTS_PAIRWISE_H
#define POLYHEAD_TESTS_PAIRWISE_H

#include <cstdint>
#include <vector>

namespace polyhead::test {

// settings[f]: how many settings feature f has. Each row has one setting per feature. Rows come until every pair of settings of two
// features has occurred and there are at least min_rows of them; the same arguments give the same rows.
std::vector<std::vector<int>> pairwise_rows(const std::vector<int> &settings, int min_rows, uint64_t seed);

} // namespace polyhead::test
#endif

// The matrix of features: problems of attention in which every pair of settings of two features occurs.
#ifndef POLYHEAD_TESTS_FEATURE_MATRIX_H
#define POLYHEAD_TESTS_FEATURE_MATRIX_H

#include <string>
#include <vector>

#include <polyhead/polyhead.h>

namespace polyhead::test {

// A feature and its settings; apply() is called feature by feature, in order.
struct Feature {
    const char *name;
    std::vector<const char *> settings;
    void (*apply)(Problem &problem, int setting);
};

const std::vector<Feature> &features();

// One row of the matrix: a setting per feature.
using FeatureRow = std::vector<int>;

// The rows, the same in every run; the first of them cover all pairs.
const std::vector<FeatureRow> &feature_rows();
// So many rows from the first on have every setting of every feature.
constexpr int rows_with_every_setting = 24;
// Problem of a row, small enough that its kernel is compiled fast.
Problem feature_problem(const FeatureRow &row);

// The same for gradients of bare attention: the features that they have, and heads of several widths. Kernels of all storage types.
const std::vector<Feature> &gradient_features();
const std::vector<FeatureRow> &gradient_rows();
Problem gradient_problem(const FeatureRow &row);

// The features with heads as models have them: 16 heads of 64, 80 and 128, each with every setting of every other feature.
int number_of_model_problems();
Problem model_problem(int number);

} // namespace polyhead::test
#endif

// One output row in float64, straight from the inputs: what a bench holds an answer against before it times it.
#ifndef BENCH_REFERENCE_ROW_H
#define BENCH_REFERENCE_ROW_H

#include <vector>

#include <polyhead/polyhead.h>

namespace bench {

struct RowWeight {
    const float *weight = nullptr, *bias = nullptr; // bias null: none
};

// One query row and what it attends to; sdpa needs no weights, linear only query and w_out.
struct RowProblem {
    const polyhead::Problem *problem = nullptr;
    int64_t keys = 0; // the first so many keys take part
    const float *query = nullptr, *key = nullptr, *value = nullptr;
    RowWeight w_query, w_key, w_value, w_out;
};

std::vector<double> sdpa_row(const RowProblem &row);
std::vector<double> mha_row(const RowProblem &row);
std::vector<double> linear_row(const RowProblem &row);

} // namespace bench
#endif

// Matrices and linear layers of the reference. All inner loops run along contiguous elements, so that compilers vectorise them without
// changing the order of any sum.
#ifndef POLYHEAD_INSTRUMENTS_REFERENCE_MATRIX_H
#define POLYHEAD_INSTRUMENTS_REFERENCE_MATRIX_H

#include <algorithm>
#include <cstdint>
#include <vector>

#include "reference.h"

namespace polyhead::test {

constexpr int64_t token_block = 8; // tokens that share one pass over a weight

// A dense matrix of Real.
template <class Real> struct Matrix {
    int64_t rows, columns;
    std::vector<Real> data;
    Matrix(int64_t r, int64_t c) : rows(r), columns(c), data(static_cast<size_t>(r * c), Real(0)) {}
    Real *row(int64_t r) { return data.data() + r * columns; }
    const Real *row(int64_t r) const { return data.data() + r * columns; }
};

// One nn.Linear: the weight transposed to [in][out], and its bias.
template <class Real> struct Linear {
    Matrix<Real> weight;
    std::vector<Real> bias;

    // Rows [first, first + count) of `weight_tensor` [out,in] and of the bias.
    Linear(const polyhead_tensor &weight_tensor, const polyhead_tensor &bias_tensor, int64_t first, int64_t count)
        : weight(weight_tensor.shape[1], count), bias(static_cast<size_t>(count), Real(0)) {
        for (int64_t n = 0; n < count; n++) {
            for (int64_t k = 0; k < weight.rows; k++) {
                weight.row(k)[n] = Real(*element(weight_tensor, first + n, k));
            }
            if (bias_tensor.data != nullptr) {
                bias[n] = Real(*element(bias_tensor, first + n));
            }
        }
    }

    // y[i] = x[i] W^T + b for every row of x; sums begin at a quarter of the inputs.
    Matrix<Real> apply(const Matrix<Real> &x, int first_quarter = 0) const {
        const int64_t first = weight.rows * first_quarter / 4;
        Matrix<Real> y(x.rows, weight.columns);
        for (int64_t begin = 0; begin < x.rows; begin += token_block) {
            const int64_t end = std::min(begin + token_block, x.rows);
            for (int64_t n = 0; n < weight.rows; n++) {
                const int64_t k = (first + n) % weight.rows;
                const Real *w = weight.row(k);
                for (int64_t i = begin; i < end; i++) {
                    const Real factor = x.row(i)[k];
                    Real *out = y.row(i);
                    for (int64_t n = 0; n < weight.columns; n++) {
                        out[n] += factor * w[n];
                    }
                }
            }
            for (int64_t i = begin; i < end; i++) {
                for (int64_t n = 0; n < weight.columns; n++) {
                    y.row(i)[n] += bias[n];
                }
            }
        }
        return y;
    }
};

} // namespace polyhead::test
#endif

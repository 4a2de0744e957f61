// User expressions that tests use: the text as a user writes it, and what it means as plain C++, written apart from the parser.
#ifndef POLYHEAD_INSTRUMENTS_EXPRESSIONS_H
#define POLYHEAD_INSTRUMENTS_EXPRESSIONS_H

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

#include "../calls/layouts.h"

namespace polyhead::test {

// What an expression may look at.
template <class Real> struct ExpressionPoint {
    Real score; // natural units, after scale and softcap
    int64_t b, h, q, kv, position, seq_len_q, seq_len_kv, kv_length;
    const polyhead_tensor *tensors;

    Real number(size_t tensor, std::initializer_list<int64_t> index) const {
        return Real(static_cast<const float *>(tensors[tensor].data)[offset(tensor, index)]);
    }
    int64_t integer(size_t tensor, std::initializer_list<int64_t> index) const {
        return static_cast<const int32_t *>(tensors[tensor].data)[offset(tensor, index)];
    }
    bool boolean(size_t tensor, std::initializer_list<int64_t> index) const {
        return static_cast<const uint8_t *>(tensors[tensor].data)[offset(tensor, index)] != 0;
    }

private:
    int64_t offset(size_t tensor, std::initializer_list<int64_t> index) const {
        int64_t sum = 0, dim = 0;
        for (int64_t i : index) {
            sum += i * tensors[tensor].stride[dim++];
        }
        return sum;
    }
};

// A read of a tensor: the derivative of the score by the element.
template <class Real> using OnRead = std::function<void(size_t tensor, std::initializer_list<int64_t> index, Real derivative)>;

struct ExpressionCase {
    const char *name;
    const char *text;
    std::vector<polyhead_declaration> tensors;
    // Null where the text has no such part. Masks never look at the score.
    double (*score)(const ExpressionPoint<double> &);
    float (*score_f32)(const ExpressionPoint<float> &);
    // Derivative of the score that comes out by the one that goes in.
    double (*slope)(const ExpressionPoint<double> &);
    float (*slope_f32)(const ExpressionPoint<float> &);
    bool (*mask)(const ExpressionPoint<double> &);
    int32_t low, high; // range of the values of its tensors of numbers
    // Tensors whose gradient the text asks for, in the order of their declarations, and all reads of them.
    std::vector<size_t> gradients = {};
    void (*reads)(const ExpressionPoint<double> &, const OnRead<double> &) = nullptr;
    void (*reads_f32)(const ExpressionPoint<float> &, const OnRead<float> &) = nullptr;
};

// All of them. Texts exist as long as the program.
const std::vector<ExpressionCase> &expression_cases();
// Those that ask for gradients.
const std::vector<ExpressionCase> &table_cases();

bool has_expression(const Problem &problem);
// The case with the text of the problem, or null when it has none. A text that is not in the table ends the program.
const ExpressionCase *expression_of(const Problem &problem);

// For row (b, h, q); kv and score are left to the caller.
template <class Real>
ExpressionPoint<Real> expression_point(const Problem &problem, const polyhead_args &args, int64_t b, int64_t h, int64_t q);
extern template ExpressionPoint<double> expression_point(const Problem &, const polyhead_args &, int64_t, int64_t, int64_t);
extern template ExpressionPoint<float> expression_point(const Problem &, const polyhead_args &, int64_t, int64_t, int64_t);

// Tensors for the expression of a problem, filled with random values, read-only.
std::vector<Tensor> make_expression_tensors(const Problem &problem, int64_t batch, int64_t seq_len_q, int64_t seq_len_kv, Place place,
                                            Random &random);

} // namespace polyhead::test
#endif

// The gradients of a linear layer as sums, one product after the other.
#include "linear_gradients.h"

#include "../calls/outputs.h"
#include "half.h"

namespace polyhead::test {

namespace {

template <class Real> void round_gradients(std::vector<Real> &values, int32_t dtype) {
    for (size_t i = 0; is_16_bit(dtype) && i < values.size(); i++) {
        values[i] = from_storage_bits(to_storage_bits(static_cast<float>(values[i]), dtype), dtype);
    }
}

// sum += factor * row
template <class Real> void add_product(Real *sum, float factor, const float *row, size_t width) {
    for (size_t k = 0; k < width; k++) {
        sum[k] += static_cast<Real>(factor) * static_cast<Real>(row[k]);
    }
}

} // namespace

template <class Real> LinearGradients<Real> evaluate_linear_gradients(const polyhead_args &args, int32_t rows_dtype, int32_t weight_dtype) {
    const std::vector<float> input = read_view(args.query), weight = read_view(args.weight), grad_out = read_view(args.grad_out);
    const auto rows = static_cast<size_t>(args.grad_out.shape[0]), outputs = static_cast<size_t>(args.weight.shape[0]),
               width = static_cast<size_t>(args.weight.shape[1]);
    LinearGradients<Real> g{std::vector<Real>(rows * width), std::vector<Real>(outputs * width), std::vector<Real>(outputs)};
    for (size_t m = 0; m < rows; m++) {
        for (size_t n = 0; n < outputs; n++) {
            const float factor = grad_out[m * outputs + n];
            add_product(&g.input[m * width], factor, &weight[n * width], width);
            add_product(&g.weight[n * width], factor, &input[m * width], width);
            g.bias[n] += static_cast<Real>(factor);
        }
    }
    round_gradients(g.input, rows_dtype);
    round_gradients(g.weight, weight_dtype);
    return g;
}

template LinearGradients<double> evaluate_linear_gradients(const polyhead_args &, int32_t, int32_t);
template LinearGradients<float> evaluate_linear_gradients(const polyhead_args &, int32_t, int32_t);

} // namespace polyhead::test

// The reference of linear_backward itself, against the layer: it is linear in its input, its weight and its bias, so a gradient times a
// step is what the step changes.
#include "instruments/calls/linear_gradient_call.h"
#include "instruments/calls/problems.h"
#include "instruments/reference/linear_gradients.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

std::vector<float> random_step(size_t count, uint64_t seed) {
    Random random(seed);
    std::vector<float> step(count);
    for (float &x : step) {
        x = random.normal();
    }
    return step;
}

double dot(const std::vector<double> &gradient, const std::vector<float> &step) {
    double sum = 0;
    for (size_t i = 0; i < step.size(); i++) {
        sum += gradient[i] * static_cast<double>(step[i]);
    }
    return sum;
}

// sum of grad_out times input * weight^T, element by element of out
double weighed_out(const std::vector<float> &grad_out, const std::vector<float> &input, const std::vector<float> &weight, size_t rows,
                   size_t outputs, size_t width) {
    double sum = 0;
    for (size_t i = 0; i < rows * outputs; i++) {
        double out = 0;
        for (size_t k = 0; k < width; k++) {
            out += static_cast<double>(input[i / outputs * width + k]) * static_cast<double>(weight[i % outputs * width + k]);
        }
        sum += static_cast<double>(grad_out[i]) * out;
    }
    return sum;
}

} // namespace

TEST_CASE("gradients of a linear layer: a step times a gradient is the change of the layer") {
    const auto [rows, outputs, width] = GENERATE(std::tuple(1, 1, 1), std::tuple(5, 3, 7), std::tuple(17, 40, 9));
    Problem p = linear_problem(width, outputs);
    p.op = POLYHEAD_LINEAR_BACKWARD;
    const LinearGradientCall call(p, {rows, true, Place::inside, 7});
    const polyhead_args &args = call.reference_args();
    const LinearGradients<double> g = evaluate_linear_gradients<double>(args);
    const std::vector<float> input = read_view(args.query), weight = read_view(args.weight), grad_out = read_view(args.grad_out);
    const auto m = static_cast<size_t>(rows), n = static_cast<size_t>(outputs), k = static_cast<size_t>(width);
    const std::vector<float> of_input = random_step(m * k, 1), of_weight = random_step(n * k, 2), of_bias = random_step(n, 3);
    const double limit = 1e-12 * static_cast<double>(m * n * k);
    CHECK(std::abs(dot(g.input, of_input) - weighed_out(grad_out, of_input, weight, m, n, k)) < limit);
    CHECK(std::abs(dot(g.weight, of_weight) - weighed_out(grad_out, input, of_weight, m, n, k)) < limit);
    const std::vector<float> ones(m, 1.0f);
    CHECK(std::abs(dot(g.bias, of_bias) - weighed_out(grad_out, ones, of_bias, m, n, 1)) < limit);
}

// How fast gradients of linear layers are: % of the peak of the whole call and of the gradient of the weight, beside the layer itself.
#include "linear_backward.h"

#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "../instruments/calls/problems.h"
#include "../instruments/roof/roof.h"
#include "table.h"
#include "training_calls.h"

namespace bench {
namespace {

using polyhead::view;

constexpr int64_t features = 768;
constexpr double least_percent = 85; // of the peak, of the gradient of the weight

struct LinearLine {
    const char *name;
    int64_t rows;
};
constexpr LinearLine linear_lines[] = {{"linear_m512", 512}, {"linear_m2048", 2048}};

// A layer and its gradients, with their tensors.
class LinearCalls {
public:
    explicit LinearCalls(int64_t rows)
        : rows_(rows), input_(normal(rows * features, 1)), weight_(normal(features * features, 2)), grad_out_(normal(rows * features, 3)),
          out_(input_.size()), grad_input_(input_.size()), grad_weight_(weight_.size()) {
        polyhead::Problem problem = polyhead::test::linear_problem(features, features);
        forward_ = kernel_of(problem, &error_);
        problem.op = POLYHEAD_LINEAR_BACKWARD;
        backward_ = forward_ ? kernel_of(problem, &error_) : nullptr;
        if (!backward_)
            return;
        polyhead::WeightTensors tensors;
        tensors.out_proj = view(weight_.data(), {features, features});
        const polyhead::Status packed = forward_->pack(tensors, &packed_);
        forward_args_.input = view(input_.data(), {rows_, features});
        forward_args_.weights = &packed_;
        forward_args_.out = view(out_.data(), {rows_, features});
        backward_args_.input = forward_args_.input;
        backward_args_.weight = view(weight_.data(), {features, features});
        backward_args_.grad_out = view(grad_out_.data(), {rows_, features});
        backward_args_.grad_input = view(grad_input_.data(), {rows_, features});
        backward_args_.grad_weight = view(grad_weight_.data(), {features, features});
        for (const polyhead::Status &status : {packed, forward_->run(forward_args_), backward_->run(backward_args_)})
            error_ = error_.empty() && !status.ok() ? status.message() : error_;
        if (error_.empty() && !right())
            error_ = "the gradients are not those of float64";
    }

    const std::string &error() const { return error_; }
    void forward() const { (void)forward_->run(forward_args_); }
    void backward() const { (void)backward_->run(backward_args_); }
    double flops_of_product() const { return 2.0 * double(rows_) * features * features; }

private:
    // The first row of each gradient.
    bool right() const {
        for (int64_t k = 0; k < features; k++) {
            double of_input = 0, of_weight = 0;
            for (int64_t n = 0; n < features; n++)
                of_input += double(grad_out_[n]) * weight_[n * features + k];
            for (int64_t m = 0; m < rows_; m++)
                of_weight += double(grad_out_[m * features]) * input_[m * features + k];
            if (!(std::fabs(grad_input_[k] - of_input) < 1e-3) || !(std::fabs(grad_weight_[k] - of_weight) < 1e-3))
                return false;
        }
        return true;
    }

    int64_t rows_;
    Floats input_, weight_, grad_out_, out_, grad_input_, grad_weight_;
    const polyhead::Kernel *forward_ = nullptr, *backward_ = nullptr;
    polyhead::Weights packed_;
    polyhead::LinearArgs forward_args_;
    polyhead::LinearBackwardArgs backward_args_;
    std::string error_;
};

bool run_line(const LinearLine &line, int rounds, bool promised) {
    polyhead::set_num_threads(1);
    const LinearCalls calls(line.rows);
    if (!calls.error().empty()) {
        std::printf("%-26s  %s\n", line.name, calls.error().c_str());
        return false;
    }
    roof::Workers alone(1);
    const std::vector<std::function<void()>> both = {[&] { calls.forward(); }, [&] { calls.backward(); }};
    std::vector<double> whole, forward, weight, milliseconds;
    for (int i = 0; i < rounds; i++) {
        const roof::Round round = roof::measure_round(alone, both, 0.05, 5);
        const auto percent = [&](double products, double seconds) {
            return 100 * products * calls.flops_of_product() / 1e9 / seconds / round.peak_gflops;
        };
        whole.push_back(percent(2, round.seconds[1]));
        forward.push_back(percent(1, round.seconds[0]));
        weight.push_back(percent(1, round.seconds[1] - round.seconds[0]));
        milliseconds.push_back(1e3 * round.seconds[1]);
    }
    std::printf("%-26s", line.name);
    for (const std::vector<double> *one : {&whole, &forward, &weight})
        std::printf("  %6.1f (%5.1f) ", roof::spread(*one).median, roof::spread(*one).iqr());
    const roof::Spread of_weight = roof::spread(weight);
    const bool kept = !promised || of_weight.median >= least_percent - of_weight.iqr() / 2;
    std::printf("%c %9.3f\n", kept ? ' ' : '!', roof::spread(milliseconds).median);
    std::fflush(stdout);
    return kept;
}

} // namespace

int run_linear_backward(const std::regex &wanted, int rounds, bool promised) {
    int broken = 0;
    bool first = true;
    for (const LinearLine &line : linear_lines) {
        if (!std::regex_search(line.name, wanted))
            continue;
        if (first)
            std::printf(
                "\ngradients of a linear layer of %d columns, f32, one thread: %% of the peak of the call, of the layer itself, and of "
                "the gradient of the weight,\nwhose time is that of the call without that of the layer, so with all copies\n%-26s  "
                "%-15s  %-15s  %-15s %9s\n",
                int(features), "", "call", "layer", "of weight", "ms");
        first = false;
        broken += run_line(line, rounds, promised) ? 0 : 1;
    }
    return broken;
}

} // namespace bench

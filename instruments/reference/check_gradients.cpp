// Comparison of gradients with the float64 reference.
#include "check_gradients.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "../calls/problems.h"
#include "gradients.h"
#include "half.h"
#include "report.h"
#include "tolerance.h"

namespace polyhead::test {

namespace {

struct ExpectedGradients {
    Gradients<double> truth;
    std::vector<Gradients<float>> in_f32, in_storage; // the plain formula, in one or several orders of its sums
};

// One of the three tensors: [heads, rows, width].
struct GradientTensor {
    const char *name;
    polyhead_tensor polyhead_args::*tensor;
    template <class Real> static const Gradient<Real> &of(const Gradients<Real> &all, size_t i) {
        return i == 0 ? all.query : i == 1 ? all.key : all.value;
    }
};
constexpr GradientTensor gradient_tensors[] = {
    {"grad_query", &polyhead_args::grad_query}, {"grad_key", &polyhead_args::grad_key}, {"grad_value", &polyhead_args::grad_value}};

// A number beyond those of the storage type is an infinite one there.
double in_range(double reference, int32_t dtype) {
    constexpr double largest_f16 = 65504;
    return dtype == POLYHEAD_F16 && std::abs(reference) > largest_f16 ? std::copysign(INFINITY, reference) : reference;
}

class GradientJudge {
public:
    GradientJudge(const Problem &problem, const polyhead_args &args, const ExpectedGradients &expected, const GradientOutputs &outputs)
        : p_(problem), args_(args), expected_(expected), outputs_(outputs) {}
    const Report &report() const { return report_; }

    // A key/value head, b * H_kv + h_kv, and the query heads of its group.
    void judge(int64_t kv_head) {
        const int64_t group = p_.num_heads / p_.num_kv_heads;
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
            judge_head(0, head);
        }
        judge_head(1, kv_head);
        judge_head(2, kv_head);
    }

private:
    // The largest finite error of the plain formula in a head. Where it overflows in 16 bits and ours must not, a limit of a few units in
    // the last place takes its part.
    double plain_error(const std::vector<Gradients<float>> &plain, size_t tensor, size_t first, size_t end, double largest) const {
        double error = 0;
        for (const Gradients<float> &one : plain) {
            for (size_t i = first; i < end; i++) {
                const double truth = GradientTensor::of(expected_.truth, tensor).values[i], got = GradientTensor::of(one, tensor).values[i];
                if (std::isfinite(got - truth)) {
                    error = std::max(error, std::abs(got - truth));
                } else if (std::isfinite(truth) && &plain == &expected_.in_storage) {
                    error = std::max(error, 8 * half_unit(p_.dtype) * largest);
                }
            }
        }
        return error;
    }

    void judge_head(size_t tensor, int64_t head) {
        const std::vector<double> &truth = GradientTensor::of(expected_.truth, tensor).values;
        const polyhead_tensor &view = args_.*gradient_tensors[tensor].tensor;
        const int64_t rows = view.rank == 0 ? 0 : view.shape[2], width = view.rank == 0 ? 0 : view.shape[3];
        const size_t first = static_cast<size_t>(head * rows * width), end = first + static_cast<size_t>(rows * width);
        double largest = 0;
        for (size_t i = first; i < end; i++) {
            largest = std::isfinite(truth[i]) ? std::max(largest, std::abs(truth[i])) : largest;
        }
        const Rounding &rounding = GradientTensor::of(expected_.truth, tensor).rounding[static_cast<size_t>(head)];
        const PlainError plain{
            std::max(plain_error(expected_.in_storage, tensor, first, end, largest), half_unit(p_.dtype) * rounding.in_storage),
            std::max(plain_error(expected_.in_f32, tensor, first, end, largest), rounding.in_f32)};
        const std::vector<uint8_t> &nothing = tensor == 0 ? expected_.truth.empty : expected_.truth.unseen;
        for (size_t i = first; i < end; i++) {
            const float got = outputs_[tensor][i];
            if (nothing[i / static_cast<size_t>(width)] != 0) {
                report_.must_equal(gradient_tensors[tensor].name, static_cast<int64_t>(i), got, 0.0);
                continue;
            }
            const double tolerance = is_16_bit(p_.dtype) ? gradient_tolerance_16_bit(p_.dtype, truth[i], largest, plain)
                                                         : gradient_tolerance(truth[i], largest, plain.in_f32);
            if (std::isinf(got) && std::isinf(in_range(truth[i] + std::copysign(tolerance, truth[i]), p_.dtype)) &&
                std::signbit(got) == std::signbit(truth[i])) {
                continue;
            }
            report_.judge(gradient_tensors[tensor].name, static_cast<int64_t>(i), got, truth[i], tolerance);
        }
    }

    const Problem &p_;
    const polyhead_args &args_;
    const ExpectedGradients &expected_;
    const GradientOutputs &outputs_;
    Report report_;
};

// Compares these heads with the plain formula in so many orders of its sums; the heads with failures are added to failing.
Report compare_heads(const Problem &p, const polyhead_args &args, const GradientOutputs &outputs, const HeadSet &heads, int orders,
                     std::set<int64_t> *failing) {
    ExpectedGradients expected{evaluate_gradients<double>(p, args, heads), {}, {}};
    for (int quarter = 0; quarter < orders; quarter++) {
        expected.in_f32.push_back(evaluate_gradients<float>(p, args, heads, {POLYHEAD_F32, Rounded::everything, quarter}));
        if (is_16_bit(p.dtype)) {
            expected.in_storage.push_back(evaluate_gradients<float>(p, args, heads, {p.dtype, Rounded::everything, quarter}));
        }
    }
    GradientJudge judge(p, args, expected, outputs);
    for (int64_t head : heads) {
        const int64_t before = judge.report().failures();
        judge.judge(head);
        if (judge.report().failures() != before) {
            failing->insert(head);
        }
    }
    return judge.report();
}

} // namespace

// Heads that fail are compared again with the plain formula in four orders of its sums: where few rows make the error of a head, it may be
// small by luck in one.
std::string compare_gradients(const Problem &problem, const Inputs &inputs, const GradientOutputs &outputs, double max_flops,
                              double *worst) {
    std::set<int64_t> failing;
    const polyhead_args &args = inputs.reference_args();
    const HeadSet heads = sample_heads(problem, args, inputs.shape().seed, max_flops);
    Report report = compare_heads(problem, args, outputs, heads, 1, &failing);
    if (!failing.empty()) {
        constexpr size_t most = 4, orders = 4;
        HeadSet again(failing.begin(), failing.end());
        again.resize(std::min(again.size(), most));
        report = compare_heads(problem, args, outputs, again, orders, &failing);
    }
    if (worst != nullptr) {
        *worst = std::max(*worst, report.worst_ratio());
    }
    return report.text();
}

} // namespace polyhead::test

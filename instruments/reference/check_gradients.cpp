// Comparison of gradients with the float64 reference.
#include "check_gradients.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <vector>

#include "../calls/problems.h"
#include "expressions.h"
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

// The outputs that a call may have.
struct GradientTensor {
    const char *name;
    polyhead_tensor polyhead_args::*tensor;
    template <class Real> static const Gradient<Real> &of(const Gradients<Real> &all, size_t i) {
        const ModifierGradients<Real> &m = all.modifiers;
        const Gradient<Real> *const tensors[] = {&all.query,         &all.key,           &all.value,      &m.score_bias,
                                                 &m.slopes,          &m.sinks,           &m.gate,         &m.query_norm_weight,
                                                 &m.query_norm_bias, &m.key_norm_weight, &m.key_norm_bias};
        return i < std::size(tensors) ? *tensors[i] : m.tables[i - std::size(tensors)];
    }
};
constexpr GradientTensor gradient_tensors[] = {
    {"grad_query", &polyhead_args::grad_query},
    {"grad_key", &polyhead_args::grad_key},
    {"grad_value", &polyhead_args::grad_value},
    {"grad_score_bias", &polyhead_args::grad_score_bias},
    {"grad_alibi_slopes", &polyhead_args::grad_alibi_slopes},
    {"grad_sinks", &polyhead_args::grad_sinks},
    {"grad_gate", &polyhead_args::grad_gate},
    {"grad_query_norm_weight", &polyhead_args::grad_query_norm_weight},
    {"grad_query_norm_bias", &polyhead_args::grad_query_norm_bias},
    {"grad_key_norm_weight", &polyhead_args::grad_key_norm_weight},
    {"grad_key_norm_bias", &polyhead_args::grad_key_norm_bias},
};
constexpr size_t first_modifier = 3;
static_assert(std::size(gradient_tensors) == std::tuple_size<GradientOutputs>::value);

// A number beyond those of the storage type is an infinite one there.
double in_range(double reference, int32_t dtype) {
    constexpr double largest_f16 = 65504;
    return dtype == POLYHEAD_F16 && std::abs(reference) > largest_f16 ? std::copysign(INFINITY, reference) : reference;
}

class GradientJudge {
public:
    GradientJudge(const Problem &problem, const polyhead_args &args, const ExpectedGradients &expected, const GradientOutputs &outputs,
                  const TableOutputs &tables)
        : p_(problem), args_(args), expected_(expected), outputs_(outputs), tables_(tables) {}
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

    void judge_modifiers() {
        const size_t all = std::size(gradient_tensors) + expected_.truth.modifiers.tables.size();
        for (size_t tensor = first_modifier; tensor < all; tensor++) {
            for (size_t head = 0; !output(tensor).empty() && head < GradientTensor::of(expected_.truth, tensor).rounding.size(); head++) {
                judge_head(tensor, static_cast<int64_t>(head));
            }
        }
    }

private:
    // Behind the outputs of the table those of the expression.
    static bool of_expression(size_t tensor) { return tensor >= std::size(gradient_tensors); }
    const std::vector<float> &output(size_t tensor) const {
        return of_expression(tensor) ? tables_[tensor - std::size(gradient_tensors)] : outputs_[tensor];
    }
    static const char *name(size_t tensor) {
        return of_expression(tensor) ? "a gradient of the expression" : gradient_tensors[tensor].name;
    }

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

    // Nothing contributes to this element.
    bool none(size_t tensor, size_t i) const {
        if (tensor >= first_modifier) {
            return GradientTensor::of(expected_.truth, tensor).none[i] != 0;
        }
        const size_t width = static_cast<size_t>((args_.*gradient_tensors[tensor].tensor).shape[3]);
        return (tensor == 0 ? expected_.truth.empty : expected_.truth.unseen)[i / width] != 0;
    }

    void judge_head(size_t tensor, int64_t head) {
        const Gradient<double> &gradient = GradientTensor::of(expected_.truth, tensor);
        const std::vector<double> &truth = gradient.values;
        const size_t count = truth.size() / gradient.rounding.size(), first = static_cast<size_t>(head) * count, end = first + count;
        const int32_t dtype = of_expression(tensor) ? int32_t(POLYHEAD_F32) : (args_.*gradient_tensors[tensor].tensor).dtype;
        double largest = 0;
        for (size_t i = first; i < end; i++) {
            largest = std::isfinite(truth[i]) ? std::max(largest, std::abs(truth[i])) : largest;
        }
        const Rounding &rounding = gradient.rounding[static_cast<size_t>(head)];
        const PlainError plain{
            std::max(plain_error(expected_.in_storage, tensor, first, end, largest), half_unit(p_.dtype) * rounding.in_storage),
            std::max(plain_error(expected_.in_f32, tensor, first, end, largest), rounding.in_f32)};
        for (size_t i = first; i < end; i++) {
            const float got = output(tensor)[i];
            if (none(tensor, i)) {
                report_.must_equal(name(tensor), static_cast<int64_t>(i), got, 0.0);
                continue;
            }
            const double tolerance = is_16_bit(p_.dtype) ? gradient_tolerance_16_bit(p_.dtype, truth[i], largest, plain)
                                                         : gradient_tolerance(truth[i], largest, plain.in_f32);
            if (std::isinf(got) && std::isinf(in_range(truth[i] + std::copysign(tolerance, truth[i]), dtype)) &&
                std::signbit(got) == std::signbit(truth[i])) {
                continue;
            }
            report_.judge(name(tensor), static_cast<int64_t>(i), got, truth[i], tolerance);
        }
    }

    const Problem &p_;
    const polyhead_args &args_;
    const ExpectedGradients &expected_;
    const GradientOutputs &outputs_;
    const TableOutputs &tables_;
    Report report_;
};

// These are sums over heads, or of all of them.
bool of_modifiers(const Problem &p) {
    const bool tables = has_expression(p) && !expression_of(p)->gradients.empty();
    return p.grad_score_bias != 0 || p.grad_alibi != 0 || p.grad_sinks != 0 || p.grad_gate != 0 || p.grad_query_norm != 0 ||
           p.grad_key_norm != 0 || tables;
}

// Compares these heads with the plain formula in so many orders of its sums; the heads with failures are added to failing.
Report compare_heads(const Problem &p, const polyhead_args &args, const GradientOutputs &outputs, const TableOutputs &tables,
                     const HeadSet &heads, int orders, std::set<int64_t> *failing) {
    const Modifiers modifiers = of_modifiers(p) ? Modifiers::yes : Modifiers::no;
    ExpectedGradients expected{evaluate_gradients<double>(p, args, heads, {}, modifiers), {}, {}};
    for (int quarter = 0; quarter < orders; quarter++) {
        const auto plain = [&](int32_t storage) {
            return evaluate_gradients<float>(p, args, heads, {storage, Rounded::everything, quarter}, modifiers);
        };
        expected.in_f32.push_back(plain(POLYHEAD_F32));
        if (is_16_bit(p.dtype)) {
            expected.in_storage.push_back(plain(p.dtype));
        }
    }
    GradientJudge judge(p, args, expected, outputs, tables);
    for (int64_t head : heads) {
        const int64_t before = judge.report().failures();
        judge.judge(head);
        if (judge.report().failures() != before) {
            failing->insert(head);
        }
    }
    const int64_t before = judge.report().failures();
    judge.judge_modifiers();
    if (judge.report().failures() != before) {
        failing->insert(heads.begin(), heads.end());
    }
    return judge.report();
}

} // namespace

// Heads that fail are compared again with the plain formula in four orders of its sums: where few rows make the error of a head, it may be
// small by luck in one.
std::string compare_gradients(const Problem &problem, const Inputs &inputs, const GradientOutputs &outputs, const TableOutputs &tables,
                              double max_flops, double *worst) {
    std::set<int64_t> failing;
    const polyhead_args &args = inputs.reference_args();
    const HeadSet heads = of_modifiers(problem) ? all_heads(problem, args) : sample_heads(problem, args, inputs.shape().seed, max_flops);
    Report report = compare_heads(problem, args, outputs, tables, heads, 1, &failing);
    if (!failing.empty()) {
        constexpr size_t most = 4, orders = 4;
        HeadSet again = of_modifiers(problem) ? heads : HeadSet(failing.begin(), failing.end());
        again.resize(of_modifiers(problem) ? again.size() : std::min(again.size(), most));
        report = compare_heads(problem, args, outputs, tables, again, orders, &failing);
    }
    if (worst != nullptr) {
        *worst = std::max(*worst, report.worst_ratio());
    }
    return report.text();
}

} // namespace polyhead::test

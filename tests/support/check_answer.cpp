// Comparison of one call with the float64 reference.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <sstream>

#include "check.h"
#include "problems.h"
#include "reference.h"
#include "tolerance.h"

namespace polyhead::test {

namespace {

struct Expected {
    RowSets rows;
    Answer<double> truth;
    Answer<float> plain; // in the storage type
    std::vector<float> plain_lse;
};

struct Outputs {
    std::vector<float> out, lse;
};

// Adds a sentence for the worst element only: one wrong tile would print thousands.
class Report {
public:
    void judge(const char *tensor, int64_t index, float got, double reference, double tolerance) {
        // A reference that is itself not finite has nothing to say: only rows that see a poisoned key have one.
        if (std::isnan(reference) || std::isinf(reference)) {
            return;
        }
        checked_++;
        const double error = std::abs(static_cast<double>(got) - reference);
        const double ratio = within(got, reference, tolerance) ? error / tolerance : std::isnan(error) ? INFINITY : error / tolerance;
        failures_ += within(got, reference, tolerance) ? 0 : 1;
        if (!(ratio <= worst_ratio_)) {
            worst_ratio_ = ratio;
            std::ostringstream text;
            text.precision(9);
            text << tensor << "[" << index << "] is " << got << ", expected " << reference << ", error " << error << ", tolerance "
                 << tolerance;
            worst_ = text.str();
        }
    }
    void must_equal(const char *tensor, int64_t index, float got, double expected) {
        checked_++;
        if (!(static_cast<double>(got) == expected)) {
            failures_++;
            worst_ratio_ = INFINITY;
            std::ostringstream text;
            text << tensor << "[" << index << "] is " << got << ", expected exactly " << expected;
            worst_ = text.str();
        }
    }
    int64_t failures() const { return failures_; }
    double worst_ratio() const { return worst_ratio_; }
    std::string text() const {
        return failures_ == 0 ? "" : std::to_string(failures_) + " of " + std::to_string(checked_) + " elements wrong; worst: " + worst_;
    }

private:
    int64_t checked_ = 0, failures_ = 0;
    double worst_ratio_ = 0;
    std::string worst_;
};

// In a self-attention layer the poison beyond the length sits in query rows too: numbers near 3e38 overflow in f32 and not in double.
void drop_poisoned_queries(const Problem &p, const polyhead_args &args, RowSets &rows) {
    for (size_t b = 0; b < rows.size(); b++) {
        const int64_t limit = visible_keys(p, args, static_cast<int64_t>(b), num_rows(args) - 1);
        rows[b].erase(std::lower_bound(rows[b].begin(), rows[b].end(), limit), rows[b].end());
    }
}

double error_of(float plain, double truth) {
    const double error = std::abs(static_cast<double>(plain) - truth);
    return std::isfinite(error) ? error : 0.0; // an overflow of the plain formula must not excuse the kernel
}

// In 16 bits the plain formula overflows where ours must not (scores beyond 65504 in f16): then the fixed limit of the rule holds.
double error_16_bit(float plain, double truth) {
    return std::isfinite(truth) && !std::isfinite(plain) ? INFINITY : error_of(plain, truth);
}

double out_tolerance(int32_t dtype, double reference, double max_value, double plain_error) {
    return is_16_bit(dtype) ? tolerance_16_bit(dtype, reference, max_value, plain_error) : f32_tolerance(reference, max_value, plain_error);
}

// One group of rows of out: the rows share the error of the plain formula.
void judge_out(const Subject &subject, const polyhead_args &args, const Expected &expected, int64_t group, const float *out,
               Report &report) {
    const Problem &p = subject.problem;
    const int64_t rows = num_rows(args), width = args.out.shape[args.out.rank - 1];
    double plain_error = 0;
    for (int64_t q : expected.rows[group]) {
        for (int64_t i = (group * rows + q) * width; i < (group * rows + q + 1) * width; i++) {
            plain_error = std::max(plain_error, is_16_bit(p.dtype) ? error_16_bit(expected.plain.out[i], expected.truth.out[i])
                                                                   : error_of(expected.plain.out[i], expected.truth.out[i]));
        }
    }
    for (int64_t q : expected.rows[group]) {
        const bool empty = is_sdpa(p) && visible_keys(p, args, group / p.num_heads, q) == 0;
        const double max_value = expected.truth.max_value[group * rows + q];
        for (int64_t i = (group * rows + q) * width; i < (group * rows + q + 1) * width; i++) {
            if (empty) {
                report.must_equal("out", i, out[i], 0.0);
            } else {
                report.judge("out", i, out[i], expected.truth.out[i],
                             out_tolerance(p.dtype, expected.truth.out[i], max_value, plain_error));
            }
        }
    }
}

void judge_lse(const Subject &subject, const polyhead_args &args, const Expected &expected, int64_t b, int64_t h, const float *lse,
               Report &report) {
    const Problem &p = subject.problem;
    const std::vector<int64_t> &rows = expected.rows[is_sdpa(p) ? b * p.num_heads + h : b];
    const int64_t first = (b * p.num_heads + h) * num_rows(args);
    double plain_error = 0;
    for (int64_t q : rows) {
        plain_error = std::max(plain_error, error_of(expected.plain_lse[first + q], expected.truth.lse[first + q]));
    }
    for (int64_t q : rows) {
        const int64_t i = first + q;
        if (visible_keys(p, args, b, q) == 0) {
            report.must_equal("lse", i, lse[i], -INFINITY);
        } else {
            report.judge("lse", i, lse[i], expected.truth.lse[i], f32_tolerance(expected.truth.lse[i], 1.0, plain_error));
        }
    }
}

// Elements of every row, not only of the sampled ones.
std::string find_nan(const char *tensor, const std::vector<float> &values) {
    for (size_t i = 0; i < values.size(); i++) {
        if (std::isnan(values[i])) {
            return std::string(tensor) + "[" + std::to_string(i) + "] is NaN";
        }
    }
    return "";
}

// Compares the chosen rows; the groups with failures are added to failing.
Report compare(const Subject &subject, const polyhead_args &args, const RowSets &rows, const Outputs &outputs, std::set<int64_t> *failing) {
    const Problem &p = subject.problem;
    Expected expected{rows, evaluate<double>(p, args, subject.weights, rows), evaluate<float>(p, args, subject.weights, rows, p.dtype), {}};
    if (p.lse != 0) { // f32 in kernels of every storage type
        expected.plain_lse = is_16_bit(p.dtype) ? evaluate<float>(p, args, subject.weights, rows).lse : expected.plain.lse;
    }
    Report report;
    const auto note = [&](int64_t failures_before, int64_t group) {
        if (report.failures() != failures_before) {
            failing->insert(group);
        }
    };
    for (int64_t group = 0; group < num_groups(p, args); group++) {
        const int64_t before = report.failures();
        judge_out(subject, args, expected, group, outputs.out.data(), report);
        note(before, group);
    }
    for (int64_t b = 0; p.lse != 0 && b < batch_size(p, args); b++) {
        for (int64_t h = 0; h < p.num_heads; h++) {
            const int64_t before = report.failures();
            judge_lse(subject, args, expected, b, h, outputs.lse.data(), report);
            note(before, is_sdpa(p) ? b * p.num_heads + h : b);
        }
    }
    return report;
}

// The rule speaks of the largest error of the plain formula on the whole head. Sampled rows give a lower tolerance than that:
// whoever passes it, passes. Heads that do not are looked at again, all rows of them (a few heads are enough to tell).
std::string compare_thoroughly(const Subject &subject, const polyhead_args &args, const RowSets &sampled, const RowSets &all,
                               const Outputs &outputs, double *worst) {
    std::set<int64_t> failing;
    Report report = compare(subject, args, sampled, outputs, &failing);
    if (!failing.empty()) {
        RowSets again(sampled.size());
        for (int64_t group : failing) {
            again[static_cast<size_t>(group)] = all[static_cast<size_t>(group)];
            if (group == *std::next(failing.begin(), std::min<int64_t>(3, static_cast<int64_t>(failing.size()) - 1))) {
                break;
            }
        }
        report = compare(subject, args, again, outputs, &failing);
    }
    if (worst != nullptr) {
        *worst = std::max(*worst, report.worst_ratio());
    }
    return report.text();
}

} // namespace

std::string reproduce(const Subject &subject, const Shape &shape) {
    return "\n  kernel " + subject.name + "\n  " + generate_line(subject.problem) + "\n  shape: " + describe(shape);
}

std::string check_answer(const Subject &subject, const Shape &shape, double *worst, double max_flops) {
    const Problem &p = subject.problem;
    Inputs inputs(p, shape);
    const polyhead_args &args = inputs.reference_args();
    const polyhead_status status = subject.run(inputs.args());
    if (status.code != POLYHEAD_OK) {
        return "refused with code " + std::to_string(status.code) + ": " + status.message + reproduce(subject, shape);
    }
    const Outputs outputs{inputs.out(), inputs.lse()};
    const bool poisoned_queries = shape.poison && is_mha(p) && p.cross == 0, may_be_nan = shape.poison_key >= 0 || poisoned_queries;
    std::string failure = inputs.unwritten();
    if (failure.empty() && !may_be_nan) {
        failure = find_nan("out", outputs.out) + find_nan("lse", outputs.lse);
    }
    if (failure.empty() && !inputs.gaps_untouched()) {
        failure = "memory outside of the elements of out and lse was written";
    }
    RowSets sampled = sample_rows(p, args, shape.seed, max_flops), all = all_rows(p, args);
    if (poisoned_queries) {
        drop_poisoned_queries(p, args, sampled);
        drop_poisoned_queries(p, args, all);
    }
    const std::string wrong = compare_thoroughly(subject, args, sampled, all, outputs, worst);
    failure = failure.empty() || wrong.empty() ? failure + wrong : failure + "; " + wrong;
    return failure.empty() ? "" : failure + reproduce(subject, shape);
}

} // namespace polyhead::test

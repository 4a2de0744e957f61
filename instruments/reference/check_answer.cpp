// Comparison of one call with the float64 reference.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>

#include "../calls/problems.h"
#include "check_answer.h"
#include "check_gradients.h"
#include "reference.h"
#include "report.h"
#include "tolerance.h"
#include "visibility.h"

namespace polyhead::test {

namespace {

struct Expected {
    RowSets rows;
    Answer<double> truth;
    // The plain formula, evaluated once or in several orders of its sums: in the storage type; and for lse, scores and weights in f32, as
    // kernels of every storage type have them, of heads as they keep them.
    std::vector<Answer<float>> plain, plain_scores;
    std::vector<Answer<float>> other_out; // for out alone: in the storage type, heads and rows of caches rounded in other units

    // Rows that were evaluated of head h, batch row b.
    const std::vector<int64_t> &rows_of(const Problem &p, int64_t b, int64_t h) const {
        return rows[static_cast<size_t>(is_sdpa(p) ? b * p.num_heads + h : b)];
    }
};

// What the kernel wrote.
struct Outputs {
    std::vector<float> out, lse, scores, weights_mean;
    std::array<std::vector<float>, cache_tensors.size()> new_rows; // of caches
};

// In a self-attention layer the poison is in query rows too: numbers near 3e38 overflow in f32 and not in double.
void drop_poisoned_queries(const Inputs &inputs, RowSets &rows) {
    for (size_t b = 0; b < rows.size(); b++) {
        const auto poisoned = [&](int64_t q) { return inputs.poisoned(static_cast<int64_t>(b), 0, q); };
        rows[b].erase(std::remove_if(rows[b].begin(), rows[b].end(), poisoned), rows[b].end());
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

// The largest error of some element over the evaluations of the plain formula.
template <class Error, class Truth>
double largest_error(const std::vector<Answer<float>> &plain, std::vector<float> Answer<float>::*values, size_t i, Truth truth,
                     Error error) {
    double largest = 0;
    for (const Answer<float> &answer : plain) {
        largest = std::max(largest, error((answer.*values)[i], truth));
    }
    return largest;
}

// Keys of int8 may be multiplied by a query that is rounded to int8, too, but only where a few queries decode.
bool may_round_query(const Problem &p, const polyhead_args &args) {
    constexpr int64_t few = 16;
    return p.int8_cache != 0 && num_rows(args) <= few;
}

// Normalised heads, like the projected ones of mha, may wait for their products in 16 bits.
bool rounds_heads(const Problem &p) {
    return is_16_bit(p.dtype) && (is_mha(p) || contract::normalises(p));
}

double out_tolerance(const Problem &p, double reference, double max_value, const PlainError &plain, bool rounds_query) {
    return rounds_query && !is_16_bit(p.dtype) ? int8_tolerance(reference, max_value, plain.in_f32)
           : is_16_bit(p.dtype)                ? tolerance_16_bit(p.dtype, reference, max_value, plain, is_mha(p))
                                               : f32_tolerance(reference, max_value, plain.in_f32);
}

double scores_tolerance(const Problem &p, double reference, double plain_error) {
    return is_16_bit(p.dtype) && is_mha(p) ? rounded_heads_tolerance(reference, plain_error) : score_tolerance(reference, plain_error);
}

// Compares the outputs of one call with what is expected.
class Judge {
public:
    Judge(const Problem &problem, const Inputs &inputs, const Expected &expected, const Outputs &outputs)
        : p_(problem), inputs_(inputs), args_(inputs.reference_args()), expected_(expected), outputs_(outputs), rows_(num_rows(args_)),
          keys_(num_keys(problem, args_)) {}
    const Report &report() const { return report_; }

    // One group of rows of out: rows with like logits share the error of the plain formula.
    void judge_out(int64_t group) {
        const int64_t width = args_.out.shape[args_.out.rank - 1];
        PlainErrors in_storage(additive()), in_f32(additive());
        for (int64_t q : expected_.rows[static_cast<size_t>(group)]) {
            const double logit = largest_logit(group, q), rounded = rounding_of_out(group, q);
            in_storage.add(logit, std::max(rounded, plain_error_of_out(group, q, width)));
            in_f32.add(logit, std::max(rounded, f32_error_of_out(group, q, width)));
        }
        for (int64_t q : expected_.rows[static_cast<size_t>(group)]) {
            const bool empty = is_sdpa(p_) && expected_.truth.empty[group * rows_ + q] != 0;
            const double max_value = expected_.truth.max_value[group * rows_ + q], logit = largest_logit(group, q);
            const double of_probs = is_sdpa(p_) ? expected_.truth.products[group * rows_ + q] : 0.0;
            const PlainError plain{std::max(in_storage.near(logit), half_unit(p_.dtype) * of_probs), in_f32.near(logit)};
            for (int64_t i = (group * rows_ + q) * width; i < (group * rows_ + q + 1) * width; i++) {
                if (empty) {
                    report_.must_equal("out", i, outputs_.out[i], 0.0);
                } else {
                    report_.judge("out", i, outputs_.out[i], expected_.truth.out[i],
                                  out_tolerance(p_, expected_.truth.out[i], max_value, plain, may_round_query(p_, args_)));
                }
            }
        }
    }

    void judge_lse(int64_t b, int64_t h) {
        const int64_t first = (b * p_.num_heads + h) * rows_;
        PlainErrors errors(additive());
        for (int64_t q : expected_.rows_of(p_, b, h)) {
            errors.add(
                expected_.truth.largest[first + q],
                std::max(rounding_of_heads(b, h, q), error_of_scores(&Answer<float>::lse, first + q, expected_.truth.lse[first + q])));
        }
        for (int64_t q : expected_.rows_of(p_, b, h)) {
            const int64_t i = first + q;
            if (expected_.truth.empty[i] != 0) {
                report_.must_equal("lse", i, outputs_.lse[i], -INFINITY);
            } else {
                report_.judge("lse", i, outputs_.lse[i], expected_.truth.lse[i],
                              scores_tolerance(p_, expected_.truth.lse[i], errors.near(expected_.truth.largest[i])));
            }
        }
    }

    // Excluded keys must be exactly -inf in logits and exactly 0 in weights; before the masks every pair has a score.
    void judge_scores(int64_t b, int64_t h) {
        const bool before_masks = p_.scores == POLYHEAD_SCALED_SCORES || p_.scores == POLYHEAD_CAPPED_SCORES;
        const int64_t first = (b * p_.num_heads + h) * rows_, h_kv = is_sdpa(p_) ? h / (p_.num_heads / p_.num_kv_heads) : 0;
        // Scores of poisoned keys are not looked at: infinities of f32 are numbers in double, and huge numbers have huge errors.
        const auto skipped = [&](int64_t n) { return before_masks && inputs_.poisoned(b, h_kv, n); };
        // A weight has the error of its row, a logit its own: one term of -1e4 in a row leaves the other logits as they were.
        const auto logit = [&](int64_t q, int64_t i) {
            return p_.scores == POLYHEAD_WEIGHTS ? expected_.truth.largest[first + q] : expected_.truth.scores[i];
        };
        PlainErrors errors(additive() && !before_masks);
        for (int64_t q : expected_.rows_of(p_, b, h)) {
            errors.add(expected_.truth.largest[first + q], p_.scores == POLYHEAD_WEIGHTS ? rounding(b, h, q) : 0.0);
            const double of_heads = rounding_of_heads(b, h, q);
            for (int64_t n = 0; n < keys_; n++) {
                const int64_t i = (first + q) * keys_ + n;
                const double truth = expected_.truth.scores[i], of_score = p_.scores == POLYHEAD_WEIGHTS ? truth * (1 - truth) : 1;
                errors.add(logit(q, i),
                           skipped(n) ? 0.0 : std::max(of_heads * of_score, error_of_scores(&Answer<float>::scores, i, truth)));
            }
        }
        std::vector<uint8_t> seen;
        for (int64_t q : expected_.rows_of(p_, b, h)) {
            find_seen(p_, args_, b, h, q, seen);
            for (int64_t n = 0; n < keys_; n++) {
                const int64_t i = (first + q) * keys_ + n;
                if (skipped(n) || (p_.scores == POLYHEAD_WEIGHTS && undefined(b, h, q))) {
                    continue;
                }
                if (!before_masks && seen[n] == 0) {
                    report_.must_equal("scores", i, outputs_.scores[i], p_.scores == POLYHEAD_LOGITS ? -INFINITY : 0.0);
                } else {
                    report_.judge("scores", i, outputs_.scores[i], expected_.truth.scores[i],
                                  scores_tolerance(p_, expected_.truth.scores[i], errors.near(logit(q, i))));
                }
            }
            if (p_.scores == POLYHEAD_WEIGHTS && !undefined(b, h, q)) {
                judge_sum("sum of a row of scores", first + q, outputs_.scores, expected_.truth.scores);
            }
        }
    }

    // A key that no head sees has a mean of exactly 0.
    void judge_weights_mean(int64_t b) {
        PlainErrors errors(additive());
        for (int64_t q : expected_.rows_of(p_, b, 0)) {
            double error = 0, of_heads = 0;
            for (int64_t h = 0; h < p_.num_heads; h++) {
                error += rounding(b, h, q) / p_.num_heads;
                of_heads = std::max(of_heads, rounding_of_heads(b, h, q));
            }
            for (int64_t i = (b * rows_ + q) * keys_; i < (b * rows_ + q + 1) * keys_; i++) {
                const double truth = expected_.truth.weights_mean[i];
                error = std::max({error, of_heads * truth * (1 - truth), error_of_scores(&Answer<float>::weights_mean, i, truth)});
            }
            errors.add(largest_logit_of_heads(b, q), error);
        }
        std::vector<uint8_t> seen, any;
        for (int64_t q : expected_.rows_of(p_, b, 0)) {
            any.assign(static_cast<size_t>(keys_), 0);
            bool defined = true;
            for (int64_t h = 0; h < p_.num_heads; h++) {
                defined = defined && !undefined(b, h, q);
                find_seen(p_, args_, b, h, q, seen);
                std::transform(seen.begin(), seen.end(), any.begin(), any.begin(), [](uint8_t x, uint8_t y) { return x | y; });
            }
            for (int64_t n = 0; defined && n < keys_; n++) {
                const int64_t i = (b * rows_ + q) * keys_ + n;
                if (any[n] == 0) {
                    report_.must_equal("weights_mean", i, outputs_.weights_mean[i], 0.0);
                } else {
                    report_.judge("weights_mean", i, outputs_.weights_mean[i], expected_.truth.weights_mean[i],
                                  scores_tolerance(p_, expected_.truth.weights_mean[i], errors.near(largest_logit_of_heads(b, q))));
                }
            }
            if (defined) {
                judge_sum("sum of a row of weights_mean", b * rows_ + q, outputs_.weights_mean, expected_.truth.weights_mean);
            }
        }
    }

    // What the call put into the caches. These are projections: each has its own error, as out of a linear layer.
    void judge_caches() {
        for (size_t i = 0; i < cache_tensors.size(); i++) {
            const std::vector<double> &truth = expected_.truth.new_rows[i];
            // A norm makes small entries of large ones, or large of small ones: then a head has one error.
            const size_t width = static_cast<size_t>(i == 0 ? p_.head_dim : p_.head_dim_v);
            const bool normalised = i == 0 ? p_.key_norm != POLYHEAD_NO_NORM : p_.value_norm != 0;
            for (size_t n = 0; n < truth.size(); n++) {
                const size_t first = normalised ? n / width * width : n, end = normalised ? first + width : n + 1;
                double error = 0;
                for (const Answer<float> &answer : expected_.plain) {
                    for (size_t k = first; k < end; k++) {
                        error = std::max(error, error_of(answer.new_rows[i][k], truth[k]));
                    }
                }
                const double size = std::abs(truth[n]);
                const double tolerance = is_16_bit(p_.dtype) ? tolerance_16_bit(p_.dtype, truth[n], size, {error, 0}, false)
                                                             : f32_tolerance(truth[n], size, error);
                report_.judge(cache_tensors[i].name, static_cast<int64_t>(n), outputs_.new_rows[i][n], truth[n], tolerance);
            }
        }
    }

private:
    double error_of_scores(std::vector<float> Answer<float>::*values, int64_t i, double truth) const {
        return largest_error(expected_.plain_scores, values, static_cast<size_t>(i), truth, error_of);
    }
    // Weights of a row add up to 1, or to 0, whatever the errors of logits. With sinks they do not.
    template <class Truth> void judge_sum(const char *name, int64_t row, const std::vector<float> &weights, const Truth &truth) {
        if (p_.sinks == 0) {
            double sum = 0, expected = 0;
            for (int64_t i = row * keys_; i < (row + 1) * keys_; i++) {
                sum += weights[static_cast<size_t>(i)];
                expected += truth[i];
            }
            report_.judge(name, row, static_cast<float>(sum), expected, 1e-5);
        }
    }
    // A row that sees a poisoned key: 0 / NaN is not 0.
    bool undefined(int64_t b, int64_t h, int64_t q) const {
        const int64_t i = (b * p_.num_heads + h) * rows_ + q;
        return expected_.truth.empty[i] == 0 && !std::isfinite(expected_.truth.lse[i]);
    }
    // Additive terms of -1e4 leave a row whose logits have lost their last digits. What the plain formula makes of that is luck where a
    // head has few such rows, which share nothing with the others. So there the error counts as at least what rounding of the logits brings
    // to first order; in out, weights that are wrong alike cancel.
    double rounding(int64_t b, int64_t h, int64_t q) const {
        const double change = additive() ? expected_.truth.rounding[(b * p_.num_heads + h) * rows_ + q] : 0.0;
        return std::isfinite(change) ? std::min(change, 1.0) : 0.0;
    }
    // Of heads that are rounded to 16 bits, into a logit, to first order. The roundings of the plain formula may cancel by luck where few
    // rows of a head see a key.
    double rounding_of_heads(int64_t b, int64_t h, int64_t q) const {
        const double change = rounds_heads(p_) ? half_unit(p_.dtype) * expected_.truth.of_heads[(b * p_.num_heads + h) * rows_ + q] : 0.0;
        return std::isfinite(change) ? std::min(change, 1.0) : 0.0;
    }
    bool additive() const { return adds_tensors(p_); }
    double largest_logit_of_heads(int64_t b, int64_t q) const {
        double largest = 0;
        for (int64_t h = 0; h < p_.num_heads; h++) {
            largest = std::max(largest, expected_.truth.largest[(b * p_.num_heads + h) * rows_ + q]);
        }
        return largest;
    }
    double largest_logit(int64_t group, int64_t q) const {
        return is_linear(p_) ? 0.0 : is_sdpa(p_) ? expected_.truth.largest[group * rows_ + q] : largest_logit_of_heads(group, q);
    }
    template <class Error>
    double error_of_out(const std::vector<Answer<float>> &plain, int64_t group, int64_t q, int64_t width, Error error) const {
        double largest = 0;
        for (int64_t i = (group * rows_ + q) * width; i < (group * rows_ + q + 1) * width; i++) {
            largest = std::max(largest, largest_error(plain, &Answer<float>::out, static_cast<size_t>(i), expected_.truth.out[i], error));
        }
        return largest;
    }
    double plain_error_of_out(int64_t group, int64_t q, int64_t width) const {
        const auto error = is_16_bit(p_.dtype) ? error_16_bit : error_of;
        const double all =
            std::max(error_of_out(expected_.plain, group, q, width, error), error_of_out(expected_.other_out, group, q, width, error));
        // Rounding heads alone: beside it the other roundings may cancel it by luck.
        return is_16_bit(p_.dtype) && is_mha(p_) ? std::max(all, error_of_out(expected_.plain_scores, group, q, width, error)) : all;
    }
    // A layer of 16-bit storage has no evaluation in f32.
    double f32_error_of_out(int64_t group, int64_t q, int64_t width) const {
        return is_16_bit(p_.dtype) && is_mha(p_) ? 0.0 : error_of_out(expected_.plain_scores, group, q, width, error_of);
    }
    double rounding_of_out(int64_t group, int64_t q) const {
        const int64_t b = is_linear(p_) ? 0 : is_sdpa(p_) ? group / p_.num_heads : group;
        double error = 0;
        for (int64_t h = 0; !is_linear(p_) && h < p_.num_heads; h++) {
            if (!is_sdpa(p_) || h == group % p_.num_heads) {
                error = std::max(error, rounding(b, h, q) * expected_.truth.spread[(b * p_.num_heads + h) * rows_ + q] *
                                            expected_.truth.max_value[group * rows_ + q]);
            }
        }
        return error;
    }

    const Problem &p_;
    const Inputs &inputs_;
    const polyhead_args &args_;
    const Expected &expected_;
    const Outputs &outputs_;
    int64_t rows_, keys_;
    Report report_;
};

// Elements of every row, not only of the sampled ones.
std::string find_nan(const char *tensor, const std::vector<float> &values) {
    for (size_t i = 0; i < values.size(); i++) {
        if (std::isnan(values[i])) {
            return std::string(tensor) + "[" + std::to_string(i) + "] is NaN; ";
        }
    }
    return "";
}

// A call adds few rows to a cache, whose roundings may be small by luck; and few rows have the largest logits.
constexpr float other_units[] = {1.19f, 1.41f, 1.68f};

// Compares the chosen rows with the plain formula in so many orders of its sums; the groups with failures are added to failing.
Report compare(const Subject &subject, const Inputs &inputs, const RowSets &rows, const Outputs &outputs, int orders,
               std::set<int64_t> *failing) {
    const Problem &p = subject.problem;
    const polyhead_args &args = inputs.reference_args();
    Expected expected{rows, evaluate<double>(p, args, subject.weights, rows), {}, {}, {}};
    polyhead_args plain = args;
    const bool rounds_query = may_round_query(p, args);
    const Tensor query = rounds_query ? in_steps(args.query) : Tensor();
    plain.query = rounds_query ? query.view : args.query;
    for (int quarter = 0; quarter < orders; quarter++) {
        const bool behind_rotation = quarter % 2 != 0;
        expected.plain.push_back(
            evaluate<float>(p, plain, subject.weights, rows, {p.dtype, Rounded::everything, quarter, 1, behind_rotation}));
        const Evaluation of_scores{rounds_heads(p) ? p.dtype : POLYHEAD_F32, Rounded::heads, quarter, 1, behind_rotation};
        expected.plain_scores.push_back(is_16_bit(p.dtype) ? evaluate<float>(p, plain, subject.weights, rows, of_scores)
                                                           : expected.plain.back());
        if (is_16_bit(p.dtype) && p.cache != 0) { // heads that are kept as floats do not cancel the rounding of the cache by luck
            expected.plain_scores.push_back(evaluate<float>(p, args, subject.weights, rows, {p.dtype, Rounded::new_rows, quarter}));
            for (const float unit : other_units) {
                expected.other_out.push_back(
                    evaluate<float>(p, plain, subject.weights, rows, {p.dtype, Rounded::everything, quarter, unit}));
                expected.plain_scores.push_back(
                    evaluate<float>(p, args, subject.weights, rows, {p.dtype, Rounded::new_rows, quarter, unit}));
            }
        }
    }
    Judge judge(p, inputs, expected, outputs);
    int64_t before = 0;
    const auto note = [&](int64_t group) {
        if (judge.report().failures() != before) {
            failing->insert(group);
        }
        before = judge.report().failures();
    };
    for (int64_t group = 0; group < num_groups(p, args); group++) {
        judge.judge_out(group);
        note(group);
    }
    judge.judge_caches();
    note(0);
    for (int64_t b = 0; !is_linear(p) && b < batch_size(p, args); b++) {
        for (int64_t h = 0; h < p.num_heads; h++) {
            if (p.lse != 0) {
                judge.judge_lse(b, h);
            }
            if (p.scores != POLYHEAD_NO_SCORES) {
                judge.judge_scores(b, h);
            }
            note(is_sdpa(p) ? b * p.num_heads + h : b);
        }
        if (p.weights_mean != 0) {
            judge.judge_weights_mean(b);
            note(is_sdpa(p) ? b * p.num_heads : b);
        }
    }
    return judge.report();
}

// The rule uses the largest error of the plain formula on the whole head, with additive terms among its similar rows. Sampled rows give a
// lower tolerance: a head that passes with it, passes. Other heads are checked again with all their rows (a few heads are enough; where a
// mean over heads is an output, all heads of one batch row), and with the plain formula in four orders of the sums of scores: where logits
// are large, one or two rows of a head make its error, and in one order that may be small by luck.
std::string compare_thoroughly(const Subject &subject, const Inputs &inputs, const RowSets &sampled, const RowSets &all,
                               const Outputs &outputs, double *worst) {
    std::set<int64_t> failing;
    Report report = compare(subject, inputs, sampled, outputs, 1, &failing);
    if (!failing.empty()) {
        const int64_t heads = is_sdpa(subject.problem) && subject.problem.weights_mean != 0 ? subject.problem.num_heads : 1;
        RowSets again(sampled.size());
        int looked_at = 0;
        for (int64_t group : failing) {
            for (int64_t one = group / heads * heads; one < (group / heads + 1) * heads; one++) {
                again[static_cast<size_t>(one)] = all[static_cast<size_t>(one)];
            }
            if (++looked_at == 4 || heads > 1) {
                break;
            }
        }
        constexpr int orders = 4;
        report = compare(subject, inputs, again, outputs, is_linear(subject.problem) ? 1 : orders, &failing);
    }
    if (worst != nullptr) {
        *worst = std::max(*worst, report.worst_ratio());
    }
    return report.text();
}

} // namespace

std::string reproduce(const Subject &subject, const Shape &shape) {
    return "\n  kernel " + subject.name + "\n  " + generate_line(subject.problem) + "\n  shape: " + describe(subject.problem, shape);
}

std::string check_answer(const Subject &subject, const Shape &shape, double *worst, double max_flops) {
    const Problem &p = subject.problem;
    Inputs inputs(p, shape);
    const polyhead_args &args = inputs.reference_args();
    const polyhead_status status = subject.run(inputs.args());
    if (status.code != POLYHEAD_OK) {
        return "refused with code " + std::to_string(status.code) + ": " + status.message + reproduce(subject, shape);
    }
    const Outputs outputs{inputs.out(),
                          inputs.lse(),
                          inputs.read(&polyhead_args::scores),
                          inputs.read(&polyhead_args::weights_mean),
                          {inputs.new_rows(0), inputs.new_rows(1)}};
    const GradientOutputs gradients{inputs.read(&polyhead_args::grad_query),
                                    inputs.read(&polyhead_args::grad_key),
                                    inputs.read(&polyhead_args::grad_value),
                                    inputs.read(&polyhead_args::grad_score_bias),
                                    inputs.read(&polyhead_args::grad_alibi_slopes),
                                    inputs.read(&polyhead_args::grad_sinks),
                                    inputs.read(&polyhead_args::grad_gate),
                                    inputs.read(&polyhead_args::grad_query_norm_weight),
                                    inputs.read(&polyhead_args::grad_query_norm_bias),
                                    inputs.read(&polyhead_args::grad_key_norm_weight),
                                    inputs.read(&polyhead_args::grad_key_norm_bias)};
    TableOutputs tables;
    for (int32_t i = 0; i < args.num_expression_gradients; i++) {
        tables.push_back(Inputs::read(args.expression_gradients[i]));
    }
    const bool poisoned_queries = shape.poison && is_mha(p) && p.cross == 0 && p.cache == 0,
               may_be_nan = shape.poison_key >= 0 || shape.poison_query >= 0 || poisoned_queries;
    std::string failure = inputs.unwritten();
    for (const CallTensor &output : failure.empty() && !may_be_nan ? outputs_of(p.op) : std::vector<CallTensor>()) {
        const bool scores_see_all = p.scores == POLYHEAD_SCALED_SCORES || p.scores == POLYHEAD_CAPPED_SCORES;
        if (output.tensor != &polyhead_args::scores || !shape.poison || !scores_see_all) {
            failure += find_nan(output.name, inputs.read(output.tensor));
        }
    }
    if (failure.empty() && !inputs.gaps_untouched()) {
        failure = "memory outside of the elements of the outputs was written";
    }
    RowSets sampled = sample_rows(p, args, shape.seed, max_flops), all = all_rows(p, args);
    if (poisoned_queries) {
        drop_poisoned_queries(inputs, sampled);
        drop_poisoned_queries(inputs, all);
    }
    const std::string wrong = is_backward(p) ? compare_gradients(p, inputs, gradients, tables, max_flops, worst)
                                             : compare_thoroughly(subject, inputs, sampled, all, outputs, worst);
    failure = failure.empty() || wrong.empty() ? failure + wrong : failure + "; " + wrong;
    return failure.empty() ? "" : failure + reproduce(subject, shape);
}

} // namespace polyhead::test

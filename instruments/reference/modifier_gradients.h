// Gradients of what modifies attention: bias, slopes, sinks, gates and numbers of norms. Sums over rows, in the shapes of the tensors.
#ifndef POLYHEAD_INSTRUMENTS_MODIFIER_GRADIENTS_H
#define POLYHEAD_INSTRUMENTS_MODIFIER_GRADIENTS_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "expressions.h"
#include "gradients.h"
#include "reference_heads.h"
#include "reference_row.h"
#include "visibility.h"

namespace polyhead::test {

// One row, after its pairs.
template <class Real> struct GradientRow {
    int64_t b, h, q;
    Real lse, sum; // of the call, and grad_out times out
    const RowWeights<Real> &weights;
    const std::vector<Real> &grad_logits;
    const HeadKeys<Real> &head;
    double of_sums; // what rounding may bring into the difference of the gradient of a weight and `sum`
};

// Squares of roundings, added up.
struct Squares {
    double in_f32 = 0, in_storage = 0;
    void add(double f32, double storage) {
        in_f32 += f32 * f32;
        in_storage += storage * storage;
    }
    Squares times(double factor) const { return {in_f32 * factor * factor, in_storage * factor * factor}; }
    // growth: what a norm makes of an error; largest: of the gradients before it, which it rounds once more.
    void raise(Rounding &rounding, double scale = 1, double growth = 1, double largest = 0) const {
        const double of_norm = growth != 1 ? f32_unit * largest : 0.0;
        rounding.in_f32 = std::max(rounding.in_f32, growth * std::hypot(scale * std::sqrt(in_f32), of_norm));
        rounding.in_storage = std::max(rounding.in_storage, growth * scale * std::sqrt(in_storage));
    }
};

template <class Real> class ModifierSums {
public:
    // Without `wanted` every tensor stays empty.
    ModifierSums(const Problem &p, const polyhead_args &args, bool wanted, ModifierGradients<Real> &answer)
        : p_(p), args_(args), bias_(wanted && p.score_bias != 0, given(args.grad_score_bias, args.score_bias), answer.score_bias),
          slopes_(wanted && p.alibi != 0, given(args.grad_alibi_slopes, args.alibi_slopes), answer.slopes),
          sinks_(wanted && p.sinks != 0, given(args.grad_sinks, args.sinks), answer.sinks),
          gate_(wanted && p.gate != POLYHEAD_NO_GATE, args.gate, answer.gate),
          head_gate_(wanted && p.head_gate != 0, args.head_gate, answer.head_gate),
          query_norm_{{wanted && p.query_norm != 0, given(args.grad_query_norm_weight, args.query_norm_weight), answer.query_norm_weight},
                      {wanted && p.query_norm != 0, given(args.grad_query_norm_bias, args.query_norm_bias), answer.query_norm_bias}},
          key_norm_{{wanted && p.key_norm != 0, given(args.grad_key_norm_weight, args.key_norm_weight), answer.key_norm_weight},
                    {wanted && p.key_norm != 0, given(args.grad_key_norm_bias, args.key_norm_bias), answer.key_norm_bias}},
          expression_(wanted ? expression_of(p) : nullptr) {
        answer.tables.resize(expression_ != nullptr ? expression_->gradients.size() : 0);
        for (size_t i = 0; i < answer.tables.size(); i++) {
            tables_.emplace_back(true, args.expression_tensors[expression_->gradients[i]], answer.tables[i]);
        }
    }

    void add(const GradientRow<Real> &row) {
        if (bias_.exists() || slopes_.exists()) {
            add_logits(row);
        }
        if (!tables_.empty()) {
            add_tables(row);
        }
        if (sinks_.exists()) {
            const Real weight = args_.sinks.data == nullptr ? Real(0) : std::exp(Real(*element(args_.sinks, row.h)) - row.lse);
            sinks_.add({row.h}, -weight * row.sum, double(weight) * row.of_sums, double(weight * row.sum));
        }
        if (gate_.exists() || head_gate_.exists()) {
            add_gates(row);
        }
    }

    // Of a norm whose result has this gradient: of its weight and bias. change: what roundings brought into the gradient.
    void add_query_norm(const std::vector<Real> &normalised, const Real *gradient, const Squares &change) {
        add_norm(query_norm_, normalised, gradient, change);
    }
    void add_key_norm(const std::vector<Real> &normalised, const Real *gradient, const Squares &change) {
        add_norm(key_norm_, normalised, gradient, change);
    }

    // After all rows.
    void finish() {
        for (Sum *sum : {&bias_, &slopes_, &sinks_, &gate_, &head_gate_, &query_norm_[0], &query_norm_[1], &key_norm_[0], &key_norm_[1]}) {
            sum->finish();
        }
        for (Sum &sum : tables_) {
            sum.finish();
        }
    }

private:
    static const polyhead_tensor &given(const polyhead_tensor &output, const polyhead_tensor &input) {
        return output.rank != 0 ? output : input;
    }

    // A tensor that broadcasts; the elements that share its last two dimensions are a head.
    class Sum {
    public:
        Sum(bool exists, const polyhead_tensor &tensor, Gradient<Real> &gradient) : tensor_(tensor), gradient_(gradient) {
            int64_t elements = exists && tensor.data != nullptr && tensor.rank > 0 ? 1 : 0, heads = elements;
            for (int dim = 0; dim < tensor.rank; dim++) {
                elements *= tensor.shape[dim];
                heads *= dim + 2 < tensor.rank ? tensor.shape[dim] : 1;
            }
            gradient.values.assign(static_cast<size_t>(elements), Real(0));
            gradient.rounding.assign(static_cast<size_t>(elements > 0 ? heads : 0), {});
            gradient.none.assign(static_cast<size_t>(elements), 1);
            squares_.assign(static_cast<size_t>(elements), {});
        }
        bool exists() const { return !gradient_.values.empty(); }
        // The last of these indices are those of the tensor.
        void add(std::initializer_list<int64_t> index, Real value, double f32, double storage) {
            size_t at = 0;
            for (int dim = 0; dim < tensor_.rank; dim++) {
                const int64_t i = *(index.end() - tensor_.rank + dim);
                at = at * static_cast<size_t>(tensor_.shape[dim]) + static_cast<size_t>(tensor_.shape[dim] == 1 ? 0 : i);
            }
            gradient_.values[at] += value;
            gradient_.none[at] = 0;
            squares_[at].add(f32, storage);
        }
        void finish() {
            for (size_t i = 0; i < squares_.size(); i++) {
                squares_[i].raise(gradient_.rounding[i * gradient_.rounding.size() / squares_.size()]);
            }
        }

    private:
        const polyhead_tensor &tensor_;
        Gradient<Real> &gradient_;
        std::vector<Squares> squares_;
    };

    void add_logits(const GradientRow<Real> &row) {
        const int64_t position = position_of(p_, args_, row.b, row.q);
        for (size_t i = 0; i < row.grad_logits.size(); i++) {
            if (row.weights.seen[i] == 0) {
                continue;
            }
            const Real gradient = row.grad_logits[i];
            const int64_t n = static_cast<int64_t>(i);
            const double size = std::abs(double(gradient)),
                         change = std::hypot(double(row.weights.weights[i]) * row.of_sums, row.weights.rounding * size);
            if (bias_.exists()) {
                bias_.add({row.b, row.h, row.q, n}, gradient, change, size);
            }
            if (slopes_.exists()) {
                const double distance = std::abs(double(position - n));
                slopes_.add({row.b, row.h}, -gradient * Real(distance), distance * change, distance * size);
            }
        }
    }

    void add_tables(const GradientRow<Real> &row) {
        ExpressionPoint<Real> point = expression_point<Real>(p_, args_, row.b, row.h, row.q);
        for (size_t i = 0; i < row.grad_logits.size(); i++) {
            if (row.weights.seen[i] == 0) {
                continue;
            }
            const Real gradient = row.grad_logits[i];
            const double change =
                std::hypot(double(row.weights.weights[i]) * row.of_sums, (row.weights.rounding + f32_unit) * std::abs(double(gradient)));
            point.kv = static_cast<int64_t>(i);
            point.score = row.weights.scores[i];
            const OnRead<Real> add = [&](size_t tensor, std::initializer_list<int64_t> index, Real derivative) {
                const auto at = std::find(expression_->gradients.begin(), expression_->gradients.end(), tensor);
                const double size = std::abs(double(derivative));
                tables_[static_cast<size_t>(at - expression_->gradients.begin())].add(index, gradient * derivative, change * size,
                                                                                      std::abs(double(gradient)) * size);
            };
            if constexpr (std::is_same_v<Real, double>) {
                expression_->reads(point, add);
            } else {
                expression_->reads_f32(point, add);
            }
        }
    }

    // With out = gate * result, the derivative of the sigmoid is gate * (1 - gate): of the gate's logits by out as it is given. A gate of a
    // head may be 0, so that the result is made again.
    void add_gates(const GradientRow<Real> &row) {
        const float *const grad_out = element(args_.grad_out, row.b, row.h, row.q), *const out = element(args_.out, row.b, row.h, row.q);
        const std::vector<Real> logits =
            p_.gate != POLYHEAD_NO_GATE ? gate_row<Real>(args_.gate, row.b, row.h, row.q) : std::vector<Real>();
        Real of_head = 0;
        for (int64_t d = 0; d < p_.head_dim_v; d++) {
            const Real product = Real(grad_out[d]) * Real(out[d]);
            const int64_t at = logits.size() == 1 ? 0 : d;
            const Real logit = logits.empty() ? Real(0) : logits[static_cast<size_t>(at)];
            if (gate_.exists()) {
                const Real gradient = product * sigmoid(-logit);
                gate_.add({row.b, row.h, row.q, at}, gradient, f32_unit * std::abs(double(gradient)), std::abs(double(gradient)));
            }
            if (head_gate_.exists()) {
                Real result = 0;
                for (int64_t n = 0; n < row.head.keys(); n++) {
                    result += row.weights.seen[n] != 0 ? row.weights.weights[n] * row.head.value.row(n)[d] : Real(0);
                }
                of_head += Real(grad_out[d]) * (logits.empty() ? result : result * sigmoid(logit));
            }
        }
        if (head_gate_.exists()) {
            const double size = std::abs(double(of_head));
            head_gate_.add({row.h}, of_head, (row.weights.rounding + f32_unit) * size, size);
        }
    }

    void add_norm(Sum (&sums)[2], const std::vector<Real> &normalised, const Real *gradient, const Squares &change) {
        for (size_t i = 0; i < normalised.size(); i++) {
            const auto at = static_cast<int64_t>(i);
            const double f32 = std::sqrt(change.in_f32) + f32_unit * std::abs(double(gradient[i])), storage = std::sqrt(change.in_storage),
                         size = std::abs(double(normalised[i]));
            if (sums[0].exists()) {
                sums[0].add({at}, gradient[i] * normalised[i], f32 * size, storage * size);
            }
            if (sums[1].exists()) {
                sums[1].add({at}, gradient[i], f32, storage);
            }
        }
    }

    const Problem &p_;
    const polyhead_args &args_;
    Sum bias_, slopes_, sinks_, gate_, head_gate_, query_norm_[2], key_norm_[2];
    const ExpressionCase *expression_;
    std::vector<Sum> tables_;
};

} // namespace polyhead::test
#endif

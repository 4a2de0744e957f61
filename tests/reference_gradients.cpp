// The gradients of the reference: against finite differences of the forward reference, and that nothing behind an exclusion reaches them.
#include <array>
#include <cmath>
#include <functional>
#include <string>

#include "instruments/calls/dense.h"
#include "instruments/calls/inputs.h"
#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "instruments/reference/gradients.h"
#include "support/catch.h"
#include "support/feature_matrix.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr float step = 0x1p-13f; // inputs are multiples of it, so that a step is exact

Shape small_shape(uint64_t seed) {
    Shape shape;
    shape.batch = 2;
    shape.seq_len_q = 5;
    shape.seq_len_kv = 6;
    shape.seed = seed;
    shape.extras.left_out = leave_out_positions_kv;
    shape.extras.window_left = 2;
    shape.extras.window_right = 1;
    shape.extras.offset_reach = 1;
    shape.extras.softcap = 1.5f;
    shape.extras.slopes_per_batch_row = true;
    return shape;
}

// A tensor of a call that may be changed, its elements multiples of `step`.
struct Variable {
    std::vector<float> values;
    polyhead_tensor view{};
    explicit Variable(const polyhead_tensor &given) {
        if (given.rank != 0 && given.data != nullptr) {
            values = read_view(given);
            for (float &value : values) {
                value = std::isfinite(value) ? std::round(value / step) * step : value;
            }
            view = dense(values, {given.shape, given.shape + given.rank});
        } else {
            view = given;
        }
    }
};

// The tensors of modifiers that have gradients.
struct Modifying {
    const char *name;
    polyhead_tensor polyhead_args::*tensor;
    Gradient<double> ModifierGradients<double>::*gradient;
};
const Modifying modifying[] = {
    {"score_bias", &polyhead_args::score_bias, &ModifierGradients<double>::score_bias},
    {"alibi_slopes", &polyhead_args::alibi_slopes, &ModifierGradients<double>::slopes},
    {"sinks", &polyhead_args::sinks, &ModifierGradients<double>::sinks},
    {"gate", &polyhead_args::gate, &ModifierGradients<double>::gate},
    {"head_gate", &polyhead_args::head_gate, &ModifierGradients<double>::head_gate},
    {"query_norm_weight", &polyhead_args::query_norm_weight, &ModifierGradients<double>::query_norm_weight},
    {"query_norm_bias", &polyhead_args::query_norm_bias, &ModifierGradients<double>::query_norm_bias},
    {"key_norm_weight", &polyhead_args::key_norm_weight, &ModifierGradients<double>::key_norm_weight},
    {"key_norm_bias", &polyhead_args::key_norm_bias, &ModifierGradients<double>::key_norm_bias},
};

// A call whose inputs may be changed, with the results of the forward reference.
class Changing {
public:
    Changing(const Problem &p, const Shape &shape)
        : p_(p), inputs_(p, shape), args_(inputs_.reference_args()), query_(args_.query), key_(args_.key), value_(args_.value),
          grad_out_(args_.grad_out) {
        args_.query = query_.view;
        args_.key = key_.view;
        args_.value = value_.view;
        args_.grad_out = grad_out_.view;
        for (const Modifying &one : modifying) {
            others_.emplace_back(args_.*one.tensor);
            args_.*one.tensor = others_.back().view;
        }
        const ExpressionCase *const expression = expression_of(p_);
        expression_tensors_.assign(args_.expression_tensors, args_.expression_tensors + args_.num_expression_tensors);
        for (const size_t tensor : expression != nullptr ? expression->gradients : std::vector<size_t>()) {
            tables_.emplace_back(expression_tensors_[tensor]);
            expression_tensors_[tensor] = tables_.back().view;
        }
        args_.expression_tensors = expression_tensors_.data();
        const Answer<double> forward = truth(p_, args_);
        out_.assign(forward.out.begin(), forward.out.end());
        lse_.assign(forward.lse.begin(), forward.lse.end());
        args_.out = dense(out_, {shape.batch, p_.num_heads, shape.seq_len_q, p_.head_dim_v});
        args_.lse = dense(lse_, {shape.batch, p_.num_heads, shape.seq_len_q});
    }

    Gradients<double> gradients() const { return evaluate_gradients<double>(p_, args_, all_heads(p_, args_), {}, Modifiers::yes); }

    // How the sum of grad_out times out changes with each element.
    std::vector<double> differences(Variable &of) {
        std::vector<double> all;
        for (float &value : of.values) {
            const float before = value;
            value = before + step;
            const double above = loss();
            value = before - step;
            all.push_back((above - loss()) / (2.0 * step));
            value = before;
        }
        return all;
    }

    const Problem &problem() const { return p_; }
    const polyhead_args &args() const { return args_; }

private:
    double loss() const {
        const Answer<double> answer = truth(p_, args_);
        double sum = 0;
        for (size_t i = 0; i < answer.out.size(); i++) {
            sum += answer.out[i] * static_cast<double>(grad_out_.values[i]);
        }
        return sum;
    }

    Problem p_;
    Inputs inputs_;
    polyhead_args args_;

public:
    Variable query_, key_, value_, grad_out_;
    std::vector<Variable> others_; // in the order of `modifying`
    std::vector<Variable> tables_; // tensors of the expression whose gradient is asked for

private:
    std::vector<polyhead_tensor> expression_tensors_;
    std::vector<float> out_, lse_;
};

// out and lse are rounded to f32, and differences err by the square of the step.
void check_near(const char *name, const std::vector<double> &got, const std::vector<double> &expected) {
    INFO(name);
    REQUIRE(got.size() == expected.size());
    double worst = 0, largest = 1;
    for (size_t i = 0; i < got.size(); i++) {
        const double error = std::abs(got[i] - expected[i]);
        worst = error <= worst ? worst : error; // NaN is worst
        largest = std::max(largest, std::abs(expected[i]));
    }
    CHECK(worst <= 1e-5 * largest);
}

void check_differences(const Problem &p, const Shape &shape) {
    INFO(generate_line(p) << " " << describe(p, shape));
    Changing call(p, shape);
    const Gradients<double> gradients = call.gradients();
    check_near("query", gradients.query.values, call.differences(call.query_));
    check_near("key", gradients.key.values, call.differences(call.key_));
    if (p.value_in_key == 0) {
        check_near("value", gradients.value.values, call.differences(call.value_));
    }
    for (size_t i = 0; i < call.others_.size(); i++) {
        check_near(modifying[i].name, (gradients.modifiers.*modifying[i].gradient).values, call.differences(call.others_[i]));
    }
    for (size_t i = 0; i < call.tables_.size(); i++) {
        check_near("a tensor of the expression", gradients.modifiers.tables[i].values, call.differences(call.tables_[i]));
    }
}

struct Modifier {
    const char *name;
    std::function<void(Problem &)> set;
};

std::vector<Modifier> modifiers() {
    return {{"none", [](Problem &) {}},
            {"bottom_right", [](Problem &p) { p.causal = POLYHEAD_BOTTOM_RIGHT; }},
            {"top_left", [](Problem &p) { p.causal = POLYHEAD_TOP_LEFT; }},
            {"window", [](Problem &p) { p.window = 1; }},
            {"position_offsets", [](Problem &p) { p.position_offsets = p.causal = 1; }},
            {"kv_lengths", [](Problem &p) { p.kv_lengths = 1; }},
            {"mask", [](Problem &p) { p.mask = POLYHEAD_BOOLEAN_MASK; }},
            {"additive mask", [](Problem &p) { p.mask = POLYHEAD_ADDITIVE_MASK; }},
            {"score_bias", [](Problem &p) { p.score_bias = 1; }},
            {"score_bias of keys", [](Problem &p) { p.score_bias = p.score_bias_broadcast = 1; }},
            {"score_bias of rows", [](Problem &p) { p.score_bias = 1, p.score_bias_broadcast = 2; }},
            {"softcap", [](Problem &p) { p.softcap = 1; }},
            {"alibi", [](Problem &p) { p.alibi = 1; }},
            {"sinks", [](Problem &p) { p.sinks = 1; }},
            {"rope", [](Problem &p) { p.rope = POLYHEAD_ROPE_INTERLEAVED; }},
            {"rope, trailing", [](Problem &p) { p.rope = POLYHEAD_ROPE_HALF_SPLIT_TRAILING, p.rotary_dim = 2; }},
            {"head_gate", [](Problem &p) { p.head_gate = 1; }},
            {"gate of heads", [](Problem &p) { p.gate = POLYHEAD_GATE_OF_HEADS; }},
            {"gate of entries", [](Problem &p) { p.gate = POLYHEAD_GATE_OF_ENTRIES; }},
            {"rms norms", [](Problem &p) { p.query_norm = p.key_norm = POLYHEAD_RMS_NORM, p.value_norm = 1; }},
            {"rms norms plus one", [](Problem &p) { p.query_norm = p.key_norm = POLYHEAD_RMS_NORM_PLUS_ONE; }},
            {"layer norms", [](Problem &p) { p.query_norm = p.key_norm = POLYHEAD_LAYER_NORM; }},
            {"value_in_key", [](Problem &p) { p.value_in_key = 1; }}};
}

Problem small_problem() {
    return backward_problem(4, 4, 2, 3);
}

} // namespace

TEST_CASE("gradients: finite differences, every modifier alone") {
    for (const Modifier &modifier : modifiers()) {
        INFO(modifier.name);
        Problem p = small_problem();
        modifier.set(p);
        Shape shape = small_shape(3);
        if (p.kv_lengths != 0) {
            shape.lengths = {6, 2};
        }
        check_differences(p, shape);
    }
}

TEST_CASE("gradients: finite differences, every expression") {
    for (const std::vector<ExpressionCase> *const cases : {&expression_cases(), &table_cases()}) {
        for (const ExpressionCase &expression : *cases) {
            INFO(expression.name);
            Problem p = small_problem();
            p.expression = expression.text;
            check_differences(p, small_shape(4));
        }
    }
}

// Every third row of the matrix of features, as gradients of bare attention without what has none.
TEST_CASE("gradients: finite differences, modifiers together") {
    for (size_t i = 0; i < feature_rows().size(); i += 3) {
        Problem p = feature_problem(feature_rows()[i]);
        if (!is_sdpa(p) || p.int8_cache != 0 || p.page_size != 0) {
            continue;
        }
        p.op = POLYHEAD_SDPA_BACKWARD;
        p.lse = p.scores = p.weights_mean = p.seq_len_q = p.seq_len_kv = 0;
        Shape shape = small_shape(100 + i);
        shape.batch = 1;
        Random random(i);
        shape.extras = random_extras(p, shape.seq_len_q, shape.seq_len_kv, random);
        shape.extras.fill = shape.extras.fill == MaskFill::sentinels ? MaskFill::rows : shape.extras.fill;
        if (p.kv_lengths != 0) {
            shape.lengths = {4};
        }
        check_differences(p, shape);
    }
}

// With out and lse of all keys the parts of the keys give parts of the gradients.
TEST_CASE("gradients: parts of the keys with out and lse of all keys add up") {
    Problem p = small_problem();
    p.sinks = 1;
    const Inputs inputs(p, small_shape(5));
    const polyhead_args &args = inputs.reference_args();
    const Gradients<double> whole = evaluate_gradients<double>(p, args, all_heads(p, args));
    std::vector<double> sum(whole.query.values.size(), 0.0);
    for (const auto &[first, count] : {std::pair(0, 2), std::pair(2, 4)}) {
        polyhead_args part = args;
        for (polyhead_tensor *tensor : {&part.key, &part.value}) {
            tensor->data = static_cast<float *>(tensor->data) + first * tensor->stride[2];
            tensor->shape[2] = count;
        }
        const Gradients<double> gradients = evaluate_gradients<double>(p, part, all_heads(p, part));
        for (size_t i = 0; i < sum.size(); i++) {
            sum[i] += gradients.query.values[i];
        }
        for (int64_t head = 0; head < 4; head++) {
            for (int64_t i = 0; i < count * p.head_dim; i++) {
                CHECK(gradients.key.values[static_cast<size_t>(head * count * p.head_dim + i)] ==
                      whole.key.values[static_cast<size_t>((head * 6 + first) * p.head_dim + i)]);
            }
        }
    }
    check_near("query", sum, whole.query.values);
}

namespace {

// The call with its poison gives what the call without it gives, where the row or key is not poisoned itself.
template <class Real> void check_untouched(const Problem &p, Shape shape) {
    INFO(generate_line(p) << " " << describe(p, shape));
    const Inputs poisoned(p, shape);
    shape.poison = false;
    const int64_t poison_key = std::exchange(shape.poison_key, -1), poison_query = std::exchange(shape.poison_query, -1);
    const Inputs clean(p, shape);
    const polyhead_args &args = clean.reference_args();
    const HeadSet heads = all_heads(p, args);
    const Gradients<Real> expected = evaluate_gradients<Real>(p, args, heads),
                          got = evaluate_gradients<Real>(p, poisoned.reference_args(), heads);
    const int64_t rows = num_rows(args), keys = num_keys(p, args), group = p.num_heads / p.num_kv_heads;
    // A row that sees the poisoned key is lost, and then a key that a lost row sees.
    std::vector<uint8_t> lost_keys(heads.size() * static_cast<size_t>(keys), 0), seen;
    int64_t compared = 0, lost = 0;
    const auto compare = [&](const std::vector<Real> &a, const std::vector<Real> &b, int64_t row, int64_t width) {
        for (int64_t i = row * width; i < (row + 1) * width; i++) {
            CHECK(a[static_cast<size_t>(i)] == b[static_cast<size_t>(i)]);
            compared++;
        }
    };
    for (int64_t head = 0; head < args.query.shape[0] * p.num_heads; head++) {
        const int64_t b = head / p.num_heads, h = head % p.num_heads;
        for (int64_t q = 0; q < rows; q++) {
            find_seen(p, args, b, h, q, seen);
            if ((poison_key >= 0 && seen[static_cast<size_t>(poison_key)] != 0) || q == poison_query) {
                for (int64_t n = 0; n < keys; n++) {
                    lost_keys[static_cast<size_t>((b * p.num_kv_heads + h / group) * keys + n)] |= seen[static_cast<size_t>(n)];
                }
                lost++;
            } else {
                compare(got.query.values, expected.query.values, head * rows + q, p.head_dim);
            }
        }
    }
    for (size_t i = 0; i < lost_keys.size(); i++) {
        if (lost_keys[i] == 0) {
            compare(got.key.values, expected.key.values, static_cast<int64_t>(i), p.head_dim);
            compare(got.value.values, expected.value.values, static_cast<int64_t>(i), p.head_dim_v);
        }
    }
    CHECK(compared > 0);
    CHECK((lost > 0) == (poison_key >= 0 || poison_query >= 0));
}

} // namespace

TEST_CASE("gradients: nothing behind an exclusion reaches them") {
    for (uint64_t seed = 0; seed < 8; seed++) { // a fourth of them poisons all tensors, the others one of each side
        Problem p = small_problem();
        p.causal = seed % 3 == 0 ? POLYHEAD_TOP_LEFT : POLYHEAD_BOTTOM_RIGHT;
        p.kv_lengths = 1;
        p.mask = POLYHEAD_BOOLEAN_MASK;
        p.softcap = static_cast<int32_t>(seed / 4);
        Shape shape = small_shape(seed);
        shape.seq_len_q = 7;
        shape.lengths = {6, 3};
        shape.extras.fill = seed % 2 == 0 ? MaskFill::rows : MaskFill::columns;
        shape.poison = true;
        check_untouched<double>(p, shape);
        check_untouched<float>(p, shape);
        shape.poison_key = 2;
        check_untouched<double>(p, shape);
        shape.poison_key = -1;
        shape.poison_query = 4;
        check_untouched<double>(p, shape);
        check_untouched<float>(p, shape);
    }
}

TEST_CASE("gradients: empty rows and keys that nobody sees have 0") {
    Problem p = small_problem();
    p.kv_lengths = 1;
    Shape shape = small_shape(1);
    shape.lengths = {0, 4};
    const Inputs inputs(p, shape);
    const polyhead_args &args = inputs.reference_args();
    const Gradients<double> gradients = evaluate_gradients<double>(p, args, all_heads(p, args));
    const auto largest = [](const std::vector<double> &values, size_t first, size_t count) {
        double most = 0;
        for (size_t i = first; i < first + count; i++) {
            most = std::max(most, std::abs(values[i]));
        }
        return most;
    };
    const size_t of_row = 4 * 5 * 4, of_key = 6 * 4, of_value = 6 * 3;
    CHECK(largest(gradients.query.values, 0, of_row) == 0);
    CHECK(largest(gradients.query.values, of_row, of_row) > 0.01);
    CHECK(largest(gradients.key.values, 0, 2 * of_key) == 0);
    CHECK(largest(gradients.key.values, 2 * of_key, 4 * 4) > 0.01);
    CHECK(largest(gradients.key.values, 2 * of_key + 4 * 4, 2 * 4) == 0);
    CHECK(largest(gradients.value.values, 2 * of_value, 4 * 3) > 0.01);
    CHECK(largest(gradients.value.values, 2 * of_value + 4 * 3, 2 * 3) == 0);
}

// Tensors and kernels of a training step, and the check of its gradients against float64.
#include "training_calls.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "../instruments/calls/problems.h"
#include "../instruments/calls/random.h"
#include "../instruments/reference/expressions.h"
#include "../instruments/reference/gradients.h"
#include "table.h"

namespace bench {
namespace {

using polyhead::Problem;
using polyhead::Status;

constexpr float dropped = 0.1f;

// Whether some elements in a row are those of float64, which are those of the last key/value head.
bool equal(const Floats &found, size_t first, size_t count, const std::vector<double> &expected) {
    double largest = 1;
    for (size_t i = first; i < first + count; i++)
        largest = std::max(largest, std::fabs(expected[i]));
    for (size_t i = first; i < first + count; i++)
        if (!(std::fabs(double(found[i]) - expected[i]) <= 1e-4 * largest))
            return false;
    return true;
}

bool reads_table(Extra extra) {
    return extra >= Extra::table;
}

// The text of a table, with its gradient or without.
std::string expression_of(Extra extra) {
    const bool index = extra == Extra::index || extra == Extra::index_gradient;
    const std::string text = polyhead::test::table_cases()[index ? 1 : 0].text;
    return extra == Extra::table_gradient || extra == Extra::index_gradient ? text : text.substr(0, text.find("; grad"));
}

constexpr int window_columns = 16, reach = 11; // of rows and columns of a window, in the table of an index

// How far apart two tokens of a window lie, in rows and columns of the table.
int32_t index_of(int64_t q, int64_t kv) {
    const auto apart = [](int64_t a, int64_t b) { return std::clamp<int64_t>(a - b, -reach, reach) + reach; };
    return int32_t(apart(q / window_columns, kv / window_columns) * (2 * reach + 1) + apart(q % window_columns, kv % window_columns));
}

} // namespace

Floats normal(int64_t elements, uint64_t seed) {
    polyhead::test::Random random(seed);
    Floats made(static_cast<size_t>(elements));
    std::generate(made.begin(), made.end(), [&] { return random.normal(); });
    return made;
}

double TrainingShape::pairs() const {
    const double all = double(length) * length;
    return double(batch) * heads * (causal ? (all + length) / 2 : all);
}

TrainingInputs::TrainingInputs(const TrainingShape &s) : shape_(s) {
    const int64_t row = int64_t(s.length) * s.dim;
    query_ = normal(s.batch * s.heads * row, 1);
    key_ = normal(s.batch * s.kv_heads * row, 2);
    value_ = normal(s.batch * s.kv_heads * row, 3);
    grad_out_ = normal(s.batch * s.heads * row, 4);
}

polyhead::TensorView TrainingInputs::bias() const {
    if (bias_.empty())
        bias_ = normal(int64_t(shape_.heads) * shape_.length * shape_.length, 5);
    return polyhead::view(bias_.data(), {1, shape_.heads, shape_.length, shape_.length});
}

std::vector<polyhead::TensorView> TrainingInputs::tensors(Extra extra) const {
    const int64_t length = shape_.length, buckets = 16, elements = (2 * reach + 1) * (2 * reach + 1);
    if (table_.empty())
        table_ = normal(shape_.heads * elements, 6);
    if (extra == Extra::table || extra == Extra::table_gradient)
        return {polyhead::view(table_.data(), {buckets, shape_.heads})};
    for (int64_t i = int64_t(index_.size()); i < length * length; i++)
        index_.push_back(index_of(i / length, i % length));
    return {polyhead::view(table_.data(), {shape_.heads, elements}), polyhead::view(index_.data(), {length, length})};
}

TrainingCalls::TrainingCalls(const TrainingInputs &inputs, bool causal, Extra extra) : inputs_(inputs), extra_(extra) {
    error_ = compile(causal);
    if (!error_.empty())
        return;
    const TrainingShape &s = inputs.shape();
    tensors_ = reads_table(extra) ? inputs.tensors(extra) : std::vector<polyhead::TensorView>();
    const size_t rows = size_t(s.batch) * s.heads * s.length, keys = size_t(s.batch) * s.kv_heads * s.length;
    out_.resize(rows * s.dim);
    lse_.resize(rows);
    grad_query_.resize(rows * s.dim);
    grad_key_.resize(keys * s.dim);
    grad_value_.resize(keys * s.dim);
    const auto set = [&](auto &args) {
        args.query = inputs.query();
        args.key = inputs.key();
        args.value = inputs.value();
        args.out = inputs.of_queries(out_);
        if (extra == Extra::dropout)
            args.dropout_p = dropped;
        else if (reads_table(extra)) {
            args.expression_tensors = tensors_.data();
            args.num_expression_tensors = int32_t(tensors_.size());
        } else if (extra != Extra::none)
            args.score_bias = inputs.bias();
    };
    polyhead::SdpaArgs forward;
    set(forward);
    forward_args_ = polyhead::c_args(forward);
    forward.lse = polyhead::view(lse_.data(), {s.batch, s.heads, s.length});
    const polyhead_args kept = polyhead::c_args(forward);
    polyhead::SdpaBackwardArgs backward;
    set(backward);
    backward.lse = forward.lse;
    backward.grad_out = inputs.grad_out();
    backward.grad_query = inputs.of_queries(grad_query_);
    backward.grad_key = inputs.of_keys(grad_key_);
    backward.grad_value = inputs.of_keys(grad_value_);
    if (extra == Extra::bias_gradient) {
        grad_bias_.resize(size_t(s.heads) * s.length * s.length);
        backward.grad_score_bias = polyhead::view(grad_bias_.data(), {1, s.heads, s.length, s.length});
    }
    if (extra == Extra::table_gradient || extra == Extra::index_gradient) {
        const polyhead::TensorView &table = tensors_[0];
        grad_table_.resize(size_t(table.shape[0] * table.shape[1]));
        grad_table_view_ = polyhead::view(grad_table_.data(), {table.shape[0], table.shape[1]});
        backward.expression_gradients = &grad_table_view_;
        backward.num_expression_gradients = 1;
    }
    backward_args_ = polyhead::c_args(backward);
    const std::pair<const polyhead::Kernel *, const polyhead_args &> calls[] = {
        {with_lse_, kept}, {forward_, forward_args_}, {backward_, backward_args_}};
    for (const auto &[kernel, args] : calls)
        if (const Status status = Status(polyhead_run(kernel, &args)); !status.ok()) {
            error_ = status.message();
            return;
        }
    const bool unknown = extra == Extra::dropout || extra == Extra::table || extra == Extra::index; // to the reference
    error_ = unknown ? "" : check();
}

// forward_ alone runs in the rounds; with_lse_ makes what the backward call reads.
std::string TrainingCalls::compile(bool causal) {
    const TrainingShape &s = inputs_.shape();
    Problem problem = polyhead::test::sdpa_problem(s.heads, s.dim, s.kv_heads);
    problem.causal = causal ? POLYHEAD_BOTTOM_RIGHT : 0;
    problem.dropout = extra_ == Extra::dropout;
    problem.score_bias = extra_ == Extra::bias || extra_ == Extra::bias_gradient;
    if (reads_table(extra_)) {
        expression_ = expression_of(extra_);
        problem.expression = expression_.c_str();
    }
    std::string error;
    forward_ = kernel_of(problem, &error);
    problem.lse = 1;
    with_lse_ = forward_ ? kernel_of(problem, &error) : nullptr;
    problem.lse = 0;
    problem.op = POLYHEAD_SDPA_BACKWARD;
    problem.grad_score_bias = extra_ == Extra::bias_gradient;
    backward_ = with_lse_ ? kernel_of(problem, &error) : nullptr;
    return backward_ ? "" : error;
}

std::string TrainingCalls::check() const {
    const TrainingShape &s = inputs_.shape();
    const int64_t last = int64_t(s.batch) * s.kv_heads - 1;
    const auto truth = polyhead::test::evaluate_gradients<double>(backward_->problem, backward_args_, {last});
    const size_t head = size_t(s.length) * s.dim, group = head * (s.heads / s.kv_heads);
    const bool right = equal(grad_query_, grad_query_.size() - group, group, truth.query.values) &&
                       equal(grad_key_, head * last, head, truth.key.values) && equal(grad_value_, head * last, head, truth.value.values);
    return right ? "" : "the gradients of the last head are not those of float64";
}

void TrainingCalls::forward() const {
    (void)polyhead_run(forward_, &forward_args_);
}

void TrainingCalls::backward() const {
    (void)polyhead_run(backward_, &backward_args_);
}

} // namespace bench

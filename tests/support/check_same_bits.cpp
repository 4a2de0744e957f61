// The same input gives the same bits, whatever the threads, the batch neighbours and the padding of keys.
#include <algorithm>
#include <array>

#include "check.h"
#include "instruments/calls/call_tensors.h"
#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "instruments/reference/half.h"
#include "instruments/reference/reference.h"

namespace polyhead::test {

namespace {

// One vector per output of the operation.
using Bits = std::vector<std::vector<float>>;

// What a call wrote into the caches for some batch rows.
using Rows = std::array<std::vector<float>, cache_tensors.size()>;
Rows rows_of(const Inputs &inputs, int64_t b) {
    return inputs.args().key_cache.rank == 0 ? Rows() : Rows{inputs.new_rows(0, b), inputs.new_rows(1, b)};
}
bool same_rows(const Rows &a, const Rows &b) {
    return same_bits(a[0], b[0]) && same_bits(a[1], b[1]);
}

// Runs into outputs full of canaries; false when the call was refused.
bool run_fresh(const Subject &subject, Inputs &inputs, const polyhead_args &args, std::string *failure) {
    inputs.gaps_untouched(); // refills the outputs
    const polyhead_status status = subject.run(args);
    if (status.code != POLYHEAD_OK) {
        *failure = std::string("refused: ") + status.message;
    }
    return status.code == POLYHEAD_OK;
}

// "" or the name of the first output that differs.
std::string difference(const Subject &subject, const Bits &a, const Bits &b) {
    for (size_t i = 0; i < a.size(); i++) {
        if (!same_bits(a[i], b[i])) {
            return i < outputs_of(subject.problem.op).size() ? outputs_of(subject.problem.op)[i].name : "a gradient of the expression";
        }
    }
    return "";
}

// Whether the outermost dimension of this input is the batch.
bool has_batch(const Problem &problem, const polyhead_tensor &tensor, polyhead_tensor polyhead_args::*which) {
    for (const contract::TensorRow &row : contract::taken_by(problem)) {
        if (row.tensor == which) {
            const bool spread = row.least_rank != 0 && tensor.rank > 0 && tensor.shape[0] == 1;
            return tensor.rank == row.rank && !spread && contract::counted(row.extents[0], problem) == POLYHEAD_EXTENT_B;
        }
    }
    return false;
}

// The view of batch row b alone.
void take_row(polyhead_tensor &tensor, int64_t b) {
    tensor.data = static_cast<char *>(tensor.data) + b * tensor.stride[0] * dtype_bytes(tensor.dtype);
    tensor.shape[0] = 1;
}

// Views of the tensors of an expression and of their gradients, to which arguments point.
struct ExpressionViews {
    std::vector<polyhead_tensor> tensors, gradients;

    // change(view, declaration) of each of the arguments, which get the views.
    template <class Change> void take(const Problem &problem, polyhead_args *args, Change change) {
        tensors.assign(args->expression_tensors, args->expression_tensors + args->num_expression_tensors);
        gradients.assign(args->expression_gradients, args->expression_gradients + args->num_expression_gradients);
        const ExpressionCase *const expression = expression_of(problem);
        for (size_t i = 0; i < tensors.size(); i++) {
            change(tensors[i], expression->tensors[i]);
        }
        for (size_t i = 0; i < gradients.size(); i++) {
            change(gradients[i], expression->tensors[expression->gradients[i]]);
        }
        args->expression_tensors = tensors.data();
        args->expression_gradients = gradients.data();
    }
};

// The arguments of batch row b alone. views keeps what args points to.
polyhead_args one_row(const Subject &subject, const polyhead_args &all, int64_t b, ExpressionViews &views) {
    polyhead_args args = all;
    for (const CallTensor &input : inputs_of(all.op)) {
        if (has_batch(subject.problem, args.*input.tensor, input.tensor)) {
            take_row(args.*input.tensor, b);
        }
    }
    for (const CallTensor &cache : cache_tensors) {
        if (has_batch(subject.problem, args.*cache.tensor, cache.tensor)) {
            take_row(args.*cache.tensor, b);
        }
    }
    for (const CallTensor &output : outputs_of(all.op)) {
        if (has_batch(subject.problem, args.*output.tensor, output.tensor)) {
            take_row(args.*output.tensor, b);
        }
    }
    views.take(subject.problem, &args, [&](polyhead_tensor &tensor, const polyhead_declaration &declared) {
        if (declared.rank > 0 && declared.extents[0] == POLYHEAD_EXTENT_B) {
            take_row(tensor, b);
        }
    });
    return args;
}

// The arguments with fewer keys: whatever has that dimension is a narrower view of the same memory.
polyhead_args narrowed(const Subject &subject, const polyhead_args &all, int64_t keys, ExpressionViews &views) {
    const int dim = is_mha(subject.problem) ? 1 : 2;
    polyhead_args args = all;
    if (subject.problem.page_size != 0) {
        args.page_table.shape[1] = keys / subject.problem.page_size;
    } else {
        args.key.shape[dim] = args.value.shape[dim] = args.key_scales.shape[dim] = args.value_scales.shape[dim] = keys;
        args.key_cache.shape[2] = args.value_cache.shape[2] = keys;
        args.grad_key.shape[dim] = args.grad_value.shape[dim] = keys;
    }
    for (auto [mask, broadcast] :
         {std::pair(&args.mask, subject.problem.mask_broadcast), std::pair(&args.score_bias, subject.problem.score_bias_broadcast),
          std::pair(&args.grad_score_bias, subject.problem.score_bias_broadcast)}) {
        if (mask->rank != 0 && (broadcast & POLYHEAD_BROADCAST_KV) == 0) {
            mask->shape[mask->rank - 1] = keys;
        }
    }
    for (polyhead_tensor *tensor : {&args.positions_kv, &args.scores, &args.weights_mean}) {
        const bool of_new_keys = tensor == &args.positions_kv && subject.problem.cache != 0;
        if (tensor->rank != 0 && !of_new_keys) {
            tensor->shape[tensor->rank - 1] = keys;
        }
    }
    views.take(subject.problem, &args, [&](polyhead_tensor &tensor, const polyhead_declaration &declared) {
        for (int32_t d = 0; d < declared.rank; d++) {
            if (declared.extents[d] == POLYHEAD_EXTENT_KV) {
                tensor.shape[d] = keys;
            }
        }
    });
    return args;
}

// The elements that these views have, of memory that holds the expected answer.
Bits part_of(const Inputs &inputs, const Bits &expected, const polyhead_args &views) {
    Bits part(num_outputs(views));
    for (size_t i = 0; i < part.size(); i++) {
        const polyhead_tensor &whole = output_at(inputs.args(), i);
        polyhead_tensor view = output_at(views, i);
        if (view.rank == 0) {
            continue;
        }
        // The same view of the dense copy.
        const std::vector<int64_t> stride = dense_strides(std::vector<int64_t>(whole.shape, whole.shape + whole.rank));
        const int64_t bytes = static_cast<char *>(view.data) - static_cast<char *>(whole.data);
        const int64_t row = whole.stride[0] == 0 ? 0 : bytes / dtype_bytes(whole.dtype) / whole.stride[0];
        std::copy(stride.begin(), stride.end(), view.stride);
        view.dtype = POLYHEAD_F32;
        view.data = const_cast<float *>(expected[i].data()) + row * stride[0];
        part[i] = Inputs::read(view);
    }
    return part;
}

// The first batch row whose new rows in the caches differ, or -1.
int64_t other_rows(const Inputs &inputs, const std::vector<Rows> &expected) {
    for (size_t b = 0; b < expected.size(); b++) {
        if (!same_rows(rows_of(inputs, static_cast<int64_t>(b)), expected[b])) {
            return static_cast<int64_t>(b);
        }
    }
    return -1;
}

std::vector<Rows> all_rows_of(const Inputs &inputs) {
    std::vector<Rows> rows;
    for (int64_t b = 0; inputs.args().key_cache.rank != 0 && b < inputs.shape().batch; b++) {
        rows.push_back(rows_of(inputs, b));
    }
    return rows;
}

std::string threads(const Subject &subject, Inputs &inputs, const Bits &expected, const std::vector<Rows> &rows,
                    const std::vector<int> &counts) {
    std::string failure;
    for (int count : counts) {
        subject.set_threads(count);
        if (!run_fresh(subject, inputs, inputs.args(), &failure)) {
            return failure;
        }
        const std::string output = difference(subject, read_outputs(inputs.args()), expected);
        if (!output.empty()) {
            return output + ": " + std::to_string(count) + " threads give other bits than 1";
        }
        if (other_rows(inputs, rows) >= 0) {
            return "caches: " + std::to_string(count) + " threads write other bits than 1";
        }
    }
    return "";
}

std::string alone(const Subject &subject, Inputs &inputs, const Bits &expected, const std::vector<Rows> &rows) {
    std::string failure;
    ExpressionViews views;
    const int64_t batch = inputs.args().query.shape[0];
    for (int64_t b = 0; b < batch; b++) {
        const polyhead_args args = one_row(subject, inputs.args(), b, views);
        if (!run_fresh(subject, inputs, args, &failure)) {
            return "batch row " + std::to_string(b) + " alone: " + failure;
        }
        Bits got = read_outputs(args), wanted = part_of(inputs, expected, args);
        const std::vector<CallTensor> outputs = outputs_of(args.op);
        for (size_t i = 0; i < got.size(); i++) { // and gradients of the expression, of which most are
            if (i >= outputs.size() || !has_batch(subject.problem, inputs.args().*outputs[i].tensor, outputs[i].tensor)) {
                got[i] = wanted[i] = {}; // a sum over all batch rows
            }
        }
        const std::string output = difference(subject, got, wanted);
        if (!output.empty()) {
            return output + ": batch row " + std::to_string(b) + " alone gives other bits than among " + std::to_string(batch);
        }
        if (!rows.empty() && !same_rows(rows_of(inputs, b), rows[static_cast<size_t>(b)])) {
            return "caches: batch row " + std::to_string(b) + " alone is written with other bits than among " + std::to_string(batch);
        }
    }
    return "";
}

// Narrows T_kv; the lengths stay. In a self-attention layer it is the query length too.
std::string padding(const Subject &subject, Inputs &inputs, const Bits &expected, const std::vector<Rows> &rows) {
    const Problem &p = subject.problem;
    const std::vector<int32_t> &lengths = inputs.shape().lengths;
    if (lengths.empty() || p.seq_len_kv != 0 || (is_mha(p) && p.cross == 0 && p.cache == 0)) {
        return "";
    }
    std::string failure;
    ExpressionViews views;
    const int64_t added = p.cache != 0 ? inputs.shape().seq_len_q : 0;
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end()) + added, full = num_keys(p, inputs.args());
    for (int64_t pad : {0, 1, 3, 16, 63, 64, 129, 300}) {
        const int64_t keys = in_whole_pages(p, longest + pad);
        if (keys >= full) {
            break;
        }
        const polyhead_args args = narrowed(subject, inputs.args(), keys, views);
        if (!run_fresh(subject, inputs, args, &failure)) {
            return failure;
        }
        const std::string output = difference(subject, read_outputs(args), part_of(inputs, expected, args));
        if (!output.empty()) {
            return output + ": keys padded by " + std::to_string(pad) + " give other bits than by " + std::to_string(full - longest);
        }
        if (other_rows(inputs, rows) >= 0) {
            return "caches: keys padded by " + std::to_string(pad) + " give other bits";
        }
    }
    return "";
}

// Runs with 1 thread, then look() at the bits, of caches too.
template <class Look> std::string compare_with_one_thread(const Subject &subject, const Shape &shape, Look look) {
    const int32_t threads_before = polyhead_num_threads();
    Inputs inputs(subject.problem, shape);
    std::string failure;
    subject.set_threads(1);
    if (run_fresh(subject, inputs, inputs.args(), &failure)) {
        failure = look(inputs, read_outputs(inputs.args()), all_rows_of(inputs));
    }
    subject.set_threads(threads_before);
    return failure.empty() ? "" : failure + reproduce(subject, shape);
}

} // namespace

std::string check_same_bits(const Subject &subject, const Shape &shape) {
    return compare_with_one_thread(subject, shape, [&](Inputs &inputs, const Bits &expected, const std::vector<Rows> &rows) {
        std::string failure = threads(subject, inputs, expected, rows, {2, 5});
        if (failure.empty() && !is_linear(subject.problem)) {
            failure = alone(subject, inputs, expected, rows);
        }
        return failure.empty() ? padding(subject, inputs, expected, rows) : failure;
    });
}

std::string check_two_threads(const Subject &subject, const Shape &shape) {
    return compare_with_one_thread(subject, shape, [&](Inputs &inputs, const Bits &expected, const std::vector<Rows> &rows) {
        return threads(subject, inputs, expected, rows, {2});
    });
}

} // namespace polyhead::test

// Wrong arguments leave the outputs untouched.
#include <algorithm>
#include <cmath>

#include "check.h"
#include "instruments/calls/call_tensors.h"
#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "instruments/reference/reference.h"

namespace polyhead::test {

namespace {

struct Mistake {
    std::string name;
    polyhead_args args;
    polyhead_code code;
};

using TensorPlace = polyhead_tensor polyhead_args::*;

class Mistakes {
public:
    Mistakes(const Problem &problem, const polyhead_args &good) : p_(problem), good_(good) {}
    std::vector<Mistake> all() {
        for (const CallTensor &input : inputs_of(good_.op)) {
            add_for_tensor(input.name, input.tensor);
        }
        for (const CallTensor &output : outputs_of(good_.op)) {
            add_for_tensor(output.name, output.tensor);
        }
        for (const CallTensor &cache : cache_tensors) {
            add_for_tensor(cache.name, cache.tensor);
        }
        add("arguments of another size", POLYHEAD_UNSUPPORTED, [](polyhead_args &a) { a.size = 8; });
        add("scratch memory without an address", POLYHEAD_NULL_POINTER, [](polyhead_args &a) { a.scratch_bytes = 64; });
        add("an executor of width 0", POLYHEAD_BAD_VALUE, [](polyhead_args &a) {
            static const polyhead_executor executor = polyhead_executor_of(0, nullptr, nullptr);
            a.executor = &executor;
        });
        add("another operation", POLYHEAD_WRONG_OPERATION,
            [this](polyhead_args &a) { a.op = is_linear(p_) ? POLYHEAD_SDPA : POLYHEAD_LINEAR; });
        add_for_result("out", &polyhead_args::out);
        add_for_result("grad_query", &polyhead_args::grad_query);
        add_for_result("grad_key", &polyhead_args::grad_key);
        add_for_result("grad_value", &polyhead_args::grad_value);
        if (is_backward(p_)) {
            add("two gradients in one place", POLYHEAD_ALIASED, [](polyhead_args &a) { a.grad_key.data = a.grad_query.data; });
            add("the operation forward", POLYHEAD_WRONG_OPERATION, [](polyhead_args &a) { a.op = POLYHEAD_SDPA; });
            add_for_presence("out", true, &polyhead_args::out, true);
            add_for_presence("grad_out", true, &polyhead_args::grad_out, true);
            add_for_presence("grad_score_bias", p_.grad_score_bias != 0, &polyhead_args::grad_score_bias, true);
            add_for_presence("grad_alibi_slopes", p_.grad_alibi != 0, &polyhead_args::grad_alibi_slopes, true);
            add_for_presence("grad_sinks", p_.grad_sinks != 0, &polyhead_args::grad_sinks, true);
            if (good_.num_expression_gradients > 0) {
                add("a gradient of the expression missing", POLYHEAD_WRONG_OPERATION,
                    [](polyhead_args &a) { a.num_expression_gradients--; });
                add("gradients of the expression null", POLYHEAD_NULL_POINTER, [](polyhead_args &a) { a.expression_gradients = nullptr; });
                add("tensors of the expression as its gradients", POLYHEAD_ALIASED,
                    [](polyhead_args &a) { a.expression_gradients = a.expression_tensors; });
            }
            add_for_presence("grad_gate", p_.grad_gate != 0, &polyhead_args::grad_gate, true);
            add_for_presence("grad_query_norm_weight", p_.grad_query_norm != 0, &polyhead_args::grad_query_norm_weight, true);
            add_for_presence("grad_key_norm_bias", p_.grad_key_norm != 0 && p_.key_norm == POLYHEAD_LAYER_NORM,
                             &polyhead_args::grad_key_norm_bias, true);
        }
        if (!is_linear(p_)) {
            add_for_attention();
        }
        return std::move(mistakes_);
    }

private:
    template <class Change> void add(const std::string &name, polyhead_code code, Change change) {
        mistakes_.push_back({name, good_, code});
        change(mistakes_.back().args);
    }

    void add_for_tensor(const std::string &name, TensorPlace tensor) {
        const int rank = (good_.*tensor).rank, inner = rank - 1;
        if (rank == 0) {
            return;
        }
        const auto add_for = [&](const std::string &what, polyhead_code code, auto change) {
            add(name + ": " + what, code, [&](polyhead_args &a) { change(a.*tensor); });
        };
        const bool mask =
            tensor == &polyhead_args::mask || tensor == &polyhead_args::score_bias || tensor == &polyhead_args::grad_score_bias;
        add_for("data null", POLYHEAD_NULL_POINTER, [](polyhead_tensor &t) { t.data = nullptr; });
        if (tensor != &polyhead_args::page_table) { // which may have any length
            add_for("innermost extent one more", POLYHEAD_WRONG_SHAPE, [inner](polyhead_tensor &t) { t.shape[inner]++; });
        }
        add_for("negative extent", POLYHEAD_WRONG_SHAPE, [](polyhead_tensor &t) { t.shape[0] = -1; });
        if (mask) {
            add_for("rank 5", POLYHEAD_WRONG_SHAPE, [](polyhead_tensor &t) {
                t.shape[t.rank] = t.stride[t.rank] = 1;
                t.rank = 5;
            });
        } else if (tensor != &polyhead_args::alibi_slopes && tensor != &polyhead_args::grad_alibi_slopes) {
            add_for("rank one less", POLYHEAD_WRONG_SHAPE, [](polyhead_tensor &t) { t.rank--; });
        }
        // The stride of a single element means nothing; integers may have any.
        if ((good_.*tensor).shape[inner] > 1 && (good_.*tensor).dtype != POLYHEAD_I32) {
            add_for("innermost stride 2", POLYHEAD_WRONG_STRIDE, [inner](polyhead_tensor &t) { t.stride[inner] = 2; });
        }
        add_for("another dtype", POLYHEAD_WRONG_DTYPE,
                [](polyhead_tensor &t) { t.dtype = t.dtype == POLYHEAD_BF16 ? POLYHEAD_F16 : POLYHEAD_BF16; });
    }

    void add_for_result(const std::string &name, TensorPlace tensor) {
        const std::vector<CallTensor> outputs = outputs_of(good_.op);
        if (std::none_of(outputs.begin(), outputs.end(), [&](const CallTensor &output) { return output.tensor == tensor; })) {
            return;
        }
        add(name + " aliases query", POLYHEAD_ALIASED, [&](polyhead_args &a) { a.query.data = (a.*tensor).data; });
        const int rows = (good_.*tensor).rank - 2;
        if ((good_.*tensor).shape[rows] > 1) { // the stride of one row means nothing
            add(name + " rows overlap", POLYHEAD_WRONG_STRIDE, [&](polyhead_args &a) { (a.*tensor).stride[rows] = 0; });
        }
    }

    // What the kernel was not built to take or give, and what it was built to give.
    void add_for_presence(const char *name, bool exists, TensorPlace tensor, bool required) {
        if (!exists) {
            add(std::string(name) + " for a kernel without", POLYHEAD_WRONG_OPERATION, [&](polyhead_args &a) { a.*tensor = a.out; });
        } else if (required) {
            add(std::string(name) + " missing", POLYHEAD_NULL_POINTER, [&](polyhead_args &a) { a.*tensor = polyhead_tensor{}; });
        }
    }

    static auto not_a_number(float polyhead_args::*value, float wrong) {
        return [value, wrong](polyhead_args &a) { a.*value = wrong; };
    }

    // Gates and norms.
    void add_for_layers_of_models() {
        add_for_presence("gate", p_.gate != 0 && is_sdpa(p_), &polyhead_args::gate, true);
        add_for_presence("query_norm_weight", p_.query_norm != 0, &polyhead_args::query_norm_weight, false);
        add_for_presence("key_norm_weight", p_.key_norm != 0, &polyhead_args::key_norm_weight, false);
        if (contract::normalises(p_)) {
            for (const float wrong : {0.0f, -1.0f, NAN, INFINITY}) {
                add("norm_epsilon " + std::to_string(wrong), POLYHEAD_BAD_VALUE, not_a_number(&polyhead_args::norm_epsilon, wrong));
            }
        } else {
            add("norm_epsilon for a kernel without", POLYHEAD_WRONG_OPERATION, not_a_number(&polyhead_args::norm_epsilon, 1.0f));
        }
    }

    void add_for_attention() {
        add("softmax_scale NaN", POLYHEAD_BAD_VALUE, [](polyhead_args &a) {
            a.has_softmax_scale = 1;
            a.softmax_scale = NAN;
        });
        if (p_.value_in_key != 0) {
            add_for_presence("value", false, &polyhead_args::value, true);
        }
        add_for_presence("page_table", p_.page_size != 0, &polyhead_args::page_table, true);
        add_for_presence("cache_lengths", p_.cache != 0, &polyhead_args::cache_lengths, true);
        for (const CallTensor &cache : cache_tensors) {
            add_for_presence(cache.name, p_.cache != 0, cache.tensor, true);
        }
        if (p_.cache != 0 && p_.shared_cache == 0) {
            add("key_cache aliases the input", POLYHEAD_ALIASED, [](polyhead_args &a) { a.query.data = a.key_cache.data; });
        }
        add_for_presence("key_scales", p_.int8_cache != 0, &polyhead_args::key_scales, true);
        add_for_presence("value_scales", p_.int8_cache != 0 && p_.value_in_key == 0, &polyhead_args::value_scales, true);
        add_for_presence("lse", p_.lse != 0 || is_backward(p_), &polyhead_args::lse, true);
        add_for_presence("scores", p_.scores != 0, &polyhead_args::scores, true);
        add_for_presence("weights_mean", p_.weights_mean != 0, &polyhead_args::weights_mean, true);
        add_for_presence("position_offsets", p_.position_offsets != 0, &polyhead_args::position_offsets, false);
        add_for_presence("mask", p_.mask != 0, &polyhead_args::mask, false);
        add_for_presence("score_bias", p_.score_bias != 0, &polyhead_args::score_bias, false);
        add_for_presence("alibi_slopes", p_.alibi != 0, &polyhead_args::alibi_slopes, false);
        add_for_presence("sinks", p_.sinks != 0, &polyhead_args::sinks, false);
        add_for_presence("rope_cos", p_.rope != 0, &polyhead_args::rope_cos, true);
        add_for_presence("rope_sin", p_.rope != 0, &polyhead_args::rope_sin, true);
        add_for_presence("head_gate", p_.head_gate != 0, &polyhead_args::head_gate, false);
        add_for_layers_of_models();
        if (p_.softcap != 0) {
            add("softcap 0", POLYHEAD_BAD_VALUE, not_a_number(&polyhead_args::softcap, 0.0f));
            add("softcap negative", POLYHEAD_BAD_VALUE, not_a_number(&polyhead_args::softcap, -1.0f));
            add("softcap NaN", POLYHEAD_BAD_VALUE, not_a_number(&polyhead_args::softcap, NAN));
        } else {
            add("softcap for a kernel without", POLYHEAD_WRONG_OPERATION, not_a_number(&polyhead_args::softcap, 5.0f));
        }
        add(p_.window != 0 ? "window of a negative span" : "window for a kernel without",
            p_.window != 0 ? POLYHEAD_BAD_VALUE : POLYHEAD_WRONG_OPERATION, [](polyhead_args &a) {
                a.has_window = 1;
                a.window_left = -2;
            });
        if (good_.scores.rank != 0) {
            add("scores aliases key", POLYHEAD_ALIASED, [](polyhead_args &a) { (a.key.rank != 0 ? a.key : a.query).data = a.scores.data; });
        }
        if (has_expression(p_)) {
            add("a tensor of the expression missing", POLYHEAD_WRONG_OPERATION, [](polyhead_args &a) { a.num_expression_tensors--; });
        }
    }

    const Problem &p_;
    const polyhead_args &good_;
    std::vector<Mistake> mistakes_;
};

// One sentence, or nothing when the call was refused as it should be.
std::string refused(const Subject &subject, const Inputs &inputs, const std::string &name, const polyhead_args &args, polyhead_code code) {
    const polyhead_status status = subject.run(args);
    if (status.code == POLYHEAD_OK) {
        return name + ": accepted";
    }
    if (status.code != code) {
        return name + ": code " + std::to_string(status.code) + ", expected " + std::to_string(code) + " (" + status.message + ")";
    }
    if (status.message[0] == '\0') {
        return name + ": refused without a sentence";
    }
    return inputs.outputs_untouched() ? "" : name + ": refused, but an output was written";
}

// Scales of the last valid key of batch row 0 that no integer may be multiplied by.
std::string check_scales(const Subject &subject, const Inputs &inputs) {
    std::string failures;
    const int64_t length = key_length(subject.problem, inputs.args(), 0), page_size = subject.problem.page_size;
    for (const TensorPlace tensor : {&polyhead_args::key_scales, &polyhead_args::value_scales}) {
        if ((inputs.args().*tensor).rank == 0 || length == 0) {
            continue;
        }
        for (const float wrong : {-1e-30f, NAN, INFINITY}) {
            polyhead_args args = inputs.args();
            polyhead_tensor &scales = args.*tensor;
            std::vector<float> all = Inputs::read(scales);
            const std::vector<int64_t> stride = dense_strides(std::vector<int64_t>(scales.shape, scales.shape + scales.rank));
            const int64_t key = length - 1;
            const int64_t outer =
                page_size != 0 ? static_cast<const int32_t *>(args.page_table.data)[key / page_size * args.page_table.stride[1]] : 0;
            const int64_t inner = page_size != 0 ? key % page_size : key;
            all[static_cast<size_t>(outer * stride[0] + (scales.shape[1] - 1) * stride[1] + inner * stride[2] + scales.shape[3] - 1)] =
                wrong;
            std::copy(stride.begin(), stride.end(), scales.stride);
            scales.data = all.data();
            const std::string failure = refused(subject, inputs, "scale " + std::to_string(wrong), args, POLYHEAD_BAD_VALUE);
            failures += failure.empty() ? "" : "\n  " + failure;
        }
    }
    return failures;
}

} // namespace

std::string check_refusals(const Subject &subject, const Shape &shape) {
    const Inputs inputs(subject.problem, shape);
    std::string failures;
    for (const Mistake &mistake : Mistakes(subject.problem, inputs.args()).all()) {
        const std::string failure = refused(subject, inputs, mistake.name, mistake.args, mistake.code);
        failures += failure.empty() ? "" : "\n  " + failure;
    }
    if (subject.problem.kv_lengths != 0) {
        for (int32_t length : {-1, static_cast<int32_t>(num_keys(subject.problem, inputs.args())) + 1}) {
            std::vector<int32_t> lengths(static_cast<size_t>(shape.batch), 0);
            lengths.back() = length;
            polyhead_args args = inputs.args();
            args.kv_lengths = TensorView(lengths.data(), DType::i32, {shape.batch}, {1});
            const std::string failure = refused(subject, inputs, "key length " + std::to_string(length), args, POLYHEAD_BAD_VALUE);
            failures += failure.empty() ? "" : "\n  " + failure;
        }
    }
    for (int64_t past_the_last : {0, 1}) { // -1, and one more than there is room for
        if (subject.problem.cache != 0) {
            const int64_t room = num_keys(subject.problem, inputs.args()) - shape.seq_len_q;
            std::vector<int32_t> lengths(static_cast<size_t>(shape.batch), 0);
            lengths.back() = past_the_last != 0 ? static_cast<int32_t>(room + 1) : -1;
            polyhead_args args = inputs.args();
            args.cache_lengths = TensorView(lengths.data(), DType::i32, {shape.batch}, {1});
            const std::string failure =
                refused(subject, inputs, "cache length " + std::to_string(lengths.back()), args, POLYHEAD_BAD_VALUE);
            failures += failure.empty() ? "" : "\n  " + failure;
        }
    }
    if (subject.problem.page_size != 0 && key_length(subject.problem, inputs.args(), 0) > 0) {
        for (int32_t page :
             {-1, static_cast<int32_t>((subject.problem.cache != 0 ? inputs.args().key_cache : inputs.args().key).shape[0])}) {
            polyhead_args args = inputs.args();
            std::vector<int32_t> row(static_cast<size_t>(args.page_table.shape[1]), 0);
            row[static_cast<size_t>((key_length(subject.problem, args, 0) - 1) / subject.problem.page_size)] = page;
            args.page_table = TensorView(row.data(), DType::i32, {shape.batch, static_cast<int64_t>(row.size())}, {0, 1});
            const std::string failure = refused(subject, inputs, "page " + std::to_string(page), args, POLYHEAD_BAD_VALUE);
            failures += failure.empty() ? "" : "\n  " + failure;
        }
    }
    failures += check_scales(subject, inputs);
    return failures.empty() ? "" : failures + reproduce(subject, shape);
}

} // namespace polyhead::test

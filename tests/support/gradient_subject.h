// The plain formula of gradients as if it were a kernel, for tests of the checks.
#ifndef POLYHEAD_TESTS_GRADIENT_SUBJECT_H
#define POLYHEAD_TESTS_GRADIENT_SUBJECT_H

#include <functional>
#include <utility>
#include <vector>

#include "instruments/calls/dense.h"
#include "instruments/calls/outputs.h"
#include "instruments/calls/subject.h"
#include "instruments/reference/gradients.h"

namespace polyhead::test {

// before may falsify the problem and the arguments, whose tensors are f32; after the gradients.
struct GradientFault {
    std::function<void(Problem &, polyhead_args &)> before;
    std::function<void(const polyhead_args &, Gradients<float> &)> after;
};

inline void write_gradient(const polyhead_tensor &tensor, const std::vector<float> &values) {
    size_t next = 0;
    if (tensor.rank == 0) {
        return;
    }
    for_each_offset(tensor, [&](int64_t offset, int64_t, int64_t, int64_t) {
        for (int64_t i = offset; i < offset + tensor.shape[tensor.rank - 1]; i++, next++) {
            if (is_16_bit(tensor.dtype)) {
                static_cast<uint16_t *>(tensor.data)[i] = to_storage_bits(values[next], tensor.dtype);
            } else {
                static_cast<float *>(tensor.data)[i] = values[next];
            }
        }
    });
}

// storage: the type to which scores, weights and their gradients are rounded. Results have the type of the problem in any case.
inline Subject gradient_subject(const Problem &p, int32_t storage, GradientFault fault = {}) {
    Subject subject;
    subject.name = "plain_formula_of_gradients";
    subject.problem = p;
    subject.run = [p, storage, fault = std::move(fault)](const polyhead_args &given) {
        Problem problem = p;
        polyhead_args args = given;
        std::vector<std::vector<float>> floats;
        for (const auto which :
             {&polyhead_args::query, &polyhead_args::key, &polyhead_args::value, &polyhead_args::out, &polyhead_args::grad_out}) {
            polyhead_tensor &tensor = args.*which;
            floats.push_back(read_view(tensor));
            tensor = dense(floats.back(), {tensor.shape, tensor.shape + tensor.rank});
        }
        if (fault.before) {
            fault.before(problem, args);
        }
        Gradients<float> gradients = evaluate_gradients<float>(problem, args, all_heads(problem, args), {storage}, Modifiers::yes);
        if (fault.after) {
            fault.after(args, gradients);
        }
        write_gradient(given.grad_query, gradients.query.values);
        write_gradient(given.grad_key, gradients.key.values);
        write_gradient(given.grad_value, gradients.value.values);
        write_gradient(given.grad_score_bias, gradients.modifiers.score_bias.values);
        write_gradient(given.grad_alibi_slopes, gradients.modifiers.slopes.values);
        write_gradient(given.grad_sinks, gradients.modifiers.sinks.values);
        write_gradient(given.grad_gate, gradients.modifiers.gate.values);
        write_gradient(given.grad_query_norm_weight, gradients.modifiers.query_norm_weight.values);
        write_gradient(given.grad_query_norm_bias, gradients.modifiers.query_norm_bias.values);
        write_gradient(given.grad_key_norm_weight, gradients.modifiers.key_norm_weight.values);
        write_gradient(given.grad_key_norm_bias, gradients.modifiers.key_norm_bias.values);
        for (int32_t i = 0; i < given.num_expression_gradients; i++) {
            write_gradient(given.expression_gradients[i], gradients.modifiers.tables[static_cast<size_t>(i)].values);
        }
        return polyhead_status{};
    };
    return subject;
}

} // namespace polyhead::test
#endif

// Calls of linear_backward and their checks.
#include "linear_gradient_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../../contract/weight_layout.h"
#include "../reference/linear_gradients.h"
#include "../reference/report.h"
#include "../reference/tolerance.h"

namespace polyhead::test {

LinearGradientCall::LinearGradientCall(const Problem &p, const LinearGradientShape &shape) : shape_(shape), random_(shape.seed) {
    args_ = reference_args_ = polyhead_args_of(POLYHEAD_LINEAR_BACKWARD);
    const int32_t weight = contract::weight_dtype(p);
    add_input(&polyhead_args::query, {shape.rows, p.embed_dim}, p.dtype);
    add_input(&polyhead_args::weight, {p.out_features, p.embed_dim}, weight);
    add_input(&polyhead_args::grad_out, {shape.rows, p.out_features}, p.dtype);
    add_output(&polyhead_args::grad_input, {shape.rows, p.embed_dim}, p.dtype);
    add_output(&polyhead_args::grad_weight, {p.out_features, p.embed_dim}, weight);
    if (p.bias != 0) {
        add_output(&polyhead_args::grad_bias, {p.out_features}, POLYHEAD_F32);
    }
}

std::vector<int64_t> LinearGradientCall::strides(const std::vector<int64_t> &shape) const {
    constexpr int64_t gap = 3;
    return shape.size() == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{shape[1] + (shape_.padded ? gap : 0), 1};
}

void LinearGradientCall::add_input(polyhead_tensor polyhead_args::*which, const std::vector<int64_t> &shape, int32_t dtype) {
    Tensor values = make_tensor(DType::f32, shape, strides(shape), shape_.place);
    fill_normal(values, random_, 1.0f);
    if (is_16_bit(dtype)) {
        inputs_.push_back(store(values, dtype, shape_.place));
        args_.*which = inputs_.back().view;
        inputs_.back().memory.make_read_only();
    } else {
        args_.*which = values.view;
    }
    values.memory.make_read_only();
    reference_args_.*which = values.view;
    inputs_.push_back(std::move(values));
}

void LinearGradientCall::add_output(polyhead_tensor polyhead_args::*which, const std::vector<int64_t> &shape, int32_t dtype) {
    outputs_.add(which, make_tensor(static_cast<DType>(dtype), shape, strides(shape), shape_.place), &args_);
}

namespace {

// One gradient, all of whose elements share the error of the plain formula.
void judge_gradient(const char *name, const polyhead_tensor &found, const std::vector<double> &truth, const std::vector<float> &in_f32,
                    const std::vector<float> &in_storage, Report *report) {
    const std::vector<float> got = read_view(found);
    PlainError plain{0, 0};
    double largest = 0;
    for (size_t i = 0; i < truth.size(); i++) {
        largest = std::max(largest, std::abs(truth[i]));
        plain.in_f32 = std::max(plain.in_f32, std::abs(in_f32[i] - truth[i]));
        plain.in_storage = std::max(plain.in_storage, std::abs(in_storage[i] - truth[i]));
    }
    for (size_t i = 0; i < truth.size(); i++) {
        report->judge(name, static_cast<int64_t>(i), got[i], truth[i],
                      is_16_bit(found.dtype) ? gradient_tolerance_16_bit(found.dtype, truth[i], largest, plain)
                                             : gradient_tolerance(truth[i], largest, plain.in_f32));
    }
}

} // namespace

std::string check_linear_gradients(const Kernel &kernel, const LinearGradientShape &shape, double *worst) {
    LinearGradientCall call(kernel.problem, shape);
    const Status status = kernel.run(call.args());
    if (!status.ok()) {
        return status.message();
    }
    if (!call.unwritten().empty()) {
        return call.unwritten();
    }
    const polyhead_args &args = call.args(), &inputs = call.reference_args();
    const LinearGradients<double> truth = evaluate_linear_gradients<double>(inputs);
    const LinearGradients<float> in_f32 = evaluate_linear_gradients<float>(inputs),
                                 in_storage = evaluate_linear_gradients<float>(inputs, args.query.dtype, args.weight.dtype);
    Report report;
    judge_gradient("grad_input", args.grad_input, truth.input, in_f32.input, in_storage.input, &report);
    judge_gradient("grad_weight", args.grad_weight, truth.weight, in_f32.weight, in_storage.weight, &report);
    if (kernel.problem.bias != 0) {
        judge_gradient("grad_bias", args.grad_bias, truth.bias, in_f32.bias, in_storage.bias, &report);
    }
    *worst = std::max(*worst, report.worst_ratio());
    return !report.text().empty()  ? report.text() + ", " + std::to_string(shape.rows) + " rows"
           : call.gaps_untouched() ? ""
                                   : "memory beside the gradients was written, " + std::to_string(shape.rows) + " rows";
}

std::string check_threads_of_linear_gradients(const Kernel &kernel, const LinearGradientShape &shape) {
    struct Run {
        const char *how;
        int threads;
        bool own_memory;
    };
    std::vector<std::vector<float>> first;
    const int before = polyhead_num_threads();
    for (const Run &run : {Run{"one thread", 1, false}, Run{"two threads", 2, false}, Run{"memory of the caller", 2, true}}) {
        LinearGradientCall call(kernel.problem, shape);
        polyhead_set_num_threads(run.threads);
        const GuardedBuffer memory(run.own_memory ? static_cast<size_t>(kernel.scratch_bytes(call.args())) : 0, Place::at_end);
        if (run.own_memory) {
            call.args().scratch = memory.data();
            call.args().scratch_bytes = memory.bytes();
        }
        const Status status = kernel.run(call.args());
        polyhead_set_num_threads(before);
        if (!status.ok()) {
            return std::string(run.how) + ": " + status.message();
        }
        const std::vector<std::vector<float>> found = read_outputs(call.args());
        first = first.empty() ? found : first;
        for (size_t i = 0; i < found.size(); i++) {
            if (!found[i].empty() && std::memcmp(found[i].data(), first[i].data(), found[i].size() * sizeof(float)) != 0) {
                return std::string(run.how) + ": output " + std::to_string(i) + " has other bits, " + std::to_string(shape.rows) + " rows";
            }
        }
    }
    return "";
}

} // namespace polyhead::test

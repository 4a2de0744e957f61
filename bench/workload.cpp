// One kernel with one shape: its tensors, its call and what the call costs.
#include "workload.h"

#include "../instruments/calls/call_tensors.h"
#include "../instruments/calls/problems.h"
#include "../instruments/reference/check_answer.h"
#include "../instruments/reference/reference.h"
#include "../instruments/reference/visibility.h"

namespace bench {

using polyhead::Problem;

namespace {

constexpr uint64_t seed = 1;
constexpr double checked_flops = 2e7; // of the rows that the reference evaluates

// Full lengths unless the shape says otherwise, a window of many tokens, masks that hide a quarter of the keys.
polyhead::test::Shape call_shape(const Problem &problem, const Lengths &shape) {
    polyhead::test::Shape call;
    call.batch = shape.batch;
    call.seq_len_q = shape.seq_len_q;
    call.seq_len_kv = shape.seq_len_kv;
    if (problem.kv_lengths != 0)
        call.lengths.assign(static_cast<size_t>(shape.batch), static_cast<int32_t>(shape.valid_keys ? shape.valid_keys : shape.seq_len_kv));
    call.extras.window_left = 256;
    call.extras.window_right = 256;
    call.extras.left_out = polyhead::test::leave_out_positions_q | polyhead::test::leave_out_positions_kv;
    call.seed = seed;
    return call;
}

} // namespace

Workload::Workload(const polyhead::Kernel &kernel, const Lengths &shape, const polyhead::Device *device)
    : kernel_(kernel),
      subject_(kernel, seed, false, device ? device->raw() : nullptr, device ? polyhead::test::Home::device : polyhead::test::Home::host),
      inputs_(subject_.subject().problem, call_shape(subject_.subject().problem, shape)), args_(subject_.prepared(inputs_.args())) {
    if (device) {
        on_device_ = std::make_unique<polyhead::test::DeviceCall>(device->raw(), polyhead::test::Home::device, args_);
        args_ = on_device_->args();
    }
}

std::string Workload::check() const {
    if (subject_.pack_status().code != POLYHEAD_OK)
        return subject_.pack_status().message;
    if (on_device_ && on_device_->status().code != POLYHEAD_OK)
        return on_device_->status().message;
    return polyhead::test::check_answer(subject_.subject(), inputs_.shape(), nullptr, checked_flops);
}

polyhead::Status Workload::run(const polyhead::Kernel &kernel) const {
    return polyhead::Status(polyhead_run(&kernel, &args_));
}

double Workload::flops() const {
    const Problem &p = subject_.subject().problem;
    const polyhead_args &args = inputs_.args();
    const auto count = [](int64_t number) { return static_cast<double>(number); };
    const double batch = count(polyhead::test::batch_size(p, args)), rows_q = batch * count(polyhead::test::num_rows(args)),
                 rows_kv = batch * count(polyhead::test::num_keys(p, args));
    if (p.op == POLYHEAD_LINEAR)
        return 2 * rows_q * p.embed_dim * p.out_features;
    double pairs = 0;
    for (int64_t b = 0; b < polyhead::test::batch_size(p, args); b++)
        for (int64_t q = 0; q < polyhead::test::num_rows(args); q++)
            pairs += count(polyhead::test::key_range(p, args, b, q).count());
    const double attention = 2 * p.num_heads * pairs * (p.head_dim + p.head_dim_v);
    if (p.op == POLYHEAD_SDPA)
        return attention;
    const double per_query = count(p.num_heads) * (p.head_dim + p.head_dim_v) * p.embed_dim; // query and output projection
    const double per_key = count(p.num_kv_heads) * (count(p.head_dim) * p.kdim + count(p.head_dim_v) * p.vdim);
    return attention + 2 * (rows_q * per_query + rows_kv * per_key);
}

double Workload::bytes() const {
    const polyhead_args &args = inputs_.args();
    double bytes = args_.weights ? static_cast<double>(args_.weights->bytes) : 0;
    for (const polyhead::test::CallTensor &input : polyhead::test::inputs_of(args.op))
        bytes += polyhead::test::tensor_bytes(args.*input.tensor);
    for (int32_t i = 0; i < args.num_expression_tensors; i++)
        bytes += polyhead::test::tensor_bytes(args.expression_tensors[i]);
    for (const polyhead::test::CallTensor &output : polyhead::test::outputs_of(args.op))
        bytes += polyhead::test::tensor_bytes(args.*output.tensor);
    return bytes;
}

} // namespace bench

// Reading outputs, and looking for canaries in them.
#include "outputs.h"

#include <algorithm>

namespace polyhead::test {

namespace {

size_t place_of(polyhead_tensor polyhead_args::*which) {
    const auto found =
        std::find_if(output_tensors.begin(), output_tensors.end(), [&](const CallTensor &one) { return one.tensor == which; });
    return static_cast<size_t>(found - output_tensors.begin());
}

} // namespace

std::vector<float> read_view(const polyhead_tensor &view) {
    std::vector<float> dense;
    if (view.rank != 0) {
        for_each_offset(view, [&](int64_t offset, int64_t, int64_t, int64_t) {
            for (int64_t i = offset; i < offset + view.shape[view.rank - 1]; i++) {
                dense.push_back(is_16_bit(view.dtype) ? from_storage_bits(static_cast<const uint16_t *>(view.data)[i], view.dtype)
                                                      : static_cast<const float *>(view.data)[i]);
            }
        });
    }
    return dense;
}

std::vector<std::vector<float>> read_outputs(const polyhead_args &args) {
    std::vector<std::vector<float>> outputs;
    for (size_t i = 0; i < num_outputs(args); i++) {
        outputs.push_back(read_view(output_at(args, i)));
    }
    return outputs;
}

size_t num_outputs(const polyhead_args &args) {
    return outputs_of(args.op).size() + static_cast<size_t>(args.num_expression_gradients);
}

const char *output_name(const polyhead_args &args, size_t i) {
    const std::vector<CallTensor> outputs = outputs_of(args.op);
    return i < outputs.size() ? outputs[i].name : "a gradient of the expression";
}

const polyhead_tensor &output_at(const polyhead_args &args, size_t i) {
    const std::vector<CallTensor> outputs = outputs_of(args.op);
    return i < outputs.size() ? args.*outputs[i].tensor : args.expression_gradients[i - outputs.size()];
}

void OutputTensors::add_expression_gradient(Tensor tensor, polyhead_args *args) {
    expression_views_.push_back(tensor.view);
    expression_gradients_.push_back(std::move(tensor));
    args->expression_gradients = expression_views_.data();
    args->num_expression_gradients = static_cast<int32_t>(expression_views_.size());
}

void OutputTensors::add(polyhead_tensor polyhead_args::*which, Tensor tensor, polyhead_args *args) {
    args->*which = tensor.view;
    tensors_[place_of(which)] = std::move(tensor);
}

std::vector<float> OutputTensors::read(polyhead_tensor polyhead_args::*which) const {
    return read_view(tensors_[place_of(which)].view);
}

int64_t find_unwritten(const polyhead_tensor &view) {
    int64_t index = 0, found = -1;
    if (view.rank != 0) {
        for_each_offset(view, [&](int64_t offset, int64_t, int64_t, int64_t) {
            for (int64_t i = offset; i < offset + view.shape[view.rank - 1]; i++, index++) {
                const bool canary = is_16_bit(view.dtype) ? static_cast<const uint16_t *>(view.data)[i] == GuardedBuffer::canary_16
                                                          : static_cast<const uint32_t *>(view.data)[i] == GuardedBuffer::canary;
                found = canary && found < 0 ? index : found;
            }
        });
    }
    return found;
}

std::string OutputTensors::unwritten() const {
    for (size_t output = 0; output < tensors_.size(); output++) {
        const int64_t found = find_unwritten(tensors_[output].view);
        if (found >= 0) {
            return std::string(output_tensors[output].name) + "[" + std::to_string(found) + "] was not written";
        }
    }
    for (const polyhead_tensor &view : expression_views_) {
        if (const int64_t found = find_unwritten(view); found >= 0) {
            return "gradient " + std::to_string(&view - expression_views_.data()) + " of the expression: element " + std::to_string(found) +
                   " was not written";
        }
    }
    return "";
}

void OutputTensors::refill() {
    for_each([](const Tensor &tensor) {
        const polyhead_tensor &view = tensor.view;
        if (view.rank != 0) {
            for_each_offset(view, [&](int64_t offset, int64_t, int64_t, int64_t) {
                if (is_16_bit(view.dtype)) {
                    std::fill_n(static_cast<uint16_t *>(view.data) + offset, view.shape[view.rank - 1], GuardedBuffer::canary_16);
                } else {
                    std::fill_n(static_cast<uint32_t *>(view.data) + offset, view.shape[view.rank - 1], GuardedBuffer::canary);
                }
            });
        }
    });
}

bool OutputTensors::untouched() const {
    bool untouched = true;
    for_each([&](const Tensor &tensor) { untouched = untouched && tensor.memory.all_canary(); });
    return untouched;
}

} // namespace polyhead::test

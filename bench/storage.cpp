// Where the tensors of a workload lie.
#include "storage.h"

#include <algorithm>
#include <limits>

#include "../tests/support/half.h"

namespace bench {

using polyhead::DType;
using polyhead::Status;
using polyhead::TensorView;
using polyhead::test::dtype_bytes;
using polyhead::test::from_storage_bits;
using polyhead::test::is_16_bit;
using polyhead::test::to_storage_bits;

namespace {

size_t bytes_of(size_t count, int32_t dtype) {
    return count * static_cast<size_t>(dtype_bytes(dtype));
}

} // namespace

Storage::Storage(int32_t dtype, const polyhead::Device *device) : dtype_(dtype), device_(device) {}

Storage::~Storage() {
    for (void *data : memory_)
        device_->free(data);
}

void Storage::keep(const Status &status) {
    if (status_.ok())
        status_ = status;
}

void *Storage::on_device(const void *data, size_t bytes) {
    void *memory = nullptr;
    keep(device_->allocate(bytes, &memory));
    if (!memory)
        return nullptr;
    memory_.push_back(memory);
    if (data)
        keep(device_->copy_to_device(data, bytes, memory));
    return memory;
}

TensorView Storage::host_input(std::vector<float> *values, std::initializer_list<int64_t> shape) {
    if (!is_16_bit(dtype_))
        return TensorView(values->data(), DType::f32, shape);
    halves_.push_back(std::make_unique<std::vector<uint16_t>>(values->size()));
    std::vector<uint16_t> &halves = *halves_.back();
    for (size_t i = 0; i < values->size(); i++) {
        halves[i] = to_storage_bits((*values)[i], dtype_);
        (*values)[i] = from_storage_bits(halves[i], dtype_);
    }
    return TensorView(halves.data(), static_cast<DType>(dtype_), shape);
}

TensorView Storage::input(std::vector<float> *values, std::initializer_list<int64_t> shape) {
    const TensorView host = host_input(values, shape);
    if (!device_)
        return host;
    return polyhead::view(*device_, on_device(host.data, bytes_of(values->size(), dtype_)), static_cast<DType>(dtype_), shape);
}

TensorView Storage::input(const std::vector<int32_t> &values) {
    const int64_t count = static_cast<int64_t>(values.size());
    if (!device_)
        return polyhead::view(values.data(), {count});
    return polyhead::view(*device_, on_device(values.data(), values.size() * sizeof(int32_t)), DType::i32, {count});
}

TensorView Storage::output(std::vector<float> *values, std::initializer_list<int64_t> shape) {
    return output(values, shape, dtype_);
}

TensorView Storage::output(std::vector<float> *values, std::initializer_list<int64_t> shape, int32_t dtype) {
    TensorView view;
    if (device_) {
        view = polyhead::view(*device_, on_device(nullptr, bytes_of(values->size(), dtype)), static_cast<DType>(dtype), shape);
    } else if (is_16_bit(dtype)) {
        halves_.push_back(std::make_unique<std::vector<uint16_t>>(values->size()));
        view = TensorView(halves_.back()->data(), static_cast<DType>(dtype), shape);
    } else {
        view = TensorView(values->data(), DType::f32, shape);
    }
    outputs_.push_back({values, view});
    return view;
}

Status Storage::spoil() {
    for (const Output &output : outputs_) {
        std::fill(output.values->begin(), output.values->end(), std::numeric_limits<float>::quiet_NaN());
        const size_t bytes = bytes_of(output.values->size(), output.view.dtype);
        const std::vector<unsigned char> ones(bytes, 0xff); // NaN in every floating-point type
        if (device_)
            keep(device_->copy_to_device(ones.data(), bytes, output.view.data));
        else
            std::copy(ones.begin(), ones.end(), static_cast<unsigned char *>(output.view.data));
    }
    return status_;
}

Status Storage::fetch() {
    if (device_)
        keep(device_->synchronize());
    for (const Output &output : outputs_) {
        const size_t count = output.values->size();
        if (!is_16_bit(output.view.dtype)) {
            if (device_)
                keep(device_->copy_to_host(output.view.data, 0, count * sizeof(float), output.values->data()));
            continue;
        }
        std::vector<uint16_t> halves(count);
        if (device_)
            keep(device_->copy_to_host(output.view.data, 0, count * sizeof(uint16_t), halves.data()));
        else
            std::copy_n(static_cast<const uint16_t *>(output.view.data), count, halves.begin());
        for (size_t i = 0; i < count; i++)
            (*output.values)[i] = from_storage_bits(halves[i], output.view.dtype);
    }
    return status_;
}

} // namespace bench

// Where the tensors of a workload lie: in the floats themselves, in 16-bit copies of them, or on a device.
#ifndef BENCH_STORAGE_H
#define BENCH_STORAGE_H

#include <initializer_list>
#include <memory>
#include <vector>

#include <polyhead/polyhead.h>

namespace bench {

class Storage {
public:
    // With a device: inputs and outputs live there.
    Storage(int32_t dtype, const polyhead::Device *device);
    ~Storage();
    Storage(const Storage &) = delete;
    Storage &operator=(const Storage &) = delete;
    // The first thing that went wrong.
    const polyhead::Status &status() const { return status_; }

    // A tensor of the storage type with these values, which are rounded to it in place. They must stay where they are.
    polyhead::TensorView input(std::vector<float> *values, std::initializer_list<int64_t> shape);
    polyhead::TensorView input(const std::vector<int32_t> &values);
    // The same in host memory, whatever the device: what weights are packed from.
    polyhead::TensorView host_input(std::vector<float> *values, std::initializer_list<int64_t> shape);
    // A tensor that a kernel writes, of the storage type or of `dtype`; fetch() brings it to *values.
    polyhead::TensorView output(std::vector<float> *values, std::initializer_list<int64_t> shape);
    polyhead::TensorView output(std::vector<float> *values, std::initializer_list<int64_t> shape, int32_t dtype);
    // Fills the outputs with NaN, so that what a kernel leaves out is seen.
    polyhead::Status spoil();
    // Copies the outputs into their vectors, as floats.
    polyhead::Status fetch();

private:
    struct Output {
        std::vector<float> *values;
        polyhead::TensorView view;
    };
    void keep(const polyhead::Status &status);
    void *on_device(const void *data, size_t bytes);

    const int32_t dtype_;
    const polyhead::Device *const device_;
    std::vector<std::unique_ptr<std::vector<uint16_t>>> halves_;
    std::vector<void *> memory_; // on the device
    std::vector<Output> outputs_;
    polyhead::Status status_;
};

} // namespace bench
#endif

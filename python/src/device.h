// Devices of the module: an open device that arrays keep alive, and memory on it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <polyhead/polyhead.h>

#include "convert.h"
#include "errors.h"

namespace polyhead::python {

struct OpenDevice {
    OpenDevice();
    ~OpenDevice();
    OpenDevice(const OpenDevice &) = delete;
    OpenDevice &operator=(const OpenDevice &) = delete;

    Device device;
    Api api = Api::cpu;
    int index = 0;
    uint64_t stream = 0;
    const int64_t number; // from 1, no two devices of the process have the same
    polyhead_device *raw() const { return device.raw(); }
    std::string text() const; // "cuda:0"

    // Memory of outputs that nobody has any more, for outputs to come: to free it the driver would wait for the device. Only on CUDA's
    // default stream, which is never captured, and where what is started later runs later. Threads hold Python's lock.
    bool keeps_outputs() const { return api == Api::cuda && stream == 0; }
    void *spare(size_t bytes);             // null: none of this size
    bool keep(size_t bytes, void *memory); // false: there are enough
    bool free_spares();                    // false: there are none

private:
    static constexpr size_t most_spares = 4;
    std::vector<std::pair<size_t, void *>> spares_;
};

using DevicePointer = std::shared_ptr<OpenDevice>;

// A contiguous array in memory of a device, which it owns.
class DeviceArray {
public:
    DeviceArray(DevicePointer device, std::vector<int64_t> shape, Element element, void *memory = nullptr);
    ~DeviceArray();
    DeviceArray(const DeviceArray &) = delete;
    DeviceArray &operator=(const DeviceArray &) = delete;

    const DevicePointer &device() const { return device_; }
    const std::vector<int64_t> &shape() const { return shape_; }
    Element element() const { return element_; }
    void *data() const { return data_; }
    size_t bytes() const { return bytes_; }
    // Others know the memory, and may use it later than the device's stream does: it is freed, not kept.
    void share() const { shared_ = true; }

private:
    friend std::shared_ptr<DeviceArray> new_output(const DevicePointer &device, const std::vector<int64_t> &shape, Element element);

    DevicePointer device_;
    std::vector<int64_t> shape_;
    Element element_;
    size_t bytes_;
    void *data_ = nullptr;
    bool output_ = false; // of a call that got none
    mutable bool shared_ = false;
};

// An array for the output of a call. A thread that holds Python's lock calls it.
std::shared_ptr<DeviceArray> new_output(const DevicePointer &device, const std::vector<int64_t> &shape, Element element);

void bind_devices(nb::module_ &module);

} // namespace polyhead::python

// Devices of the module: an open device that arrays keep alive, and memory on it.
#pragma once

#include <memory>
#include <string>
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
};

using DevicePointer = std::shared_ptr<OpenDevice>;

// A contiguous array in memory of a device, which it owns.
class DeviceArray {
public:
    DeviceArray(DevicePointer device, std::vector<int64_t> shape, Element element);
    ~DeviceArray();
    DeviceArray(const DeviceArray &) = delete;
    DeviceArray &operator=(const DeviceArray &) = delete;

    const DevicePointer &device() const { return device_; }
    const std::vector<int64_t> &shape() const { return shape_; }
    Element element() const { return element_; }
    void *data() const { return data_; }
    size_t bytes() const { return bytes_; }

private:
    DevicePointer device_;
    std::vector<int64_t> shape_;
    Element element_;
    size_t bytes_;
    void *data_ = nullptr;
};

void bind_devices(nb::module_ &module);

} // namespace polyhead::python

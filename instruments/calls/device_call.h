// The tensors of a call on a device, and the call that names them there.
#ifndef POLYHEAD_INSTRUMENTS_DEVICE_CALL_H
#define POLYHEAD_INSTRUMENTS_DEVICE_CALL_H

#include <memory>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

#include "mirror.h"

namespace polyhead::test {

// Where the tensors of a call on a device are: on the host, on the device, or the tensors over keys on the device and the rest
// on the host. Packed weights lie on the device in the last two cases.
enum class Home { host, device, mixed };

// Mirrors of those tensors of the arguments that are on the device.
class DeviceCall {
public:
    DeviceCall(polyhead_device *device, Home home, const polyhead_args &args);
    DeviceCall(const DeviceCall &) = delete; // the arguments refer to members
    DeviceCall &operator=(const DeviceCall &) = delete;

    // Whether the device had the memory.
    const polyhead_status &status() const { return status_; }
    const polyhead_args &args() const { return args_; }
    // Copies the outputs back. A sentence when that failed, or when memory was written that is not an output's.
    std::string read_back();

private:
    void copy(const char *name, polyhead_tensor &tensor, bool output);

    struct Copy {
        const char *name;
        std::unique_ptr<Mirror> mirror;
        bool output;
    };
    polyhead_device *device_;
    Home home_;
    polyhead_args args_;
    polyhead_status status_{};
    std::vector<polyhead_tensor> expression_tensors_;
    std::vector<Copy> copies_;
};

} // namespace polyhead::test
#endif

// Where the tensors of a call lie: on the host or on the device of the call, inside their memory, and none of the outputs in another's.
#include <cstring>

#include "call_tensors.h"
#include "status.h"
#include "tensor_rules.h"
#include "validate_parts.h"

namespace polyhead::runtime {
namespace {

// Compares the place of a tensor, or of the weights, with the device of the call.
bool check_place(const char *name, const polyhead_device *place, const polyhead_device *device, polyhead_status *status) noexcept {
    if (!place || place == device) {
        return true;
    }
    if (!device) {
        return refuse(status, POLYHEAD_WRONG_DEVICE, "%s: lies on device %s, expected host memory, because the call names no device", name,
                      place->name);
    }
    // Names of OpenCL devices can be longer than fits into a message twice.
    if (std::strcmp(place->name, device->name) == 0) {
        return refuse(status, POLYHEAD_WRONG_DEVICE,
                      "%s: lies on device %.100s, opened separately, expected host memory or the device of the call", name, place->name);
    }
    return refuse(status, POLYHEAD_WRONG_DEVICE, "%s: lies on device %.70s, expected host memory or the device of the call, %.70s", name,
                  place->name, device->name);
}

} // namespace

bool check_places(const polyhead_kernel &kernel, const polyhead_args &args, polyhead_status *status) noexcept {
    for (const NamedTensor &t : CallTensors(kernel, args)) {
        if (!check_place(t.name, t.tensor->device, args.device, status)) {
            return false;
        }
    }
    return !args.weights || check_place("weights", args.weights->device, args.device, status);
}

bool check_device_memory(const polyhead_kernel &kernel, const polyhead_args &args, polyhead_status *status) noexcept {
    if (!args.device) {
        return true;
    }
    for (const NamedTensor &t : CallTensors(kernel, args)) {
        if (t.tensor->device && !empty(*t.tensor) && !args.device->check(range_of(t.name, *t.tensor), status)) {
            return false;
        }
    }
    const polyhead_weights *w = args.weights;
    return !w || !w->device || args.device->check({"weights", w->data, 0, static_cast<int64_t>(w->bytes), 0}, status);
}

namespace {

// Keys and values of a cache may be interleaved on the host: the ranges of their addresses overlap, their elements do not. On a device one
// of them may be a part of memory, or a copy, that reaches over the other.
bool are_one_cache(const polyhead_args &args, const polyhead_tensor *a, const polyhead_tensor *b) noexcept {
    return !args.device && a == &args.value_cache && b == &args.key_cache;
}

} // namespace

bool check_aliasing(const polyhead_kernel &kernel, const polyhead_args &args, polyhead_status *status) noexcept {
    const CallTensors tensors(kernel, args);
    const MemoryRange weights = memory_of(args.weights);
    for (const NamedTensor *output = tensors.first_output(); output != tensors.end(); ++output) {
        const MemoryRange written = memory_of(*output->tensor);
        for (const NamedTensor *other = tensors.begin(); other != output; ++other) { // inputs, and the outputs before it
            if (!are_one_cache(args, output->tensor, other->tensor) &&
                !check_apart(output->name, written, other->name, memory_of(*other->tensor), status)) {
                return false;
            }
        }
        if (!check_apart(output->name, written, "weights", weights, status)) {
            return false;
        }
    }
    return true;
}

} // namespace polyhead::runtime

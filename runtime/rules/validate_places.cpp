// Where the tensors of a call lie: on the host or on the device of the call, inside their memory, and none of the outputs in another's.
#include <cstring>

#include "../call/call_tensors.h"
#include "../status.h"
#include "shared_elements.h"
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

bool check_places(const KernelTable &kernel, const polyhead_args &args, polyhead_status *status) noexcept {
    for (const NamedTensor &t : CallTensors(kernel, args)) {
        if (!check_place(t.name, t.tensor->device, args.device, status)) {
            return false;
        }
    }
    return !args.weights || check_place("weights", args.weights->device, args.device, status);
}

bool check_device_memory(const KernelTable &kernel, const polyhead_args &args, polyhead_status *status) noexcept {
    if (!args.device) {
        return true;
    }
    for (const NamedTensor &t : CallTensors(kernel, args)) {
        if (t.tensor->device && !empty(*t.tensor) && !args.device->check(range_of(t.name, *t.tensor), status)) {
            return false;
        }
    }
    const polyhead_weights *w = args.weights;
    return !w || !w->device || args.device->check({"weights", w->data, 0, static_cast<int64_t>(w->bytes), 0, false, false}, status);
}

namespace {

// The packed weights as a tensor of bytes.
polyhead_tensor bytes_of(const polyhead_weights &weights) noexcept {
    return {const_cast<void *>(weights.data), POLYHEAD_BOOL, 1, {static_cast<int64_t>(weights.bytes)}, {1}, weights.device, 0};
}

// On a device one tensor may be a part of memory, or a copy, that reaches over another one beside it. Where a tensor lies is asked once: of
// OpenCL the driver is asked.
bool check_ranges_apart(const CallTensors &tensors, const polyhead_weights *weights, polyhead_status *status) noexcept {
    MemoryRange ranges[CallTensors::most];
    const auto range = [&](const NamedTensor *t) -> MemoryRange & { return ranges[t - tensors.begin()]; };
    for (const NamedTensor *t = tensors.begin(); t != tensors.end(); ++t) {
        range(t) = memory_of(*t->tensor);
    }
    const MemoryRange of_weights = weights ? memory_of(bytes_of(*weights)) : MemoryRange{0, 0};
    for (const NamedTensor *output = tensors.first_output(); output != tensors.end(); ++output) {
        const char *shared = nullptr;
        for (const NamedTensor *other = tensors.begin(); other != output && !shared; ++other) { // inputs, and the outputs before it
            shared = overlap(range(output), range(other)) ? other->name : nullptr;
        }
        shared = !shared && overlap(range(output), of_weights) ? "weights" : shared;
        if (shared) {
            return refuse_shared(output->name, shared, status);
        }
    }
    return true;
}

} // namespace

bool check_aliasing(const KernelTable &kernel, const polyhead_args &args, polyhead_status *status) noexcept {
    const CallTensors tensors(kernel, args);
    if (args.device) {
        return check_ranges_apart(tensors, args.weights, status);
    }
    for (const NamedTensor *output = tensors.first_output(); output != tensors.end(); ++output) {
        for (const NamedTensor *other = tensors.begin(); other != output; ++other) { // inputs, and the outputs before it
            if (!check_apart(output->name, *output->tensor, other->name, *other->tensor, Apart::elements, status)) {
                return false;
            }
        }
        if (args.weights && !check_apart(output->name, *output->tensor, "weights", bytes_of(*args.weights), Apart::elements, status)) {
            return false;
        }
    }
    return true;
}

// Memory that a call writes, as it does its outputs.
bool check_scratch(const KernelTable &kernel, const polyhead_args &args, polyhead_status *status) noexcept {
    if (!args.scratch) {
        return true;
    }
    const polyhead_tensor scratch = scratch_tensor(args.scratch, args.scratch_bytes);
    const auto apart = [&](const char *name, const polyhead_tensor &tensor) {
        return check_apart("scratch", scratch, name, tensor, Apart::ranges, status);
    };
    for (const NamedTensor &t : CallTensors(kernel, args)) {
        if (!apart(t.name, *t.tensor)) {
            return false;
        }
    }
    return !args.weights || apart("weights", bytes_of(*args.weights));
}

} // namespace polyhead::runtime

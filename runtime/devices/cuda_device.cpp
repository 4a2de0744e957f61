// CUDA devices: memory, copies and checks on a context and a stream, which Halide's runtime uses, too.
#include "cuda_device.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <new>

#include "../status.h"
#include "apis.h"
#include "cuda_call.h"
#include "cuda_constants.h"
#include "cuda_modules.h"
#include "halide_devices.h"

namespace polyhead::runtime::cuda {
namespace {

// What Halide did before; code of others in this process may rely on it.
halide_cuda_acquire_context_t other_acquire;
halide_cuda_release_context_t other_release;
halide_cuda_get_stream_t other_stream;

int acquire_context(void *user_context, void **context, bool create) {
    const Device *device = device_of(user_context);
    if (!device) {
        return other_acquire(user_context, context, create);
    }
    *context = device->context();
    return 0;
}

int release_context(void *user_context) {
    return device_of(user_context) ? 0 : other_release(user_context);
}

int get_stream(void *user_context, void *context, void **stream) {
    const Device *device = device_of(user_context);
    if (!device) {
        return other_stream(user_context, context, stream);
    }
    *stream = device->stream();
    return 0;
}

void tell_halide() noexcept {
    static std::once_flag once;
    std::call_once(once, [] {
        other_acquire = halide_set_cuda_acquire_context(acquire_context);
        other_release = halide_set_cuda_release_context(release_context);
        other_stream = halide_set_cuda_get_stream(get_stream);
    });
}

// Attributes of pointers (CUpointer_attribute).
enum { pointer_context = 1, pointer_memory_type = 2, pointer_is_managed = 8, pointer_ordinal = 9, pointer_begin = 11, pointer_bytes = 12 };
constexpr unsigned host_memory = 1; // CU_MEMORYTYPE_HOST

Pointer pointer(const void *data) noexcept {
    return reinterpret_cast<Pointer>(data);
}

bool wrong_memory(const DeviceRange &range, const char *what, const char *device, polyhead_status *status) noexcept {
    return refuse(status, POLYHEAD_WRONG_DEVICE, "%s: address %p is %s, expected memory of device %s", range.name, range.data, what,
                  device);
}

} // namespace

Device::Device(const Driver &driver, int ordinal, Context context, Stream stream, bool primary, Constants *constants) noexcept
    : driver_(driver), ordinal_(ordinal), context_(context), stream_(stream), primary_(primary), constants_(constants) {
    api = POLYHEAD_CUDA;
}

Device::~Device() {
    {
        const Current current(driver_, context_);
        free_unused();
        free_late();
        Constants::let_go(constants_, driver_);
        closed(driver_, context_);
    }
    if (primary_) {
        driver_.release_primary(ordinal_);
    }
}

polyhead_status Device::result(int error, const char *what) const noexcept {
    if (error == 0) {
        return success();
    }
    forget_memory();
    return failure(error == out_of_memory ? POLYHEAD_OUT_OF_MEMORY : POLYHEAD_INTERNAL, "device %s: %s: %s", name, what,
                   error_name(driver_, error));
}

bool Device::enter(polyhead_status *status) noexcept {
    const int error = driver_.push(context_);
    return error == 0 || (*status = result(error, "making its context current"), false);
}

void Device::leave() noexcept {
    Context popped = nullptr;
    driver_.pop(&popped);
}

bool Device::captured() const noexcept {
    int state = 0; // CUstreamCaptureStatus: 0 is none
    // What is wrong with a stream is said by what is asked of it next.
    return !has_default_stream() && driver_.is_capturing(stream_, &state) == 0 && state != 0;
}

bool Device::may_wait(polyhead_status *status) noexcept {
    return !captured() || refuse(status, POLYHEAD_UNSUPPORTED,
                                 "device %s: its stream is captured into a CUDA graph, expected nothing that waits for the device: tensors "
                                 "on the device, and an equal call before the capture",
                                 name);
}

polyhead_status Device::synchronize() noexcept {
    const Current current(driver_, context_);
    polyhead_status status = success();
    return may_wait(&status) ? result(current.error() ? current.error() : driver_.synchronize(stream_), "waiting for its stream") : status;
}

// What no kernel uses. Memory that a stream's graphs have is never among it.
void Device::free_unused() noexcept {
    driver_.synchronize(stream_);
    blocks_.free_unused(SIZE_MAX, [this](Pointer memory) { driver_.free(memory); });
}

// What was freed while the stream was captured.
void Device::free_late() noexcept {
    const std::lock_guard<std::mutex> lock(late_mutex_);
    for (const Pointer memory : late_) {
        driver_.free(memory);
    }
    late_.clear();
}

polyhead_status Device::allocate(size_t bytes, void **data) noexcept {
    const Current current(driver_, context_);
    Pointer memory = 0;
    polyhead_status status = success();
    if (!may_wait(&status)) {
        return status;
    }
    free_late();
    int error = current.error() ? current.error() : driver_.allocate(&memory, bytes);
    if (error == out_of_memory) {
        free_unused();
        error = driver_.allocate(&memory, bytes);
    }
    *data = as_pointer(memory);
    if (error == 0) {
        known_.add(memory, memory + bytes);
    }
    return result(error, "allocating");
}

// The driver frees at once, which would end a capture: then it is done later.
void Device::free(void *data) noexcept {
    known_.forget(pointer(data));
    const Current current(driver_, context_);
    if (captured()) {
        const std::lock_guard<std::mutex> lock(late_mutex_);
        try {
            late_.push_back(pointer(data));
            return;
        } catch (const std::bad_alloc &) { // the capture fails, and nothing else
        }
    }
    driver_.free(pointer(data));
}

polyhead_status Device::copy_to_device(const void *host, size_t bytes, void *data, size_t byte_offset) noexcept {
    const Current current(driver_, context_);
    polyhead_status status = success();
    if (!may_wait(&status)) {
        return status;
    }
    int error = current.error() ? current.error() : driver_.copy_to_device(pointer(data) + byte_offset, host, bytes, stream_);
    error = error ? error : driver_.synchronize(stream_);
    return result(error, "copying to it");
}

polyhead_status Device::copy_to_host(const void *data, size_t byte_offset, size_t bytes, void *host) noexcept {
    const Current current(driver_, context_);
    polyhead_status status = success();
    if (!may_wait(&status)) {
        return status;
    }
    int error = current.error() ? current.error() : driver_.copy_to_host(host, pointer(data) + byte_offset, bytes, stream_);
    error = error ? error : driver_.synchronize(stream_);
    return result(error, "copying from it");
}

int Device::take_memory(size_t bytes, bool is_captured, Pointer *memory) noexcept {
    if (is_captured) {
        return driver_.allocate_in_order && driver_.free_in_order ? driver_.allocate_in_order(memory, bytes, stream_) : not_supported;
    }
    *memory = blocks_.take(bytes);
    if (*memory) {
        return 0;
    }
    const size_t room = KeptBlocks::rounded(bytes);
    int error = driver_.allocate(memory, room);
    if (error == out_of_memory) {
        free_unused();
        error = driver_.allocate(memory, room);
    }
    if (error == 0 && !blocks_.add(*memory, room)) {
        driver_.free(*memory);
        error = out_of_memory;
    }
    return error;
}

void Device::give_memory_back(Pointer memory) noexcept {
    if (!blocks_.give_back(memory)) { // of a graph
        driver_.free_in_order(memory, stream_);
    }
}

template <typename Write> Pointer Device::written(size_t bytes, const Write &write) noexcept {
    Pointer memory = 0;
    if (captured() || driver_.allocate(&memory, bytes) != 0) {
        return 0;
    }
    if (write(memory) != 0 || driver_.synchronize(stream_) != 0) {
        driver_.free(memory);
        return 0;
    }
    return memory;
}

Pointer Device::new_constant(const void *content, size_t bytes) noexcept {
    return written(bytes, [&](Pointer memory) { return driver_.copy_to_device(memory, content, bytes, stream_); });
}

Pointer Device::new_constant(uint8_t byte, size_t bytes) noexcept {
    return written(bytes, [&](Pointer memory) { return driver_.fill(memory, byte * 0x01010101U, bytes / 4, stream_); });
}

void *Device::neutral_row(uint8_t byte, size_t bytes) noexcept {
    return as_pointer(constants_->row(byte, bytes, *this));
}

bool Device::check(const DeviceRange &range, polyhead_status *status) const noexcept {
    const Pointer low = pointer(range.data) + static_cast<Pointer>(range.begin),
                  end = pointer(range.data) + static_cast<Pointer>(range.end);
    if (known_.holds(low, end)) {
        return true;
    }
    const Current current(driver_, context_);
    const Pointer first = pointer(range.data) + static_cast<Pointer>(range.first);
    const auto ask = [&](void *answer, int attribute) { return driver_.pointer_attribute(answer, attribute, first) == 0; };
    unsigned type = 0, managed = 0;
    if (!ask(&type, pointer_memory_type)) {
        return wrong_memory(range, "unknown to the driver, host memory perhaps", name, status);
    }
    ask(&managed, pointer_is_managed);
    if (type == host_memory && !managed) {
        return wrong_memory(range, "host memory", name, status);
    }
    Context context = nullptr; // none: memory of a pool, which belongs to a device
    int ordinal = ordinal_;
    ask(&context, pointer_context);
    ask(&ordinal, pointer_ordinal);
    if ((context && context != context_) || ordinal != ordinal_) {
        return wrong_memory(range, context && context != context_ ? "memory of another context" : "memory of another device", name, status);
    }
    Pointer begin = 0;
    size_t bytes = 0;
    if (!ask(&begin, pointer_begin) || !ask(&bytes, pointer_bytes)) {
        return true; // an old driver
    }
    if (low < begin || end > begin + bytes) {
        return refuse(status, POLYHEAD_WRONG_DEVICE,
                      "%s: takes %lld bytes from %p on, expected to lie inside the %zu bytes allocated at %p", range.name,
                      static_cast<long long>(range.end - range.begin), as_pointer(low), bytes, as_pointer(begin));
    }
    known_.add(begin, begin + bytes);
    return true;
}

namespace {

// As halide_cuda_wrap_device_ptr() and halide_cuda_detach_device_ptr() do, which ask for a context each time.
void put_behind(KernelBuffer *buffer, Pointer memory) noexcept {
    buffer->device = memory;
    buffer->device_interface = halide_cuda_device_interface();
}

} // namespace

bool Device::attach(const DeviceRange &range, KernelBuffer *buffer, Attachment *, polyhead_status *) noexcept {
    put_behind(buffer, pointer(range.data) + static_cast<Pointer>(range.first));
    return true;
}

bool Device::attach_element(uint32_t bits, KernelBuffer *buffer, Attachment *) noexcept {
    const Pointer element = constants_->number(bits, *this);
    if (element != 0) {
        put_behind(buffer, element);
    }
    return element != 0;
}

void Device::detach(KernelBuffer *buffer, Attachment *, bool) noexcept {
    buffer->device = 0;
    buffer->device_interface = nullptr;
}

namespace {

// The device that a context is of.
int ordinal_of(const Driver &functions, Context context, int *ordinal) noexcept {
    const Current current(functions, context);
    return current.error() ? current.error() : functions.context_device(ordinal);
}

bool check_index(const Driver &functions, int index, polyhead_status *status) noexcept {
    int count = 0;
    const int error = functions.device_count(&count);
    if (error) {
        return refuse(status, POLYHEAD_NO_DEVICE, "cuda: the driver counts no devices: %s", error_name(functions, error));
    }
    if (index < 0 || index >= count) {
        return refuse(status, POLYHEAD_NO_DEVICE, "cuda: device %d, expected %s%d", index, count > 0 ? "0 to " : "none: there are ",
                      count > 0 ? count - 1 : 0);
    }
    return true;
}

void describe(const Driver &functions, int ordinal, Device *device) noexcept {
    constexpr int grid_y = 6, grid_z = 7, shared_memory = 8, multiprocessors = 16, capability_major = 75, capability_minor = 76,
                  shared_on_request = 97; // CUdevice_attribute
    int major = 0, minor = 0;
    functions.device_attribute(&major, capability_major, ordinal);
    functions.device_attribute(&minor, capability_minor, ordinal);
    device->capability = 10 * major + minor;
    functions.device_attribute(&device->multiprocessors, multiprocessors, ordinal);
    int shared_bytes = 0;
    if (functions.device_attribute(&shared_bytes, shared_on_request, ordinal) != 0 || shared_bytes == 0) {
        functions.device_attribute(&shared_bytes, shared_memory, ordinal);
    }
    device->shared_bytes = shared_bytes;
    int blocks_y = 0, blocks_z = 0;
    functions.device_attribute(&blocks_y, grid_y, ordinal);
    functions.device_attribute(&blocks_z, grid_z, ordinal);
    device->most_blocks = std::min(blocks_y, blocks_z) > 0 ? std::min(blocks_y, blocks_z) : 65535;
    char model[128] = "device";
    functions.device_name(model, sizeof model, ordinal);
    std::snprintf(device->name, sizeof device->name, "%s (cuda %d.%d)", model, major, minor);
}

} // namespace
} // namespace polyhead::runtime::cuda

namespace polyhead::runtime {

int32_t count_cuda_devices() noexcept {
    const cuda::Driver *functions = cuda::driver(nullptr);
    int count = 0;
    return functions && functions->device_count(&count) == 0 ? count : 0;
}

polyhead_device *open_cuda(const polyhead_device_options &options, polyhead_status *status) noexcept {
    using namespace cuda;
    const Driver *functions = driver(status);
    if (!functions) {
        return nullptr;
    }
    Context context = options.context;
    int ordinal = options.index;
    if (context) {
        if (const int error = ordinal_of(*functions, context, &ordinal)) {
            refuse(status, POLYHEAD_NO_DEVICE, "cuda: context %p: %s, expected a CUcontext", context, error_name(*functions, error));
            return nullptr;
        }
    } else {
        if (!check_index(*functions, options.index, status)) {
            return nullptr;
        }
        functions->device_get(&ordinal, options.index);
        if (const int error = functions->retain_primary(&context, ordinal)) {
            refuse(status, error == out_of_memory ? POLYHEAD_OUT_OF_MEMORY : POLYHEAD_NO_DEVICE,
                   "cuda: the primary context of device %d could not be opened: %s", options.index, error_name(*functions, error));
            return nullptr;
        }
    }
    tell_halide();
    Constants *const constants = opened(context) ? Constants::of(context) : nullptr;
    Device *device =
        constants ? new (std::nothrow) Device(*functions, ordinal, context, options.stream, !options.context, constants) : nullptr;
    if (!device) {
        refuse(status, POLYHEAD_OUT_OF_MEMORY, "cuda: no memory for a device handle");
        return nullptr;
    }
    describe(*functions, ordinal, device);
    return device;
}

} // namespace polyhead::runtime

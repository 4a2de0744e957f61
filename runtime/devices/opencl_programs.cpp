// Builds kernels for OpenCL contexts and launches them, in the place of what Halide 21 brings. Halide's own calls through functions that
// it has not loaded when a device is closed before a kernel ran, forgets to release objects where a launch fails, and loses count of its
// programs when contexts come and go.
#include "opencl_programs.h"

#include <cstdio>
#include <cstring>
#include <new>

#include "../call/device.h"
#include "halide_devices.h"
#include "loaded_code.h"
#include "opencl_device.h"

namespace polyhead::runtime::opencl {
namespace {

using Programs = LoadedCode<Object>;

// Halide's errors are a text and a code.
int report(void *user_context, const char *what, int error) noexcept {
    char text[256];
    std::snprintf(text, sizeof text, "OpenCL error: %s (%d), %s", error_name(error), error, what);
    halide_error(user_context, text);
    return halide_error_code_gpu_device_error;
}

// The device of a call. Others in this process cannot use Halide's OpenCL beside polyhead: they would need a context of their own.
const Device *device_of(void *user_context) noexcept {
    const CallContext *call = CallContext::of(user_context);
    return call && call->device && call->device->api == POLYHEAD_OPENCL ? static_cast<const Device *>(call->device) : nullptr;
}

int no_device(void *user_context) noexcept {
    halide_error(user_context, "OpenCL: called without a device that polyhead opened");
    return halide_error_code_gpu_device_error;
}

template <typename Number> unsigned long long device_number(const Driver &functions, Object device, unsigned what) noexcept {
    Number number = 0;
    functions.device_info(device, what, sizeof number, &number, nullptr);
    return number;
}

int build(void *user_context, const Driver &functions, Object context, const char *source, Object *program) noexcept {
    enum : unsigned { context_devices = 0x1081, most_constant_bytes = 0x1020, most_constant_arguments = 0x1021, build_log = 0x1183 };
    Object device = nullptr;
    int error = functions.context_info(context, context_devices, sizeof device, &device, nullptr);
    if (error) {
        return report(user_context, "clGetContextInfo", error);
    }
    // What Halide's sources are compiled with.
    char options[512];
    std::snprintf(options, sizeof options, "-D MAX_CONSTANT_BUFFER_SIZE=%llu -D MAX_CONSTANT_ARGS=%llu %s",
                  device_number<uint64_t>(functions, device, most_constant_bytes),
                  device_number<unsigned>(functions, device, most_constant_arguments), halide_opencl_get_build_options(user_context));
    *program = functions.create_program(context, 1, &source, nullptr, &error);
    if (error) {
        return report(user_context, "clCreateProgramWithSource", error);
    }
    error = functions.build_program(*program, 1, &device, options, nullptr, nullptr);
    if (error) {
        char log[4096] = "", what[200];
        functions.build_info(*program, device, build_log, sizeof log, log, nullptr);
        log[sizeof log - 1] = 0;
        log[std::strcspn(log, "\n")] = 0;
        std::snprintf(what, sizeof what, "clBuildProgram: %.150s", log);
        functions.release_program(*program);
        return report(user_context, what, error);
    }
    return 0;
}

// What the device field of a buffer points to, in our buffers (Attachment) and in Halide's.
struct Memory {
    uint64_t offset;
    Object object;
};

// Sets the arguments of one launch and starts it. The parts of buffers that it makes exist as long as this object.
class Launch {
public:
    Launch(const Driver &functions, Object kernel) noexcept : functions_(functions), kernel_(kernel) {}
    ~Launch() {
        for (size_t i = 0; i < num_parts_; ++i) {
            functions_.release_memory(parts_[i]);
        }
        functions_.release_kernel(kernel_);
    }
    Launch(const Launch &) = delete;
    Launch &operator=(const Launch &) = delete;

    int set(unsigned index, size_t bytes, void *argument, bool is_buffer) noexcept {
        if (!is_buffer) {
            return functions_.set_argument(kernel_, index, bytes, argument);
        }
        const auto *buffer = static_cast<const halide_buffer_t *>(argument);
        const auto *memory = reinterpret_cast<const Memory *>(buffer->device); // NOLINT(performance-no-int-to-ptr): as Halide has it
        Object object = memory->object;
        int error = 0;
        if (memory->offset != 0) { // a crop, as Halide makes them
            const size_t region[] = {static_cast<size_t>(memory->offset), buffer->size_in_bytes()};
            object = functions_.create_sub_buffer(object, 0, 0x1220, region, &error);
            if (error) {
                return error;
            }
            parts_[num_parts_++] = object;
        }
        return functions_.set_argument(kernel_, index, sizeof object, &object);
    }

    int start(Object queue, const size_t (&global)[3], const size_t (&local)[3]) const noexcept {
        return functions_.launch(queue, kernel_, 3, nullptr, global, local, 0, nullptr, nullptr);
    }

private:
    const Driver &functions_;
    Object kernel_;
    Object parts_[most_arguments];
    size_t num_parts_ = 0;
};

} // namespace

bool opened(Object context) noexcept {
    return Programs::of().opened(context);
}

void closed(const Driver &functions, Object context) noexcept {
    Programs::of().closed(context, [&](Object program) { functions.release_program(program); });
}

void left(const void *begin, const void *end) noexcept {
    const Driver *functions = driver(nullptr);
    Programs::of().left(begin, end, [&](Object, Object program) { functions->release_program(program); }); // launches keep references
}

} // namespace polyhead::runtime::opencl

using namespace polyhead::runtime::opencl;

// Halide has no function to install these; its documentation says to define them. Halide's own would make a second context.
extern "C" int halide_acquire_cl_context(void *user_context, void **context, void **queue, bool create) {
    const Device *device = device_of(user_context);
    *context = device ? device->context() : nullptr;
    *queue = device ? device->queue() : nullptr;
    return device || !create ? 0 : no_device(user_context);
}

extern "C" int halide_release_cl_context(void *) {
    return 0;
}

extern "C" int halide_opencl_initialize_kernels(void *user_context, void **state, const char *source, int) {
    const Device *device = device_of(user_context);
    if (!device) {
        return no_device(user_context);
    }
    try {
        return Programs::of().ensure(device->context(), state, [&](Object *program) {
            return build(user_context, *driver(nullptr), device->context(), source, program);
        });
    } catch (const std::bad_alloc &) {
        return halide_error_code_out_of_memory;
    }
}

extern "C" void halide_opencl_finalize_kernels(void *, void *) {
    // Programs stay until the last device of their context is closed.
}

extern "C" int halide_opencl_run(void *user_context, void *state, const char *entry, int blocks_x, int blocks_y, int blocks_z,
                                 int threads_x, int threads_y, int threads_z, int shared_bytes, size_t argument_bytes[], void *arguments[],
                                 int8_t is_buffer[]) {
    const Device *device = device_of(user_context);
    if (!device) {
        return no_device(user_context);
    }
    const Driver &functions = *driver(nullptr);
    constexpr int invalid_program = -44;
    int error = invalid_program;
    Object kernel = nullptr;
    Programs::of().with(device->context(), state, [&](Object program) { kernel = functions.create_kernel(program, entry, &error); });
    if (error) {
        return report(user_context, entry, error);
    }
    Launch launch(functions, kernel);
    unsigned count = 0;
    for (; argument_bytes[count] != 0; ++count) {
        if (count == polyhead::runtime::most_arguments) {
            return report(user_context, polyhead::runtime::too_many_arguments, invalid_program);
        }
        error = launch.set(count, argument_bytes[count], arguments[count], is_buffer[count] != 0);
        if (error) {
            return report(user_context, "clSetKernelArg", error);
        }
    }
    // Halide's kernels take shared memory last; none at all would not do.
    error = functions.set_argument(kernel, count, shared_bytes > 0 ? static_cast<size_t>(shared_bytes) : 1, nullptr);
    const size_t local[] = {static_cast<size_t>(threads_x), static_cast<size_t>(threads_y), static_cast<size_t>(threads_z)};
    const size_t global[] = {local[0] * static_cast<size_t>(blocks_x), local[1] * static_cast<size_t>(blocks_y),
                             local[2] * static_cast<size_t>(blocks_z)};
    if (!error) {
        error = launch.start(device->queue(), global, local);
    }
    return error ? report(user_context, "launch", error) : 0;
}

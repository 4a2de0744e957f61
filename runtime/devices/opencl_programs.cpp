// Builds kernels for OpenCL contexts and launches them, in the place of what Halide 21 brings. Halide's own calls through functions that
// it has not loaded when a device is closed before a kernel ran, forgets to release objects where a launch fails, and loses count of its
// programs when contexts come and go.
#include "opencl_programs.h"

#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "../call/device.h"
#include "halide_devices.h"
#include "loaded_code.h"
#include "opencl_device.h"

namespace polyhead::runtime::opencl {
namespace {

// A program with the kernels of it that no launch uses now. A kernel holds its arguments, so each launch has one of its own.
struct Program {
    Object program = nullptr;
    struct Idle {
        const char *entry; // by its address: a constant of the library that the program is of
        Object kernel;
    };
    std::vector<Idle> idle;

    Object take(const char *entry) noexcept {
        for (Idle &one : idle) {
            if (one.entry == entry) {
                const Object kernel = one.kernel;
                one = idle.back();
                idle.pop_back();
                return kernel;
            }
        }
        return nullptr;
    }
    // False without memory.
    bool keep(const char *entry, Object kernel) noexcept {
        try {
            idle.push_back({entry, kernel});
        } catch (const std::bad_alloc &) {
            return false;
        }
        return true;
    }
    void release(const Driver &functions) const noexcept {
        for (const Idle &one : idle) {
            functions.release_kernel(one.kernel);
        }
        functions.release_program(program);
    }
};
using Programs = LoadedCode<Program>;

constexpr int invalid_program = -44;

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

// Sets the arguments of one launch and starts it. The parts of buffers that it makes exist as long as this object; the kernel goes back to
// its program.
class Launch {
public:
    Launch(const Driver &functions, Object context, void *state, const char *entry) noexcept
        : functions_(functions), context_(context), state_(state), entry_(entry) {}
    ~Launch() {
        for (size_t i = 0; i < num_parts_; ++i) {
            functions_.release_memory(parts_[i]);
        }
        bool kept = !kernel_;
        if (kernel_) {
            Programs::of().with(context_, state_, [&](Program &program) { kept = program.keep(entry_, kernel_); });
        }
        if (!kept) { // its program was unloaded meanwhile
            functions_.release_kernel(kernel_);
        }
    }
    Launch(const Launch &) = delete;
    Launch &operator=(const Launch &) = delete;

    // 0, or what the driver says.
    int find_kernel() noexcept {
        int error = invalid_program;
        Programs::of().with(context_, state_, [&](Program &program) {
            kernel_ = program.take(entry_);
            error = 0;
            if (!kernel_) {
                kernel_ = functions_.create_kernel(program.program, entry_, &error);
            }
        });
        return error;
    }

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

    // Of the block: Halide's kernels take it last; none at all would not do.
    int set_shared(unsigned index, int bytes) const noexcept {
        return functions_.set_argument(kernel_, index, bytes > 0 ? static_cast<size_t>(bytes) : 1, nullptr);
    }

    int start(Object queue, const size_t (&global)[3], const size_t (&local)[3]) const noexcept {
        return functions_.launch(queue, kernel_, 3, nullptr, global, local, 0, nullptr, nullptr);
    }

private:
    const Driver &functions_;
    const Object context_;
    void *const state_;
    const char *const entry_;
    Object kernel_ = nullptr;
    Object parts_[most_arguments];
    size_t num_parts_ = 0;
};

} // namespace

bool opened(Object context) noexcept {
    return Programs::of().opened(context);
}

void closed(const Driver &functions, Object context) noexcept {
    Programs::of().closed(context, [&](const Program &program) { program.release(functions); });
}

void left(const void *begin, const void *end) noexcept {
    const Driver *functions = driver(nullptr);
    Programs::of().left(begin, end, [&](Object, const Program &program) { program.release(*functions); }); // launches keep references
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
        return Programs::of().ensure(device->context(), state, [&](Program *program) {
            return build(user_context, *driver(nullptr), device->context(), source, &program->program);
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
    Launch launch(functions, device->context(), state, entry);
    int error = launch.find_kernel();
    if (error) {
        return report(user_context, entry, error);
    }
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
    error = launch.set_shared(count, shared_bytes);
    const size_t local[] = {static_cast<size_t>(threads_x), static_cast<size_t>(threads_y), static_cast<size_t>(threads_z)};
    const size_t global[] = {local[0] * static_cast<size_t>(blocks_x), local[1] * static_cast<size_t>(blocks_y),
                             local[2] * static_cast<size_t>(blocks_z)};
    if (!error) {
        error = launch.start(device->queue(), global, local);
    }
    return error ? report(user_context, "launch", error) : 0;
}

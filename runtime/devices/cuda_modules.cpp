// Loads kernels into CUDA contexts and launches them, in place of Halide 21's functions. These limit every kernel to 64
// registers unless an environment variable changes that, look up each function again at each launch, and may use modules that no longer
// exist after a context was closed and another one was made at the same address.
#include "cuda_modules.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <string>

#include "halide_devices.h"
#include "loaded_code.h"

namespace polyhead::runtime::cuda {
namespace {

constexpr int most_registers = 255; // of a thread, on every device of capability 3.5 or newer

struct Loaded {
    Module module = nullptr;
    std::map<std::string, Function> functions;
};
using Modules = LoadedCode<Loaded>;

// Halide's errors are a text and a code.
int report(void *user_context, const char *what, const char *why) noexcept {
    char text[256];
    std::snprintf(text, sizeof text, "CUDA error: %s, %s", why, what);
    halide_error(user_context, text);
    return halide_error_code_gpu_device_error;
}

// Makes the context of a call current while this object exists.
class InContext {
public:
    explicit InContext(void *user_context) noexcept : user_context_(user_context), driver_(driver(nullptr)) {
        if (!driver_) {
            error_ = report(user_context, "the driver", "not found");
            return;
        }
        error_ = halide_cuda_acquire_context(user_context, &context_, true);
        if (error_ == 0 && !context_) {
            error_ = report(user_context, "acquire", "no context");
        }
        if (error_ == 0) {
            if (const int result = driver_->push(context_)) {
                error_ = report(user_context, "cuCtxPushCurrent", error_name(*driver_, result));
            } else {
                pushed_ = true;
            }
        }
    }
    ~InContext() {
        Context popped = nullptr;
        if (pushed_) {
            driver_->pop(&popped);
        }
        halide_cuda_release_context(user_context_);
    }
    InContext(const InContext &) = delete;
    InContext &operator=(const InContext &) = delete;
    int error() const noexcept { return error_; }
    const Driver &functions() const noexcept { return *driver_; }
    Context context() const noexcept { return context_; }

private:
    void *user_context_;
    const Driver *driver_;
    Context context_ = nullptr;
    int error_ = 0;
    bool pushed_ = false;
};

int register_limit() noexcept {
    const char *text = std::getenv("HL_CUDA_JIT_MAX_REGISTERS"); // Halide's own variable
    const int limit = text ? std::atoi(text) : 0;
    return limit > 0 ? limit : most_registers;
}

// Compiles PTX for the device of the current context.
int load(void *user_context, const Driver &functions, const char *ptx, Module *module) noexcept {
    constexpr int max_registers = 0, log_buffer = 5, log_bytes = 6; // CUjit_option
    char log[512] = "";
    int options[] = {max_registers, log_buffer, log_bytes};
    void *values[] = {as_pointer(static_cast<unsigned>(register_limit())), log, as_pointer(sizeof log)};
    const int result = functions.load_module(module, ptx, 3, options, values);
    if (result == 0) {
        return 0;
    }
    char why[128];
    std::snprintf(why, sizeof why, "%s %.80s", error_name(functions, result), log);
    return report(user_context, "cuModuleLoadDataEx", why);
}

} // namespace

bool opened(Context context) noexcept {
    return Modules::of().opened(context);
}

void closed(const Driver &functions, Context context) noexcept {
    Modules::of().closed(context, [&](const Loaded &loaded) { functions.unload_module(loaded.module); });
}

void left(const void *begin, const void *end) noexcept {
    const Driver *functions = driver(nullptr);
    Modules::of().left(begin, end, [&](Context context, const Loaded &loaded) {
        const Current current(*functions, context);
        functions->synchronize_context(); // what was started may still run
        functions->unload_module(loaded.module);
    });
}

} // namespace polyhead::runtime::cuda

extern "C" int halide_cuda_initialize_kernels(void *user_context, void **state, const char *ptx, int) {
    using namespace polyhead::runtime::cuda;
    const InContext in(user_context);
    if (in.error()) {
        return in.error();
    }
    try {
        return Modules::of().ensure(in.context(), state,
                                    [&](Loaded *loaded) { return load(user_context, in.functions(), ptx, &loaded->module); });
    } catch (const std::bad_alloc &) {
        return halide_error_code_out_of_memory;
    }
}

extern "C" void halide_cuda_finalize_kernels(void *, void *) {
    // Modules stay loaded until the last device of their context is closed.
}

extern "C" int halide_cuda_run(void *user_context, void *state, const char *entry, int blocks_x, int blocks_y, int blocks_z, int threads_x,
                               int threads_y, int threads_z, int shared_bytes, size_t argument_bytes[], void *arguments[],
                               int8_t is_buffer[]) {
    using namespace polyhead::runtime::cuda;
    const InContext in(user_context);
    if (in.error()) {
        return in.error();
    }
    int result = no_device;
    Function function = nullptr;
    try {
        Modules::of().with(in.context(), state, [&](Loaded &loaded) {
            Function &known = loaded.functions[entry];
            result = known ? 0 : in.functions().get_function(&known, loaded.module, entry);
            function = known;
        });
    } catch (const std::bad_alloc &) {
        return halide_error_code_out_of_memory;
    }
    if (!function) {
        return report(user_context, "cuModuleGetFunction", error_name(in.functions(), result));
    }
    void *translated[polyhead::runtime::most_arguments + 1] = {};
    uint64_t device_pointers[polyhead::runtime::most_arguments];
    for (size_t i = 0; argument_bytes[i] != 0; ++i) {
        if (i == polyhead::runtime::most_arguments) {
            return report(user_context, entry, polyhead::runtime::too_many_arguments);
        }
        translated[i] = arguments[i];
        if (is_buffer[i]) {
            device_pointers[i] = static_cast<halide_buffer_t *>(arguments[i])->device;
            translated[i] = &device_pointers[i];
        }
    }
    Stream stream = nullptr;
    if (const int error = halide_cuda_get_stream(user_context, in.context(), &stream)) {
        return error;
    }
    result = in.functions().launch(function, static_cast<unsigned>(blocks_x), static_cast<unsigned>(blocks_y),
                                   static_cast<unsigned>(blocks_z), static_cast<unsigned>(threads_x), static_cast<unsigned>(threads_y),
                                   static_cast<unsigned>(threads_z), static_cast<unsigned>(shared_bytes), stream, translated, nullptr);
    return result == 0 ? 0 : report(user_context, "cuLaunchKernel", error_name(in.functions(), result));
}

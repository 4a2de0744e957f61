// Loads kernels into CUDA contexts and launches them, in place of Halide 21's functions. These limit every kernel to 64
// registers unless an environment variable changes that, look up each function again at each launch, and may use modules that no longer
// exist after a context was closed and another one was made at the same address.
#include "cuda_modules.h"

#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include "cuda_call.h"
#include "halide_devices.h"
#include "loaded_code.h"

namespace polyhead::runtime::cuda {
namespace {

constexpr int most_registers = 255; // of a thread, on every device of capability 3.5 or newer

struct Loaded {
    Module module = nullptr;
    // By the address of the name, which is a constant of the kernel: it exists as long as the module is loaded.
    std::vector<std::pair<const char *, Function>> functions;
};
using Modules = LoadedCode<Loaded>;

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

// A function of a module, known once it was asked for. More shared memory than every device has must be asked for.
int find_function(const Driver &functions, Loaded *loaded, const char *entry, int shared_bytes, Function *function) {
    constexpr int shared_of_all = 48 << 10, largest_dynamic_shared = 8; // CUfunction_attribute
    for (const auto &[name, known] : loaded->functions) {
        if (name == entry) {
            *function = known;
            return 0;
        }
    }
    Function found = nullptr;
    int error = functions.get_function(&found, loaded->module, entry);
    if (error == 0 && shared_bytes > shared_of_all) {
        error = functions.set_function_attribute(found, largest_dynamic_shared, shared_bytes);
    }
    if (error == 0) {
        loaded->functions.emplace_back(entry, found);
        *function = found;
    }
    return error;
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
        return Modules::of().ensure(in.context(), state, [&](Loaded *loaded) {
            return in.captured() ? report_captured(user_context, "code is loaded")
                                 : load(user_context, in.functions(), ptx, &loaded->module);
        });
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
        Modules::of().with(in.context(), state,
                           [&](Loaded &loaded) { result = find_function(in.functions(), &loaded, entry, shared_bytes, &function); });
    } catch (const std::bad_alloc &) {
        return halide_error_code_out_of_memory;
    }
    if (result != 0) {
        return report(user_context, "cuModuleGetFunction", error_name(in.functions(), result));
    }
    void *translated[polyhead::runtime::most_arguments + 1];
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
    if (const int error = in.stream(&stream)) {
        return error;
    }
    result = in.functions().launch(function, static_cast<unsigned>(blocks_x), static_cast<unsigned>(blocks_y),
                                   static_cast<unsigned>(blocks_z), static_cast<unsigned>(threads_x), static_cast<unsigned>(threads_y),
                                   static_cast<unsigned>(threads_z), static_cast<unsigned>(shared_bytes), stream, translated, nullptr);
    if (result == 0) {
        return 0;
    }
    in.failed();
    return report(user_context, "cuLaunchKernel", error_name(in.functions(), result));
}

// Driver API: modules, functions, launches.
#include "execute.h"
#include "load.h"
#include "state.h"

#include <algorithm>
#include <cstring>

using namespace polyhead::cuda_driver;

namespace {

enum JitOption { jit_max_registers = 0, jit_error_log = 5, jit_error_log_bytes = 6 };
enum FunctionAttribute { attribute_threads = 0, attribute_shared = 1, attribute_local = 3, attribute_dynamic_shared = 8 };

CUresult code_of(LoadResult result) {
    switch (result) {
    case LoadResult::ok:
        return CUDA_SUCCESS;
    case LoadResult::not_ptx:
        return CUDA_ERROR_INVALID_IMAGE;
    case LoadResult::too_new:
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case LoadResult::out_of_memory:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case LoadResult::invalid:
        break;
    }
    return CUDA_ERROR_INVALID_PTX;
}

CUresult code_of(FaultKind kind) {
    switch (kind) {
    case FaultKind::none:
        return CUDA_SUCCESS;
    case FaultKind::illegal_instruction:
        return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case FaultKind::illegal_address:
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    case FaultKind::misaligned:
        return CUDA_ERROR_MISALIGNED_ADDRESS;
    case FaultKind::too_long:
        return CUDA_ERROR_LAUNCH_TIMEOUT;
    case FaultKind::trap:
    case FaultKind::launch:
        break;
    }
    return CUDA_ERROR_LAUNCH_FAILED;
}

// The options beside the image: the limit of registers is kept for tests, a buffer for the log is filled.
void read_options(State &s, unsigned count, const int *options, void **values, const std::string &problem) {
    char *log = nullptr;
    size_t log_bytes = 0;
    s.max_registers = 0;
    for (unsigned index = 0; index < count; index++) {
        const uintptr_t value = reinterpret_cast<uintptr_t>(values[index]);
        if (options[index] == jit_max_registers) {
            s.max_registers = static_cast<int>(value);
        } else if (options[index] == jit_error_log) {
            log = static_cast<char *>(values[index]);
        } else if (options[index] == jit_error_log_bytes) {
            log_bytes = value;
        }
    }
    if (log && log_bytes > 0) {
        std::strncpy(log, problem.c_str(), log_bytes);
        log[log_bytes - 1] = 0;
    }
}

// "" when this launch can be made.
std::string wrong_shape(const Kernel &kernel, const CUfunc_st &function, const Launch &launch) {
    const uint64_t threads = static_cast<uint64_t>(launch.block[0]) * launch.block[1] * launch.block[2];
    const uint32_t largest_grid[] = {2147483647u, state().most_blocks, state().most_blocks}, largest_block[] = {1024u, 1024u, 64u};
    for (int dimension = 0; dimension < 3; dimension++) {
        if (launch.grid[dimension] == 0 || launch.grid[dimension] > largest_grid[dimension]) {
            return "the grid has " + std::to_string(launch.grid[dimension]) + " blocks in dimension " + std::to_string(dimension);
        }
        if (launch.block[dimension] == 0 || launch.block[dimension] > largest_block[dimension]) {
            return "a block has " + std::to_string(launch.block[dimension]) + " threads in dimension " + std::to_string(dimension);
        }
        const int required = kernel.required_block[dimension], largest = kernel.largest_block[dimension];
        if (required > 0 && launch.block[dimension] != static_cast<uint32_t>(required)) {
            return "a block has " + std::to_string(launch.block[dimension]) + " threads in dimension " + std::to_string(dimension) +
                   ", the kernel requires " + std::to_string(required);
        }
        if (largest > 0 && threads > static_cast<uint64_t>(largest) * static_cast<uint64_t>(kernel.largest_block[(dimension + 1) % 3]) *
                                         static_cast<uint64_t>(kernel.largest_block[(dimension + 2) % 3])) {
            return "a block has " + std::to_string(threads) + " threads, more than the kernel was compiled for";
        }
    }
    if (threads > 1024) {
        return "a block has " + std::to_string(threads) + " threads, at most 1024 are possible";
    }
    const size_t shared = kernel.static_shared + launch.dynamic_shared;
    return shared > static_cast<size_t>(function.dynamic_shared)
               ? "a block wants " + std::to_string(shared) + " bytes of shared memory, it may have " +
                     std::to_string(function.dynamic_shared)
               : "";
}

void count_instructions(State &s, const Launch &launch) {
    for (const Instruction &instruction : launch.kernel->code) {
        const size_t index = static_cast<size_t>(instruction.index);
        if (launch.executed[index] != 0) {
            Count &count = s.counts[instruction.opcode];
            count.warps += launch.executed[index];
            count.threads += launch.threads[index];
            count.traffic += launch.traffic[index];
        }
    }
}

CUresult check_launch(State &s, CUfunction function, CUcontext context, CUstream stream, void **parameters, void **extra) {
    if (!s.functions.count(function)) {
        return s.fail(CUDA_ERROR_INVALID_HANDLE, "cuLaunchKernel: there is no such function");
    }
    if (function->module->context != context) {
        return s.fail(CUDA_ERROR_INVALID_CONTEXT, "cuLaunchKernel: the function belongs to another context than the current one");
    }
    if (extra || (!parameters && !function->kernel->parameters.empty())) {
        return s.fail(CUDA_ERROR_INVALID_VALUE, "cuLaunchKernel: the parameters are expected as an array of pointers");
    }
    const CUresult valid = s.check_stream(stream);
    if (valid != CUDA_SUCCESS) {
        return valid;
    }
    return function->kernel->unknown.empty() ? CUDA_SUCCESS : s.fail(CUDA_ERROR_ILLEGAL_INSTRUCTION, function->kernel->unknown);
}

// A launch whose turn has come.
CUresult started(CUfunction function, CUcontext context, CUstream stream, Launch *launch) {
    State &s = state();
    if (!s.functions.count(function)) {
        return s.fail(CUDA_ERROR_INVALID_HANDLE, "cuGraphLaunch: the module of a kernel was unloaded");
    }
    launch->id = ++s.launches;
    context->launches[reinterpret_cast<uintptr_t>(stream) <= 2 ? nullptr : stream]++;
    const bool done = execute(*launch);
    count_instructions(s, *launch);
    return done ? CUDA_SUCCESS : s.fail(code_of(launch->fault.kind), launch->fault.text);
}

} // namespace

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values) {
    CUDA_DRIVER_ENTER_CONTEXT
    if (const CUresult captured = s.refuse_in_capture(__func__)) {
        return captured;
    }
    if (!module || !image) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto made = std::make_unique<CUmod_st>();
    made->context = context;
    std::string problem;
    DeviceMemory &memory = s.devices[static_cast<size_t>(context->device)].memory;
    const LoadResult result = load_module(static_cast<const char *>(image), s.capability, memory, context, made->module, problem);
    read_options(s, count, options, values, problem);
    if (result != LoadResult::ok) {
        for (const auto &[name, variable] : made->module.variables) {
            memory.release(variable.address);
        }
        return s.fail(code_of(result), problem);
    }
    for (const auto &[name, kernel] : made->module.kernels) {
        auto function = std::make_unique<CUfunc_st>();
        function->dynamic_shared = static_cast<int>(s.shared_bytes);
        function->module = made.get();
        function->kernel = &kernel;
        s.functions.insert(function.get());
        made->functions[name] = std::move(function);
    }
    *module = made.get();
    s.modules[*module] = std::move(made);
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    CUDA_DRIVER_ENTER
    const CUresult captured = s.refuse_in_capture(__func__);
    return captured ? captured : cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleUnload(CUmodule module) {
    CUDA_DRIVER_ENTER
    if (const CUresult captured = s.refuse_in_capture(__func__)) {
        return captured;
    }
    if (!s.modules.count(module)) {
        return s.fail(CUDA_ERROR_INVALID_HANDLE, "cuModuleUnload: there is no such module");
    }
    s.drop_module(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CUDA_DRIVER_ENTER
    if (!s.modules.count(module)) {
        return s.fail(CUDA_ERROR_INVALID_HANDLE, "cuModuleGetFunction: there is no such module");
    }
    const auto found = module->functions.find(name);
    if (found == module->functions.end()) {
        return s.fail(CUDA_ERROR_NOT_FOUND, std::string("the module has no kernel ") + name);
    }
    *function = found->second.get();
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
    CUDA_DRIVER_ENTER
    if (!s.modules.count(module)) {
        return s.fail(CUDA_ERROR_INVALID_HANDLE, "cuModuleGetGlobal: there is no such module");
    }
    const auto found = module->module.variables.find(name);
    if (found == module->module.variables.end()) {
        return s.fail(CUDA_ERROR_NOT_FOUND, std::string("the module has no variable ") + name);
    }
    if (address) {
        *address = found->second.address;
    }
    if (bytes) {
        *bytes = found->second.bytes.size();
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
    CUDA_DRIVER_ENTER
    if (!s.functions.count(function)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    switch (attribute) {
    case attribute_threads:
        *value = 1024;
        return CUDA_SUCCESS;
    case attribute_shared:
        *value = static_cast<int>(function->kernel->static_shared);
        return CUDA_SUCCESS;
    case attribute_local:
        *value = static_cast<int>(function->kernel->local_bytes);
        return CUDA_SUCCESS;
    case attribute_dynamic_shared:
        *value = function->dynamic_shared;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED; // values that only a compiler has, such as the number of registers
    }
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    CUDA_DRIVER_ENTER
    if (!s.functions.count(function)) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (attribute != attribute_dynamic_shared || value < 0 || value > static_cast<int>(s.most_shared)) {
        return s.fail(CUDA_ERROR_INVALID_VALUE,
                      "cuFuncSetAttribute: attribute " + std::to_string(attribute) + ", value " + std::to_string(value));
    }
    function->dynamic_shared = std::max(value, static_cast<int>(s.shared_bytes));
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters, void **extra) {
    CUDA_DRIVER_ENTER_CONTEXT
    const CUresult valid = check_launch(s, function, context, stream, parameters, extra);
    if (valid != CUDA_SUCCESS) {
        return valid;
    }
    const Kernel &kernel = *function->kernel;
    Launch launch;
    launch.kernel = &kernel;
    launch.memory = &s.devices[static_cast<size_t>(context->device)].memory;
    const uint32_t grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
    std::copy(grid, grid + 3, launch.grid);
    std::copy(block, block + 3, launch.block);
    launch.dynamic_shared = shared_bytes;
    launch.step_limit = s.step_limit;
    launch.count_traffic = s.count_traffic;
    launch.truncates = s.truncates;
    const std::string problem = wrong_shape(kernel, *function, launch);
    if (!problem.empty()) {
        return s.fail(CUDA_ERROR_INVALID_VALUE, "kernel " + kernel.name + ": " + problem);
    }
    CUgraph_st *graph = s.capture_of(stream);
    if (!graph && !s.executes) {
        ++s.launches;
        context->launches[reinterpret_cast<uintptr_t>(stream) <= 2 ? nullptr : stream]++;
        return CUDA_SUCCESS;
    }
    launch.parameters.resize(kernel.parameter_bytes);
    for (size_t index = 0; index < kernel.parameters.size(); index++) {
        std::memcpy(launch.parameters.data() + kernel.parameters[index].offset, parameters[index], kernel.parameters[index].bytes);
    }
    if (graph) {
        graph->work.emplace_back([function, context, stream, launch] {
            Launch now = launch;
            return started(function, context, stream, &now);
        });
        return CUDA_SUCCESS;
    }
    return started(function, context, stream, &launch);
}

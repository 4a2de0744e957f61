// The state of the driver: its start, its end, and who owns what.
#include "state.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace polyhead::cuda_driver {

namespace {

uint64_t environment(const char *name, uint64_t otherwise) {
    const char *text = std::getenv(name);
    return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Bytes of shared memory that a block may ask for (CUDA C++ Programming Guide, table of technical specifications).
uint32_t largest_shared(int capability) {
    const uint32_t kilobytes = capability == 80 || capability == 87        ? 163
                               : capability == 90 || capability / 10 == 10 ? 227
                               : capability >= 80                          ? 99
                               : capability == 75                          ? 64
                               : capability >= 70                          ? 96
                                                                           : 48;
    return kilobytes * 1024;
}

} // namespace

State &state() {
    static State *forever = new State; // programs call the driver from destructors of static objects
    return *forever;
}

std::vector<CUcontext> &context_stack() {
    thread_local std::vector<CUcontext> stack;
    return stack;
}

namespace {

thread_local int entered = 0; // of functions of the API that call each other

}

Called::Called(const char *name) {
    if (entered++ > 0) {
        return;
    }
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    const auto found = s.calls.find(name); // memory is taken at the first call alone: programs count their own requests beside it
    ++(found != s.calls.end() ? found : s.calls.emplace(name, 0).first)->second;
}

Called::~Called() {
    --entered;
}

CUcontext current_context() {
    const std::vector<CUcontext> &stack = context_stack();
    return !stack.empty() && state().contexts.count(stack.back()) ? stack.back() : nullptr;
}

void State::start() {
    capability = static_cast<int>(environment("POLYHEAD_CUDA_DRIVER_CAPABILITY", 80));
    step_limit = environment("POLYHEAD_CUDA_DRIVER_STEPS", 100000000000);
    most_blocks = static_cast<uint32_t>(environment("POLYHEAD_CUDA_DRIVER_BLOCKS", 65535));
    most_shared = static_cast<uint32_t>(environment("POLYHEAD_CUDA_DRIVER_SHARED", largest_shared(capability)));
    shared_bytes = std::min(most_shared, 48u * 1024);
    wait_ms = environment("POLYHEAD_CUDA_DRIVER_WAIT", 0);
    quiet = environment("POLYHEAD_CUDA_DRIVER_QUIET", 0) != 0;
    count_traffic = environment("POLYHEAD_CUDA_DRIVER_TRAFFIC", 0) != 0;
    executes = true;
    truncates = environment("POLYHEAD_CUDA_DRIVER_TRUNCATE", 0) != 0;
    const int count = static_cast<int>(environment("POLYHEAD_CUDA_DRIVER_DEVICES", 1));
    const size_t memory = environment("POLYHEAD_CUDA_DRIVER_MEMORY", uint64_t{1} << 30);
    for (int device = 0; device < count; device++) {
        devices.emplace_back();
        devices.back().memory = DeviceMemory(device, memory);
    }
    initialised = !devices.empty();
}

void State::clear() {
    initialised = false;
    devices.clear();
    contexts.clear();
    streams.clear();
    events.clear();
    modules.clear();
    functions.clear();
    graphs.clear();
    executables.clear();
    counts.clear();
    calls.clear();
    launches = 0;
    max_registers = 0;
    problem.clear();
}

CUresult State::fail(CUresult code, const std::string &text) {
    problem = text;
    if (!quiet) {
        std::fprintf(stderr, "CUDA driver for tests: %s\n", text.c_str());
    }
    return code;
}

CUcontext State::make_context(CUdevice device) {
    auto context = std::make_unique<CUctx_st>();
    context->device = device;
    const CUcontext handle = context.get();
    contexts[handle] = std::move(context);
    return handle;
}

void State::drop_module(CUmodule module) {
    Device &device = devices[static_cast<size_t>(module->context->device)];
    for (const auto &[name, variable] : module->module.variables) {
        device.memory.release(variable.address);
    }
    for (const auto &[name, function] : module->functions) {
        functions.erase(function.get());
    }
    modules.erase(module);
}

void State::drop_context(CUcontext context) {
    std::vector<CUmodule> gone;
    for (const auto &[handle, module] : modules) {
        if (module->context == context) {
            gone.push_back(handle);
        }
    }
    for (CUmodule module : gone) {
        drop_module(module);
    }
    for (auto at = streams.begin(); at != streams.end();) {
        at = at->second->context == context ? streams.erase(at) : std::next(at);
    }
    for (auto at = events.begin(); at != events.end();) {
        at = at->second->context == context ? events.erase(at) : std::next(at);
    }
    devices[static_cast<size_t>(context->device)].memory.release_all_of(context);
    contexts.erase(context);
}

CUgraph_st *State::capture_of(CUstream stream) {
    const auto found = streams.find(stream);
    return found == streams.end() ? nullptr : found->second->capture.get();
}

CUresult State::refuse_in_capture(const char *function) {
    if (entered > 1) {
        return CUDA_SUCCESS; // a part of another function, which is allowed
    }
    bool any = false;
    for (const auto &[handle, stream] : streams) {
        if (stream->capture) {
            stream->spoiled = any = true;
        }
    }
    return any ? fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, std::string(function) + ": not while a stream is captured") : CUDA_SUCCESS;
}

void State::drop_graph(CUgraph graph) {
    for (const CUdeviceptr address : graph->memory) {
        for (Device &device : devices) {
            device.memory.release(address);
        }
    }
    graphs.erase(graph);
}

Device *State::owner(CUdeviceptr address, size_t bytes) {
    const auto found =
        std::find_if(devices.begin(), devices.end(), [&](Device &device) { return device.memory.find(address, bytes) != nullptr; });
    return found == devices.end() ? nullptr : &*found;
}

CUresult State::check_stream(CUstream stream) {
    if (reinterpret_cast<uintptr_t>(stream) <= 2) {
        return CUDA_SUCCESS;
    }
    const auto found = streams.find(stream);
    if (found == streams.end()) {
        return fail(CUDA_ERROR_INVALID_HANDLE, "the stream is none that this driver has made");
    }
    return found->second->context == current_context()
               ? CUDA_SUCCESS
               : fail(CUDA_ERROR_INVALID_HANDLE, "the stream belongs to another context than the current one");
}

} // namespace polyhead::cuda_driver

// What the driver remembers: devices, contexts, streams, events, modules, counts; one lock for all of it.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_STATE_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_STATE_H

#include "cuda_driver.h"
#include "device_memory.h"
#include "program.h"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

struct CUctx_st {
    int device = 0;
    std::map<CUstream, uint64_t> launches;
};

struct CUgraph_st {
    std::vector<std::function<CUresult()>> work; // in the order in which it was given to the stream
    std::vector<CUdeviceptr> memory;             // allocated for this graph
};

struct CUgraphExec_st {
    std::vector<std::function<CUresult()>> work;
};

struct CUstream_st {
    CUcontext context = nullptr;
    std::unique_ptr<CUgraph_st> capture; // while the stream is captured
    bool spoiled = false;                // by a call that a capture does not allow
};

struct CUevent_st {
    CUcontext context = nullptr;
    bool recorded = false;
    std::chrono::steady_clock::time_point time;
};

struct CUfunc_st {
    CUmodule module = nullptr;
    const polyhead::cuda_driver::Kernel *kernel = nullptr;
    int dynamic_shared = 0; // what a launch may ask for
};

struct CUmod_st {
    CUcontext context = nullptr;
    polyhead::cuda_driver::Module module;
    std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

namespace polyhead::cuda_driver {

struct Device {
    DeviceMemory memory;
    CUcontext primary = nullptr;
    int primary_users = 0;
};

struct Count {
    uint64_t warps = 0, threads = 0, traffic = 0;
};

struct State {
    std::recursive_mutex lock;
    bool initialised = false;
    int capability = 80;
    uint64_t step_limit = 0, wait_ms = 0;
    uint32_t shared_bytes = 0, most_shared = 0; // of a block, and of one whose function asks for it
    uint32_t most_blocks = 65535;               // of a grid in y and z
    bool quiet = false, count_traffic = false, truncates = false;
    bool executes = true; // false: launches are checked and counted alone
    std::vector<Device> devices;
    std::map<CUcontext, std::unique_ptr<CUctx_st>> contexts;
    std::map<CUstream, std::unique_ptr<CUstream_st>> streams;
    std::map<CUevent, std::unique_ptr<CUevent_st>> events;
    std::map<CUmodule, std::unique_ptr<CUmod_st>> modules;
    std::set<CUfunction> functions;
    std::map<std::string, Count> counts;                // by opcode
    std::map<std::string, uint64_t, std::less<>> calls; // of the functions of the API, by a program
    std::map<CUgraph, std::unique_ptr<CUgraph_st>> graphs;
    std::map<CUgraphExec, std::unique_ptr<CUgraphExec_st>> executables;
    uint64_t launches = 0;
    int max_registers = 0;
    std::string problem;

    // Reads the environment and makes the devices.
    void start();
    void clear();
    CUresult fail(CUresult code, const std::string &text);
    bool is_device(CUdevice device) const { return device >= 0 && device < static_cast<int>(devices.size()); }
    CUcontext make_context(CUdevice device);
    // With its memory, streams, events and modules.
    void drop_context(CUcontext context);
    void drop_module(CUmodule module);
    // The device whose memory holds all these bytes; null when they belong to no device.
    Device *owner(CUdeviceptr address, size_t bytes);
    // 0 is the default stream of the context; 1 and 2 are its legacy and per-thread names.
    CUresult check_stream(CUstream stream);
    // The graph that this stream is captured into; null: work is done at once.
    CUgraph_st *capture_of(CUstream stream);
    // Of a function that waits, or changes memory or code at once: a failure, which ends all captures, while any stream is captured.
    CUresult refuse_in_capture(const char *function);
    void drop_graph(CUgraph graph);
};

// Counts a function of the API that a program calls: not what one of them calls of the others.
class Called {
public:
    explicit Called(const char *name);
    ~Called();
    Called(const Called &) = delete;
    Called &operator=(const Called &) = delete;
};

State &state();

// The contexts that this thread has pushed; the last is current.
std::vector<CUcontext> &context_stack();
// Null: none, or it no longer exists.
CUcontext current_context();

// The start of every call: the lock, and the check that cuInit was called.
#define CUDA_DRIVER_ENTER                                                                                                                  \
    const Called called(__func__);                                                                                                         \
    State &s = state();                                                                                                                    \
    const std::lock_guard<std::recursive_mutex> guard(s.lock);                                                                             \
    if (!s.initialised) {                                                                                                                  \
        return CUDA_ERROR_NOT_INITIALIZED;                                                                                                 \
    }
#define CUDA_DRIVER_ENTER_CONTEXT                                                                                                          \
    CUDA_DRIVER_ENTER                                                                                                                      \
    const CUcontext context = current_context();                                                                                           \
    if (!context) {                                                                                                                        \
        return s.fail(CUDA_ERROR_INVALID_CONTEXT, "this thread has no current context");                                                   \
    }

} // namespace polyhead::cuda_driver
#endif

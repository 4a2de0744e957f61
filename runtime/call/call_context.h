// The user context of one call: a kernel passes it back to us whenever it needs something or reports an error.
#ifndef POLYHEAD_RUNTIME_CALL_CONTEXT_H
#define POLYHEAD_RUNTIME_CALL_CONTEXT_H

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <polyhead/c_api.h>

namespace polyhead::runtime {

class Workers;

struct CallContext {
    static constexpr uint64_t ours = 0x706f6c7968656164; // "polyhead": other code of the process may use Halide with other contexts

    explicit CallContext(polyhead_device *device_) noexcept : device(device_) { text[0] = 0; }
    // On the CPU: the workers beside the thread of the call have this memory, helper_bytes each, one after another.
    CallContext(Workers *workers_, char *helper_memory_, size_t helper_bytes_) noexcept
        : device(nullptr), workers(workers_), helper_memory(helper_memory_), helper_bytes(helper_bytes_) {
        text[0] = 0;
    }
    CallContext(const CallContext &) = delete;
    CallContext &operator=(const CallContext &) = delete;

    // Null when this user context is not one of ours.
    static CallContext *of(void *user_context) noexcept {
        auto *context = static_cast<CallContext *>(user_context);
        return context && context->mark == ours ? context : nullptr;
    }

    // Keeps the first line of the first text: that error is the cause, later ones are its consequences. Any thread of the call may report.
    void report(const char *message) noexcept {
        if (claimed.exchange(true)) {
            return;
        }
        size_t length = 0;
        for (; length + 1 < sizeof text && message[length] != 0 && message[length] != '\n'; ++length) {
            text[length] = message[length];
        }
        text[length] = 0;
        reported.store(true, std::memory_order_release);
    }

    const uint64_t mark = ours;
    polyhead_device *const device;
    bool entered = false; // the device is ready for the thread of the call (EnteredDevice)
    // What the device found out for this call: whether its work is done, or kept for a graph.
    enum class Capture { unknown, none, some } capture = Capture::unknown;
    Workers *const workers = nullptr;
    char *const helper_memory = nullptr;
    const size_t helper_bytes = 0;
    void *scratch_of(int worker) const noexcept { return helper_memory + static_cast<size_t>(worker - 1) * helper_bytes; } // from 1
    std::atomic<bool> claimed{false}, reported{false};
    char text[sizeof(polyhead_status::message)];
};

} // namespace polyhead::runtime
#endif

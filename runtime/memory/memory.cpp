// Memory of running kernels. A call's scratch is held before its kernel starts (scratch.h), and pieces that calls gave back are kept, so
// that a call neither maps pages nor takes first-touch faults each time: small ones by a group of threads, large ones (with tensors between
// the stages of a layer) by the process. They are not kept by the thread itself: what a thread frees when it ends would need a destructor
// of the thread, and a library that has one stays loaded until all its threads have ended. Kernels ask by halide_malloc and halide_free,
// and so does the Halide runtime of devices, whose own functions of these names are weak symbols.
#include "memory.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "../kernel_interface.h"
#include "../threads/process.h"
#include "scratch.h"

namespace polyhead::runtime {
namespace {

constexpr size_t alignment = Scratch::alignment;
constexpr size_t large_block = size_t(1) << 20;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool keep_blocks = false; // a reused block would hide overruns and uses after free
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool keep_blocks = false;
#else
constexpr bool keep_blocks = true;
#endif
#else
constexpr bool keep_blocks = true;
#endif

// Before every block lies one alignment unit, which holds its size; after it lies another, because Halide may read 8 bytes past.
size_t &size_of(void *block) noexcept {
    return *reinterpret_cast<size_t *>(static_cast<char *>(block) - alignment);
}

void *block_from_system(size_t bytes) noexcept {
    if (bytes > SIZE_MAX - 3 * alignment) {
        return nullptr;
    }
    bytes = (bytes + alignment - 1) / alignment * alignment;
    void *memory = std::aligned_alloc(alignment, bytes + 2 * alignment);
    if (!memory) {
        return nullptr;
    }
    void *block = static_cast<char *>(memory) + alignment;
    size_of(block) = bytes;
    return block;
}

void block_to_system(void *block) noexcept {
    std::free(static_cast<char *>(block) - alignment);
}

// Freed blocks, oldest first. Trivially destructible: it may be reached while a thread or the program ends.
struct BlockCache {
    static constexpr int capacity = 32;
    void *blocks[capacity];
    int count;
    size_t bytes;

    void *remove(int index) noexcept {
        void *block = blocks[index];
        bytes -= size_of(block);
        for (--count; index < count; ++index) {
            blocks[index] = blocks[index + 1];
        }
        return block;
    }

    // The newest block that fits without wasting more than half of it, or null.
    void *take(size_t wanted) noexcept {
        for (int i = count - 1; i >= 0; --i) {
            const size_t size = size_of(blocks[i]);
            if (size >= wanted && size / 2 <= wanted + alignment) {
                return remove(i);
            }
        }
        return nullptr;
    }

    void put(void *block, size_t limit) noexcept {
        const size_t size = size_of(block);
        if (size > limit) {
            return block_to_system(block);
        }
        while (count == capacity || bytes + size > limit) {
            block_to_system(remove(0));
        }
        blocks[count++] = block;
        bytes += size;
    }
};

// The blocks that some threads share. Threads are dealt out in turn, so that few share one. On lines of its own.
struct alignas(128) Group {
    std::mutex mutex;
    BlockCache cache{};

    void *take(size_t bytes) noexcept {
        const std::lock_guard<std::mutex> lock(mutex);
        return cache.take(bytes);
    }
    void put(void *block, size_t limit) noexcept {
        const std::lock_guard<std::mutex> lock(mutex);
        cache.put(block, limit);
    }
    size_t kept() noexcept {
        const std::lock_guard<std::mutex> lock(mutex);
        return cache.bytes;
    }
    void clear() noexcept {
        const std::lock_guard<std::mutex> lock(mutex);
        while (cache.count > 0) {
            block_to_system(cache.remove(0));
        }
    }
};

Group of_threads[thread_groups], of_process;
std::atomic<bool> ended{false}; // nothing is kept any more
std::atomic<unsigned> dealt{0};
thread_local unsigned own_group = 0;     // from 1; 0: not dealt yet
thread_local Scratch *of_call = nullptr; // of the call that this thread works for
thread_local bool runs_task = false;     // of an executor

Group &group() noexcept {
    if (own_group == 0) {
        own_group = 1 + dealt.fetch_add(1, std::memory_order_relaxed) % thread_groups;
    }
    return of_threads[own_group - 1];
}

Group &group_of(size_t bytes) noexcept {
    return bytes < large_block ? group() : of_process;
}

template <typename Action> void for_each_group(const Action &action) noexcept {
    for (Group &one : of_threads) {
        action(one);
    }
    action(of_process);
}

// The end of the program, or of the library that this code is in. Threads may still run, and give memory back.
__attribute__((destructor)) void give_all_back() noexcept {
    ended.store(true);
    give_kept_memory_back();
}

} // namespace

void *take_memory(size_t bytes) noexcept {
    if (keep_blocks) {
        if (void *block = group_of(bytes).take(bytes)) {
            return block;
        }
    }
    return block_from_system(bytes);
}

void give_memory(void *memory) noexcept {
    if (!memory) {
        return;
    }
    if (!keep_blocks || ended.load(std::memory_order_relaxed)) {
        return block_to_system(memory);
    }
    const size_t bytes = size_of(memory);
    group_of(bytes).put(memory, bytes < large_block ? kept_by_group : kept_by_process);
}

void give_kept_memory_back() noexcept {
    for_each_group([](Group &one) { one.clear(); });
}

size_t kept_memory() noexcept {
    size_t bytes = 0;
    for_each_group([&](Group &one) { bytes += one.kept(); });
    return bytes;
}

void *new_block(size_t bytes) noexcept {
    return block_from_system(bytes);
}

void free_block(void *block) noexcept {
    if (block) {
        block_to_system(block);
    }
}

size_t block_bytes(const void *block) noexcept {
    return size_of(const_cast<void *>(block));
}

Scratch *present_scratch() noexcept {
    return of_call;
}

InTask::InTask() noexcept : before_(runs_task) {
    runs_task = true;
}

InTask::~InTask() {
    runs_task = before_;
}

bool in_task() noexcept {
    return runs_task;
}

Scratch *work_in(Scratch *scratch) noexcept {
    Scratch *const before = of_call;
    of_call = scratch;
    return before;
}

bool of_this_call(const void *user_context) noexcept {
    return user_context && of_call && of_call->context == user_context;
}

void lock_memory_for_fork() noexcept {
    for_each_group([](Group &one) { one.mutex.lock(); });
}

void unlock_memory_after_fork() noexcept {
    for_each_group([](Group &one) { one.mutex.unlock(); });
}

// Large weights lie in large pages where the system gives them: calls of few rows read them at the rate of memory, a quarter slower when
// each 4 KiB has an address translation of its own.
void *allocate_weights(size_t bytes) noexcept {
    constexpr size_t line = 64, large_page = 2 << 20, least = 4 * large_page;
    const size_t unit = bytes >= least ? large_page : line;
    void *memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
#ifdef MADV_HUGEPAGE
    if (memory && unit == large_page) {
        madvise(memory, bytes, MADV_HUGEPAGE); // a wish
    }
#endif
    return memory;
}

void free_weights(const void *memory) noexcept {
    std::free(const_cast<void *>(memory));
}

} // namespace polyhead::runtime

extern "C" void *halide_malloc(void *user_context, size_t bytes) {
    using namespace polyhead::runtime;
    if (of_this_call(user_context)) {
        if (void *block = of_call->take(bytes)) {
            return block;
        }
    }
    return take_memory(bytes);
}

extern "C" void halide_free(void *, void *block) {
    using namespace polyhead::runtime;
    if (block && of_call && of_call->owns(block)) {
        return of_call->give(block);
    }
    give_memory(block);
}

// Memory of running kernels. Freed blocks are kept, so that a call neither maps pages nor takes first-touch faults each time:
// small ones (scratch of a tile) by the thread that freed them, large ones (tensors between the stages of a layer) by the process.
// Halide's documented way to replace its allocator is to define halide_malloc and halide_free; its own are weak symbols. Defined
// here they hold from the first instruction of the program, whoever else uses this Halide runtime.
#include "memory.h"

#include <HalideRuntime.h>
#include <atomic>
#include <cstdlib>
#include <mutex>

namespace polyhead::runtime {
namespace {

constexpr size_t alignment = 128; // a pair of cache lines, which the hardware prefetches together
constexpr size_t large_block = size_t(1) << 20;
constexpr size_t kept_per_thread = size_t(8) << 20;
constexpr size_t kept_by_process = size_t(128) << 20;

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

struct ThreadCache {
    BlockCache cache{};
    bool ended = false;
    ~ThreadCache() {
        while (cache.count > 0) {
            block_to_system(cache.remove(0));
        }
        ended = true;
    }
};

thread_local ThreadCache of_thread;
std::mutex of_process_mutex;
BlockCache of_process{};

void *take_block(size_t bytes) noexcept {
    if (bytes < large_block) {
        return of_thread.cache.take(bytes);
    }
    const std::lock_guard<std::mutex> lock(of_process_mutex);
    return of_process.take(bytes);
}

void put_block(void *block) noexcept {
    if (size_of(block) < large_block) {
        return of_thread.ended ? block_to_system(block) : of_thread.cache.put(block, kept_per_thread);
    }
    const std::lock_guard<std::mutex> lock(of_process_mutex);
    of_process.put(block, kept_by_process);
}

} // namespace

bool can_allocate(int64_t bytes) noexcept {
    // What was had once is mostly still in the caches; only more than ever before is worth a question to the system.
    static std::atomic<int64_t> known{0};
    if (bytes <= known.load(std::memory_order_relaxed)) {
        return true;
    }
    void *volatile block = block_from_system(static_cast<size_t>(bytes)); // volatile: the pair must not be optimised away
    if (!block) {
        return false;
    }
    block_to_system(block);
    if (bytes <= static_cast<int64_t>(kept_by_process)) {
        known.store(bytes, std::memory_order_relaxed);
    }
    return true;
}

void *allocate_weights(size_t bytes) noexcept {
    constexpr size_t line = 64;
    return std::aligned_alloc(line, (bytes + line - 1) / line * line);
}

void free_weights(const void *memory) noexcept {
    std::free(const_cast<void *>(memory));
}

} // namespace polyhead::runtime

extern "C" void *halide_malloc(void *, size_t bytes) {
    using namespace polyhead::runtime;
    if (keep_blocks) {
        if (void *block = take_block(bytes)) {
            return block;
        }
    }
    return block_from_system(bytes);
}

extern "C" void halide_free(void *, void *block) {
    using namespace polyhead::runtime;
    if (!block) {
        return;
    }
    keep_blocks ? put_block(block) : block_to_system(block);
}

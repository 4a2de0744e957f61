// Blocks inside of a call's scratch. Under AddressSanitizer what is not in use is poisoned, so that overruns and uses after free show.
#include "scratch.h"

#if defined(__SANITIZE_ADDRESS__)
#define POLYHEAD_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POLYHEAD_POISONS 1
#endif
#endif

#if defined(POLYHEAD_POISONS)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

namespace polyhead::runtime {

namespace {

constexpr size_t read_past = 8; // Halide may read this far behind a block

} // namespace

void Scratch::use(void *memory, size_t bytes) noexcept {
    if (begin_) {
        ASAN_UNPOISON_MEMORY_REGION(begin_, static_cast<size_t>(end_ - begin_));
    }
    begin_ = at_ = static_cast<char *>(memory);
    end_ = begin_ + (memory ? bytes : 0);
    top_ = nullptr;
    if (begin_) {
        ASAN_POISON_MEMORY_REGION(begin_, static_cast<size_t>(end_ - begin_));
    }
}

void *Scratch::take(size_t bytes) noexcept {
    const size_t left = static_cast<size_t>(end_ - at_);
    if (left < 2 * alignment || bytes > left - 2 * alignment) { // behind the last block a unit stays free to read
        return nullptr;
    }
    char *const block = at_ + alignment;
    ASAN_UNPOISON_MEMORY_REGION(at_, sizeof(Header));
    *header(block) = {top_, bytes, false};
    ASAN_UNPOISON_MEMORY_REGION(block, bytes + read_past);
    at_ = block + (bytes + alignment - 1) / alignment * alignment;
    top_ = block;
    return block;
}

void Scratch::give(void *block) noexcept {
    header(block)->free = true;
    ASAN_POISON_MEMORY_REGION(block, header(block)->bytes);
    char *const above = at_;
    while (top_ && header(top_)->free) {
        at_ = static_cast<char *>(top_) - alignment;
        top_ = header(top_)->below;
    }
    ASAN_POISON_MEMORY_REGION(at_, static_cast<size_t>(above - at_));
}

ScratchInUse::ScratchInUse(const void *context, void *memory, size_t bytes) noexcept {
    scratch_.use(memory, bytes);
    scratch_.context = context;
    before_ = work_in(&scratch_);
}

ScratchInUse::~ScratchInUse() {
    work_in(before_);
    scratch_.use(nullptr, 0);
}

} // namespace polyhead::runtime

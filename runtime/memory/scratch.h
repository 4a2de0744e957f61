// The memory of one thread during a call: allocated before the kernel starts, so that nothing is allocated while it runs.
#ifndef POLYHEAD_RUNTIME_SCRATCH_H
#define POLYHEAD_RUNTIME_SCRATCH_H

#include <cstddef>

namespace polyhead::runtime {

// A stack of blocks in one piece of memory. A kernel frees a block on the thread that took it, mostly in reverse order; a block
// freed earlier is reused when those above it are free. One thread uses it, without a lock.
class Scratch {
public:
    static constexpr size_t alignment = 128; // a pair of cache lines, which the hardware prefetches together
    // In addition to the bytes of a kernel: for each block its header and the alignment, and one unit at the end that may be read.
    static constexpr size_t most_blocks = 64, overhead = 2 * alignment * most_blocks + alignment;

    // memory: aligned, or null; it stays the caller's. Nothing may be in use.
    void use(void *memory, size_t bytes) noexcept;
    void *memory() const noexcept { return begin_; }
    size_t bytes() const noexcept { return static_cast<size_t>(end_ - begin_); }

    void *take(size_t bytes) noexcept; // null when it does not fit
    bool owns(const void *block) const noexcept { return block >= begin_ && block < end_; }
    void give(void *block) noexcept; // one that it owns

    const void *context = nullptr; // the call that may take from it

private:
    struct Header {
        void *below; // the block before, or null
        size_t bytes;
        bool free;
    };
    static Header *header(void *block) noexcept { return reinterpret_cast<Header *>(static_cast<char *>(block) - alignment); }

    char *begin_ = nullptr, *end_ = nullptr, *at_ = nullptr;
    void *top_ = nullptr;
};

// The scratch of this thread, or null outside of calls. work_in() changes it, and returns the one before.
Scratch *present_scratch() noexcept;
Scratch *work_in(Scratch *scratch) noexcept;

// While it lives, this thread runs a task of an executor: loops inside of it are run by this thread alone.
class InTask {
public:
    InTask() noexcept;
    ~InTask();
    InTask(const InTask &) = delete;
    InTask &operator=(const InTask &) = delete;

private:
    bool before_;
};
bool in_task() noexcept;

// True when this thread works for the call with this user context, which is one of ours then.
bool of_this_call(const void *user_context) noexcept;

// The scratch memory of a worker, in use while this object lives. The caller's thread has what is shared between stages and its own part.
class ScratchInUse {
public:
    ScratchInUse(const void *context, void *memory, size_t bytes) noexcept;
    ~ScratchInUse();
    ScratchInUse(const ScratchInUse &) = delete;
    ScratchInUse &operator=(const ScratchInUse &) = delete;

private:
    Scratch scratch_;
    Scratch *before_;
};

} // namespace polyhead::runtime
#endif

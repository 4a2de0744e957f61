// Memory of running kernels: allocated, kept and used again.
#ifndef POLYHEAD_RUNTIME_MEMORY_H
#define POLYHEAD_RUNTIME_MEMORY_H

#include <cstddef>

namespace polyhead::runtime {

// Bytes of blocks that wait for the next call, at most: small ones by each group of threads, large ones by the process.
constexpr size_t thread_groups = 16, kept_by_group = size_t(8) << 20, kept_by_process = size_t(256) << 20;

// Memory for kernels, at a multiple of 128 bytes; null when it cannot be had. What is given back may be kept for the next call.
void *take_memory(size_t bytes) noexcept;
void give_memory(void *memory) noexcept; // null: nothing

// All blocks that are kept go to the system. Bytes of those that are kept now.
void give_kept_memory_back() noexcept;
size_t kept_memory() noexcept;

// The same, without the blocks that are kept.
void *new_block(size_t bytes) noexcept;
void free_block(void *block) noexcept;          // null: nothing
size_t block_bytes(const void *block) noexcept; // at least the requested bytes

// 64-byte aligned memory for packed weights.
void *allocate_weights(size_t bytes) noexcept;
void free_weights(const void *memory) noexcept;

} // namespace polyhead::runtime
#endif

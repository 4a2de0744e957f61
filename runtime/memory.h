// Memory of running kernels: what Halide asks for, kept and given again.
#ifndef POLYHEAD_RUNTIME_MEMORY_H
#define POLYHEAD_RUNTIME_MEMORY_H

#include <cstddef>
#include <cstdint>

namespace polyhead::runtime {

// True when this many bytes can be had now. Asked before a kernel starts, so that a lack of memory is found before out is written.
bool can_allocate(int64_t bytes) noexcept;

// 64-byte aligned memory for packed weights.
void *allocate_weights(size_t bytes) noexcept;
void free_weights(const void *memory) noexcept;

} // namespace polyhead::runtime
#endif

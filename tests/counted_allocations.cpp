// Stands before the functions of the C library that allocate and free. Not in builds with sanitizers, which stand there themselves.
#include "counted_allocations.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

static std::atomic<long> calls{0};

namespace polyhead::test {

long allocations_so_far() {
    return calls.load();
}

} // namespace polyhead::test

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

void *malloc(size_t bytes) noexcept {
    calls.fetch_add(1, std::memory_order_relaxed);
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) noexcept {
    calls.fetch_add(1, std::memory_order_relaxed);
    return __libc_calloc(count, bytes);
}
void *realloc(void *block, size_t bytes) noexcept {
    calls.fetch_add(1, std::memory_order_relaxed);
    return __libc_realloc(block, bytes);
}
void *memalign(size_t alignment, size_t bytes) noexcept {
    calls.fetch_add(1, std::memory_order_relaxed);
    return __libc_memalign(alignment, bytes);
}
int posix_memalign(void **block, size_t alignment, size_t bytes) noexcept {
    calls.fetch_add(1, std::memory_order_relaxed);
    *block = __libc_memalign(alignment, bytes);
    return *block ? 0 : ENOMEM;
}
void free(void *block) noexcept {
    calls.fetch_add(1, std::memory_order_relaxed);
    __libc_free(block);
}
}
#endif

/* What LLVM's ThreadSanitizer calls in kernels and GCC's library does not have. Part of builds for that sanitizer alone. */
#include <stddef.h>
#include <string.h>

void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memmove(void *to, const void *from, size_t bytes);
void *__tsan_memset(void *to, int value, size_t bytes);

/* The plain names are watched by the sanitizer. */
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    return memcpy(to, from, bytes);
}

void *__tsan_memmove(void *to, const void *from, size_t bytes) {
    return memmove(to, from, bytes);
}

void *__tsan_memset(void *to, int value, size_t bytes) {
    return memset(to, value, bytes);
}

// One defined state of floating-point arithmetic: round to nearest, denormals kept, nothing traps. Equal calls then give equal bits,
// whatever the caller's thread and the threads that help it were set to.
#ifndef POLYHEAD_RUNTIME_FLOATING_POINT_H
#define POLYHEAD_RUNTIME_FLOATING_POINT_H

#include <cstdint>

#if defined(__x86_64__) || defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace polyhead::runtime {

// Sets that state and brings back what it found, flags of past exceptions included.
class DefinedArithmetic {
public:
#if defined(__x86_64__) || defined(__SSE__)
    DefinedArithmetic() noexcept : found_(_mm_getcsr()) {
        constexpr unsigned all_masked_nearest = 0x1f80;
        _mm_setcsr(all_masked_nearest);
    }
    ~DefinedArithmetic() { _mm_setcsr(found_); }
#elif defined(__aarch64__)
    DefinedArithmetic() noexcept {
        asm volatile("mrs %0, fpcr\n\tmrs %1, fpsr" : "=r"(found_), "=r"(found_flags_));
        asm volatile("msr fpcr, %0" : : "r"(uint64_t(0)) : "memory");
    }
    ~DefinedArithmetic() { asm volatile("msr fpcr, %0\n\tmsr fpsr, %1" : : "r"(found_), "r"(found_flags_) : "memory"); }
#else
    DefinedArithmetic() noexcept {}
    ~DefinedArithmetic() {}
#endif
    DefinedArithmetic(const DefinedArithmetic &) = delete;
    DefinedArithmetic &operator=(const DefinedArithmetic &) = delete;

private:
#if defined(__x86_64__) || defined(__SSE__)
    unsigned found_;
#elif defined(__aarch64__)
    uint64_t found_ = 0, found_flags_ = 0;
#endif
};

} // namespace polyhead::runtime
#endif

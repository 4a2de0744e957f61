// Floating-point states that a caller may be in: rounding, flushed denormals, flags of the past.
#ifndef POLYHEAD_TESTS_FLOATING_POINT_STATES_H
#define POLYHEAD_TESTS_FLOATING_POINT_STATES_H

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace polyhead::test {

#if defined(__x86_64__)
// One state of this thread while the object exists.
class ArithmeticState {
public:
    explicit ArithmeticState(unsigned state) : before_(_mm_getcsr()) { _mm_setcsr(state); }
    ~ArithmeticState() { _mm_setcsr(before_); }
    ArithmeticState(const ArithmeticState &) = delete;
    ArithmeticState &operator=(const ArithmeticState &) = delete;
    unsigned found() const { return _mm_getcsr(); }

private:
    unsigned before_;
};

// visit(state) for every rounding, with and without FTZ and DAZ, with and without old flags.
template <typename Visit> void for_each_state(const Visit &visit) {
    constexpr unsigned masked = 0x1f80, flush = 1u << 15, denormals_are_zero = 1u << 6, inexact_before = 1u << 5;
    for (unsigned rounding = 0; rounding < 4; ++rounding) {
        for (const unsigned ftz : {0u, flush}) {
            for (const unsigned daz : {0u, denormals_are_zero}) {
                visit(masked | rounding << 13 | ftz | daz | (rounding % 2 ? inexact_before : 0u));
            }
        }
    }
}
#elif defined(__aarch64__)
class ArithmeticState {
public:
    explicit ArithmeticState(unsigned state) : before_(read()) { write(state); }
    ~ArithmeticState() { write(before_); }
    ArithmeticState(const ArithmeticState &) = delete;
    ArithmeticState &operator=(const ArithmeticState &) = delete;
    unsigned found() const { return static_cast<unsigned>(read()); }

private:
    static uint64_t read() {
        uint64_t state;
        asm volatile("mrs %0, fpcr" : "=r"(state));
        return state;
    }
    static void write(uint64_t state) { asm volatile("msr fpcr, %0" : : "r"(state) : "memory"); }
    uint64_t before_;
};

// visit(state) for every rounding, with and without flushing to zero, with and without default NaNs.
template <typename Visit> void for_each_state(const Visit &visit) {
    constexpr unsigned flush = 1u << 24, default_nan = 1u << 25;
    for (unsigned rounding = 0; rounding < 4; ++rounding) {
        for (const unsigned fz : {0u, flush}) {
            for (const unsigned dn : {0u, default_nan}) {
                visit(rounding << 22 | fz | dn);
            }
        }
    }
}
#else
#error "which floating-point states a caller may be in is not known for this processor"
#endif

} // namespace polyhead::test
#endif

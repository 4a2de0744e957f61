// What Halide's Metal sources use of Metal's language, in Clang's words: a C++14 front end can then check types and address spaces.
#pragma once

#define __METAL_VERSION__ 240
#define kernel
#define thread
#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))

// Vectors; [[...]] and the constructors TYPE(...) of Metal are rewritten by check_metal.py (to nothing, and to make_TYPE).
#define POLYHEAD_VECTORS(element)                                                                                                          \
    typedef element element##2 __attribute__((ext_vector_type(2)));                                                                        \
    typedef element element##3 __attribute__((ext_vector_type(3)));                                                                        \
    typedef element element##4 __attribute__((ext_vector_type(4)));                                                                        \
    typedef element##2 packed_##element##2 __attribute__((aligned(4)));                                                                    \
    typedef element##4 packed_##element##4 __attribute__((aligned(4)));                                                                    \
    inline element##2 make_##element##2(element a) {                                                                                       \
        return element##2 {a, a};                                                                                                          \
    }                                                                                                                                      \
    inline element##4 make_##element##4(element a) {                                                                                       \
        return element##4 {a, a, a, a};                                                                                                    \
    }                                                                                                                                      \
    template <class A, class = decltype(A().x)> element##2 make_##element##2(A a) {                                                        \
        return __builtin_convertvector(a, element##2);                                                                                     \
    }                                                                                                                                      \
    template <class A, class = decltype(A().x)> element##4 make_##element##4(A a) {                                                        \
        return __builtin_convertvector(a, element##4);                                                                                     \
    }                                                                                                                                      \
    inline element##2 make_##element##2(element a, element b) {                                                                            \
        return element##2 {a, b};                                                                                                          \
    }                                                                                                                                      \
    inline element##4 make_##element##4(element a, element b, element c, element d) {                                                      \
        return element##4 {a, b, c, d};                                                                                                    \
    }
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
typedef _Float16 half;
POLYHEAD_VECTORS(float)
POLYHEAD_VECTORS(int)
POLYHEAD_VECTORS(uint)
POLYHEAD_VECTORS(half)
POLYHEAD_VECTORS(short)
POLYHEAD_VECTORS(ushort)
// Clang compares vectors to vectors of int.
typedef int2 bool2;
typedef int4 bool4;
constexpr half operator""h(long double x) {
    return static_cast<half>(x);
}

namespace metal {
enum class mem_flags { mem_none, mem_device, mem_threadgroup, mem_device_and_threadgroup };
constexpr mem_flags operator|(mem_flags a, mem_flags) {
    return a;
}
void threadgroup_barrier(mem_flags);

template <class To, class From> constexpr To as_type(From from) {
    static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
    return __builtin_bit_cast(To, from);
}
#define POLYHEAD_UNARY(name) template <class T> T name(T);
POLYHEAD_UNARY(abs)
POLYHEAD_UNARY(ceil)
POLYHEAD_UNARY(cos)
POLYHEAD_UNARY(exp)
POLYHEAD_UNARY(exp2)
POLYHEAD_UNARY(fabs)
POLYHEAD_UNARY(floor)
POLYHEAD_UNARY(log)
POLYHEAD_UNARY(log2)
POLYHEAD_UNARY(rint)
POLYHEAD_UNARY(round)
POLYHEAD_UNARY(rsqrt)
POLYHEAD_UNARY(sin)
POLYHEAD_UNARY(sqrt)
POLYHEAD_UNARY(tanh)
POLYHEAD_UNARY(trunc)
// Both arguments of one type, as Metal's overloads ask for: a mixture of int and float is an error here too.
template <class T> T min(T, T);
template <class T> T max(T, T);
template <class T> T clamp(T, T, T);
template <class T> T fma(T, T, T);
template <class T> T pow(T, T);
template <class T, class Condition> T select(T, T, Condition);
template <class T> bool isnan(T);
template <class T> bool isinf(T);
} // namespace metal

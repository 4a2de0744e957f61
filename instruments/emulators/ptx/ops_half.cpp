// Arithmetic of f16 and f16x2: computed wider, rounded once.
#include "decoder.h"
#include "numbers.h"
#include "warp.h"

namespace polyhead::cuda_driver {

namespace {

// Sum, difference and product of two f16 are exact in double.
struct Add {
    static uint16_t run(uint16_t a, uint16_t b) { return double_to_half(static_cast<double>(half_to_float(a)) + half_to_float(b)); }
};
struct Sub {
    static uint16_t run(uint16_t a, uint16_t b) { return double_to_half(static_cast<double>(half_to_float(a)) - half_to_float(b)); }
};
struct Mul {
    static uint16_t run(uint16_t a, uint16_t b) { return double_to_half(static_cast<double>(half_to_float(a)) * half_to_float(b)); }
};
struct Fma {
    static uint16_t run(uint16_t a, uint16_t b, uint16_t c) { return half_fma(a, b, c); }
};
bool is_nan(uint16_t a) {
    return (a & 0x7fffu) > 0x7c00u;
}
// Order of f16 as of whole numbers: -0 below +0.
int rank(uint16_t a) {
    return a & 0x8000u ? -static_cast<int>(a & 0x7fffu) - 1 : a;
}
struct Min {
    static uint16_t run(uint16_t a, uint16_t b) { return is_nan(a) ? (is_nan(b) ? 0x7fffu : b) : is_nan(b) || rank(a) <= rank(b) ? a : b; }
};
struct Max {
    static uint16_t run(uint16_t a, uint16_t b) { return is_nan(a) ? (is_nan(b) ? 0x7fffu : b) : is_nan(b) || rank(a) >= rank(b) ? a : b; }
};
struct Neg {
    static uint16_t run(uint16_t a) { return a ^ 0x8000u; }
};
struct Abs {
    static uint16_t run(uint16_t a) { return a & 0x7fffu; }
};

template <class F> struct Pair {
    static uint32_t both(uint16_t low, uint16_t high) { return low | (static_cast<uint32_t>(high) << 16); }
    static uint16_t low(uint32_t x) { return static_cast<uint16_t>(x); }
    static uint16_t high(uint32_t x) { return static_cast<uint16_t>(x >> 16); }
    static uint32_t run(uint32_t a) { return both(F::run(low(a)), F::run(high(a))); }
    static uint32_t run(uint32_t a, uint32_t b) { return both(F::run(low(a), low(b)), F::run(high(a), high(b))); }
    static uint32_t run(uint32_t a, uint32_t b, uint32_t c) {
        return both(F::run(low(a), low(b), low(c)), F::run(high(a), high(b), high(c)));
    }
};

struct Operation {
    const char *base;
    size_t inputs;
    bool rounds; // may say .rn
    Execute one, pair;
};

const Operation operations[] = {
    {"add", 2, true, binary<uint16_t, Add>, binary<uint32_t, Pair<Add>>},
    {"sub", 2, true, binary<uint16_t, Sub>, binary<uint32_t, Pair<Sub>>},
    {"mul", 2, true, binary<uint16_t, Mul>, binary<uint32_t, Pair<Mul>>},
    {"fma", 3, true, ternary<uint16_t, Fma>, ternary<uint32_t, Pair<Fma>>},
    {"min", 2, false, binary<uint16_t, Min>, binary<uint32_t, Pair<Min>>},
    {"max", 2, false, binary<uint16_t, Max>, binary<uint32_t, Pair<Max>>},
    {"neg", 1, false, unary<uint16_t, Neg>, unary<uint32_t, Pair<Neg>>},
    {"abs", 1, false, unary<uint16_t, Abs>, unary<uint32_t, Pair<Abs>>},
};

} // namespace

bool decode_half(Decoder &decoder, Modifiers &modifiers) {
    Type type;
    if (!modifiers.take_type(type) || (type != Type::f16 && type != Type::f16x2)) {
        return false;
    }
    for (const Operation &operation : operations) {
        if (modifiers.base() != operation.base) {
            continue;
        }
        if (operation.rounds) {
            modifiers.take("rn");
        }
        if (decoder.expect(operation.inputs + 1)) {
            decoder.output(0, type);
            for (size_t index = 1; index <= operation.inputs; index++) {
                decoder.input(index, type);
            }
        }
        decoder.set(type == Type::f16 ? operation.one : operation.pair);
        return true;
    }
    return false;
}

} // namespace polyhead::cuda_driver

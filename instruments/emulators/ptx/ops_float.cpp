// Arithmetic of f32 and f64: each with one rounding to nearest, .ftz and .sat where the opcode says so.
#include "decoder.h"
#include "numbers.h"
#include "warp.h"

#include <cmath>

namespace polyhead::cuda_driver {

namespace {

struct Add {
    template <class T> static T run(T a, T b) { return a + b; }
};
struct Sub {
    template <class T> static T run(T a, T b) { return a - b; }
};
struct Mul {
    template <class T> static T run(T a, T b) { return a * b; }
};
struct Div {
    template <class T> static T run(T a, T b) { return a / b; }
};
struct Fma {
    template <class T> static T run(T a, T b, T c) { return std::fma(a, b, c); }
};
// A NaN gives the other operand; of two zeros the smaller is -0.
struct Min {
    template <class T> static T run(T a, T b) {
        return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? a : b) : (b < a ? b : a);
    }
};
struct Max {
    template <class T> static T run(T a, T b) {
        return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? b : a) : (a < b ? b : a);
    }
};
struct MinNan {
    template <class T> static T run(T a, T b) { return std::isnan(a) ? a : std::isnan(b) ? b : Min::run(a, b); }
};
struct MaxNan {
    template <class T> static T run(T a, T b) { return std::isnan(a) ? a : std::isnan(b) ? b : Max::run(a, b); }
};
struct CopySign { // the sign of the first, the magnitude of the second
    template <class T> static T run(T a, T b) { return std::copysign(b, a); }
};
struct Neg {
    template <class T> static T run(T a) { return -a; }
};
struct Abs {
    template <class T> static T run(T a) { return std::fabs(a); }
};
struct Rcp {
    template <class T> static T run(T a) { return T{1} / a; }
};
struct Sqrt {
    template <class T> static T run(T a) { return std::sqrt(a); }
};
struct RSqrt {
    template <class T> static T run(T a) { return T{1} / std::sqrt(a); }
};
struct Exp2 {
    template <class T> static T run(T a) { return std::exp2(a); }
};
struct Log2 {
    template <class T> static T run(T a) { return std::log2(a); }
};
struct Sin {
    template <class T> static T run(T a) { return std::sin(a); }
};
struct Cos {
    template <class T> static T run(T a) { return std::cos(a); }
};
struct Tanh {
    template <class T> static T run(T a) { return std::tanh(a); }
};

// The operation with flushing of inputs and result, and saturation.
template <class F, bool flush, bool saturate> struct Rounded {
    static float in(float x) { return flush ? flushed(x) : x; }
    static float out(float x) {
        const float y = flush ? flushed(x) : x;
        return saturate ? saturated(y) : y;
    }
    static float run(float a) { return out(F::run(in(a))); }
    static float run(float a, float b) { return out(F::run(in(a), in(b))); }
    static float run(float a, float b, float c) { return out(F::run(in(a), in(b), in(c))); }
};

template <class F> Execute one(Type type, bool flush, bool saturate) {
    return type == Type::f64 ? unary<double, F>
           : saturate        ? (flush ? unary<float, Rounded<F, true, true>> : unary<float, Rounded<F, false, true>>)
                             : (flush ? unary<float, Rounded<F, true, false>> : unary<float, F>);
}
template <class F> Execute two(Type type, bool flush, bool saturate) {
    return type == Type::f64 ? binary<double, F>
           : saturate        ? (flush ? binary<float, Rounded<F, true, true>> : binary<float, Rounded<F, false, true>>)
                             : (flush ? binary<float, Rounded<F, true, false>> : binary<float, F>);
}
Execute three(Type type, bool flush, bool saturate) {
    return type == Type::f64 ? ternary<double, Fma>
           : saturate        ? (flush ? ternary<float, Rounded<Fma, true, true>> : ternary<float, Rounded<Fma, false, true>>)
                             : (flush ? ternary<float, Rounded<Fma, true, false>> : ternary<float, Fma>);
}

using Make = Execute (*)(Type type, bool flush, bool saturate);

// What an opcode must say about its accuracy: nothing or .rn, exactly .rn, .approx, or any of .rn, .approx and .full.
enum class Accuracy { none, optional_rn, rn, approx, rn_or_approx, any };

struct Operation {
    const char *base;
    size_t inputs;
    Accuracy accuracy;
    bool may_saturate;
    Make make;
};

const Operation operations[] = {
    {"add", 2, Accuracy::optional_rn, true, two<Add>},
    {"sub", 2, Accuracy::optional_rn, true, two<Sub>},
    {"mul", 2, Accuracy::optional_rn, true, two<Mul>},
    {"fma", 3, Accuracy::rn, true, three},
    {"mad", 3, Accuracy::rn, true, three},
    {"div", 2, Accuracy::any, false, two<Div>},
    {"min", 2, Accuracy::none, false, two<Min>},
    {"max", 2, Accuracy::none, false, two<Max>},
    {"copysign", 2, Accuracy::none, false, two<CopySign>},
    {"neg", 1, Accuracy::none, false, one<Neg>},
    {"abs", 1, Accuracy::none, false, one<Abs>},
    {"rcp", 1, Accuracy::rn_or_approx, false, one<Rcp>},
    {"sqrt", 1, Accuracy::rn_or_approx, false, one<Sqrt>},
    {"rsqrt", 1, Accuracy::approx, false, one<RSqrt>},
    {"ex2", 1, Accuracy::approx, false, one<Exp2>},
    {"lg2", 1, Accuracy::approx, false, one<Log2>},
    {"sin", 1, Accuracy::approx, false, one<Sin>},
    {"cos", 1, Accuracy::approx, false, one<Cos>},
    {"tanh", 1, Accuracy::approx, false, one<Tanh>},
};

bool accuracy_fits(Accuracy wanted, int said) { // said: the modifier, -1 none, 0 rn, 1 approx, 2 full
    switch (wanted) {
    case Accuracy::none:
        return said == -1;
    case Accuracy::optional_rn:
        return said <= 0;
    case Accuracy::rn:
        return said == 0;
    case Accuracy::approx:
        return said == 1;
    case Accuracy::rn_or_approx:
        return said == 0 || said == 1;
    case Accuracy::any:
        return said >= 0;
    }
    return false;
}

} // namespace

bool decode_float(Decoder &decoder, Modifiers &modifiers) {
    Type type;
    if (!modifiers.take_type(type) || (type != Type::f32 && type != Type::f64)) {
        return false;
    }
    const int accuracy = modifiers.take_one_of({"rn", "approx", "full"});
    const bool flush = modifiers.take("ftz"), saturate = modifiers.take("sat"), nan = modifiers.take("NaN");
    for (const Operation &operation : operations) {
        if (modifiers.base() != operation.base) {
            continue;
        }
        const bool extremum = operation.make == static_cast<Make>(two<Min>) || operation.make == static_cast<Make>(two<Max>);
        if (!accuracy_fits(operation.accuracy, accuracy) || (saturate && !operation.may_saturate) || (nan && !extremum) ||
            (type == Type::f64 && (flush || saturate || accuracy > 0))) {
            return false;
        }
        if (decoder.expect(operation.inputs + 1)) {
            decoder.output(0, type);
            for (size_t index = 1; index <= operation.inputs; index++) {
                decoder.input(index, type);
            }
        }
        const Make make = !nan                       ? operation.make
                          : operation.base[1] == 'i' ? static_cast<Make>(two<MinNan>)
                                                     : static_cast<Make>(two<MaxNan>);
        decoder.set(make(type, flush, saturate));
        return true;
    }
    return false;
}

} // namespace polyhead::cuda_driver

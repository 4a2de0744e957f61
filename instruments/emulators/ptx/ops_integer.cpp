// Whole-number arithmetic: add, sub, mul, mad, div, rem, min, max, abs, neg.
#include "decoder.h"
#include "warp.h"

#include <type_traits>

namespace polyhead::cuda_driver {

namespace {

// Sums and products wrap around, so they are computed without sign.
template <class T> using Unsigned = std::make_unsigned_t<T>;
template <class T> struct Wider;
template <> struct Wider<uint16_t> {
    using type = uint32_t;
};
template <> struct Wider<int16_t> {
    using type = int32_t;
};
template <> struct Wider<uint32_t> {
    using type = uint64_t;
};
template <> struct Wider<int32_t> {
    using type = int64_t;
};
template <> struct Wider<uint64_t> {
    using type = unsigned __int128;
};
template <> struct Wider<int64_t> {
    using type = __int128;
};
template <class T> using Wide = typename Wider<T>::type;

template <class T> struct Add {
    static T run(T a, T b) { return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b)); }
};
template <class T> struct Sub {
    static T run(T a, T b) { return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b)); }
};
template <class T> struct MulLow {
    static T run(T a, T b) { return static_cast<T>(static_cast<Wide<Unsigned<T>>>(a) * static_cast<Unsigned<T>>(b)); }
};
template <class T> struct MulHigh {
    static T run(T a, T b) { return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> (8 * sizeof(T))); }
};
template <class T> struct MadLow {
    static T run(T a, T b, T c) { return Add<T>::run(MulLow<T>::run(a, b), c); }
};
template <class T> struct MulWide {
    static Wide<T> run(T a, T b) { return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b); }
};
template <class T> struct Min {
    static T run(T a, T b) { return b < a ? b : a; }
};
template <class T> struct Max {
    static T run(T a, T b) { return a < b ? b : a; }
};
template <class T> struct Neg {
    static T run(T a) { return static_cast<T>(0 - static_cast<Unsigned<T>>(a)); }
};
template <class T> struct Abs {
    static T run(T a) { return a < 0 ? Neg<T>::run(a) : a; }
};
// A lane that is not active may hold any divisor, and the hardware gives all ones for 0.
template <class T> struct Div {
    static T run(T a, T b) {
        if (b == 0) {
            return static_cast<T>(~T{0});
        }
        return std::is_signed<T>::value && b == static_cast<T>(-1) ? Neg<T>::run(a) : static_cast<T>(a / b);
    }
};
template <class T> struct Rem {
    static T run(T a, T b) {
        if (b == 0) {
            return a;
        }
        return std::is_signed<T>::value && b == static_cast<T>(-1) ? T{0} : static_cast<T>(a % b);
    }
};

template <class T> bool mad_wide(Warp &warp, const Instruction &instruction) {
    const T *a = values<T>(warp, instruction.inputs[0]), *b = values<T>(warp, instruction.inputs[1]);
    const Wide<T> *c = values<Wide<T>>(warp, instruction.inputs[2]);
    alignas(64) Wide<T> results[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        results[lane] = Add<Wide<T>>::run(MulWide<T>::run(a[lane], b[lane]), c[lane]);
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}

template <class T> Execute two_inputs(const std::string &base, int part) {
    return base == "add"                ? binary<T, Add<T>>
           : base == "sub"              ? binary<T, Sub<T>>
           : base == "min"              ? binary<T, Min<T>>
           : base == "max"              ? binary<T, Max<T>>
           : base == "div"              ? binary<T, Div<T>>
           : base == "rem"              ? binary<T, Rem<T>>
           : base == "mul" && part == 0 ? binary<T, MulLow<T>>
           : base == "mul" && part == 1 ? binary<T, MulHigh<T>>
                                        : nullptr;
}

template <class T> Execute one_input(const std::string &base) {
    return base == "neg" ? unary<T, Neg<T>> : base == "abs" ? unary<T, Abs<T>> : nullptr;
}

template <class T> Execute wide(const std::string &base) {
    return base == "mul" ? binary<T, MulWide<T>, Wide<T>> : base == "mad" ? mad_wide<T> : nullptr;
}

Execute find_wide(const std::string &base, Type type) {
    switch (type) {
    case Type::u16:
        return wide<uint16_t>(base);
    case Type::s16:
        return wide<int16_t>(base);
    case Type::u32:
        return wide<uint32_t>(base);
    case Type::s32:
        return wide<int32_t>(base);
    default:
        return nullptr;
    }
}

Execute find_two(const std::string &base, int part, Type type) {
    switch (type) {
    case Type::u16:
        return two_inputs<uint16_t>(base, part);
    case Type::s16:
        return two_inputs<int16_t>(base, part);
    case Type::u32:
        return two_inputs<uint32_t>(base, part);
    case Type::s32:
        return two_inputs<int32_t>(base, part);
    case Type::u64:
        return two_inputs<uint64_t>(base, part);
    case Type::s64:
        return two_inputs<int64_t>(base, part);
    default:
        return nullptr;
    }
}

Execute find_mad(Type type) {
    switch (type) {
    case Type::u16:
    case Type::s16:
        return ternary<uint16_t, MadLow<uint16_t>>;
    case Type::u32:
    case Type::s32:
        return ternary<uint32_t, MadLow<uint32_t>>;
    case Type::u64:
    case Type::s64:
        return ternary<uint64_t, MadLow<uint64_t>>;
    default:
        return nullptr;
    }
}

Execute find_one(const std::string &base, Type type) {
    return type == Type::s16   ? one_input<int16_t>(base)
           : type == Type::s32 ? one_input<int32_t>(base)
           : type == Type::s64 ? one_input<int64_t>(base)
                               : nullptr;
}

Type twice(Type type) {
    return bytes_of(type) == 2 ? Type::b32 : Type::b64;
}

} // namespace

bool decode_integer(Decoder &decoder, Modifiers &modifiers) {
    const std::string &base = modifiers.base();
    const int part = modifiers.take_one_of({"lo", "hi", "wide"});
    Type type;
    if (!modifiers.take_type(type)) {
        return false;
    }
    const bool single = base == "neg" || base == "abs";
    const Execute execute = part == 2                        ? find_wide(base, type)
                            : base == "mad" && part == 0     ? find_mad(type)
                            : single && part < 0             ? find_one(base, type)
                            : (part >= 0) == (base == "mul") ? find_two(base, part, type)
                                                             : nullptr;
    if (!execute) {
        return false;
    }
    const size_t inputs = single ? 1 : base == "mad" ? 3 : 2;
    if (decoder.expect(inputs + 1)) {
        decoder.output(0, part == 2 ? twice(type) : type);
        for (size_t index = 1; index <= inputs; index++) {
            decoder.input(index, index == 3 && part == 2 ? twice(type) : type);
        }
    }
    decoder.set(execute);
    return true;
}

} // namespace polyhead::cuda_driver

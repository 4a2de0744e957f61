// cvt: between whole numbers, between floats, and across, with rounding, saturation and flushing.
#include "decoder.h"
#include "numbers.h"
#include "warp.h"

#include <cmath>
#include <limits>

namespace polyhead::cuda_driver {

namespace {

enum Rounding { exact, nearest, zero, down, up };

// What one cvt does; packed into Instruction::displacement.
struct Conversion {
    Type to, from;
    Rounding rounding;
    bool whole; // .rni and its like: to a whole number
    bool flush, saturate;
};

int64_t pack(const Conversion &c) {
    return static_cast<int64_t>(c.to) | (static_cast<int64_t>(c.from) << 8) | (static_cast<int64_t>(c.rounding) << 16) |
           (static_cast<int64_t>(c.whole) << 24) | (static_cast<int64_t>(c.flush) << 25) | (static_cast<int64_t>(c.saturate) << 26);
}
Conversion unpack(int64_t bits) {
    return {static_cast<Type>(bits & 255),
            static_cast<Type>((bits >> 8) & 255),
            static_cast<Rounding>((bits >> 16) & 255),
            ((bits >> 24) & 1) != 0,
            ((bits >> 25) & 1) != 0,
            ((bits >> 26) & 1) != 0};
}

bool is_float(Type type) {
    return type == Type::f16 || type == Type::bf16 || type == Type::f32 || type == Type::f64;
}
bool is_signed(Type type) {
    return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64;
}

// Registers may be wider than the type: everything passes through 64 bits.
void read_bits(const Warp &warp, const Operand &operand, uint64_t *bits) {
    for (int lane = 0; lane < lanes; lane++) {
        bits[lane] = operand.width == 2   ? values<uint16_t>(warp, operand)[lane]
                     : operand.width == 4 ? values<uint32_t>(warp, operand)[lane]
                                          : values<uint64_t>(warp, operand)[lane];
    }
}
void write_bits(Warp &warp, const Operand &operand, const uint64_t *bits) {
    uint16_t narrow[lanes];
    uint32_t words[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        narrow[lane] = static_cast<uint16_t>(bits[lane]);
        words[lane] = static_cast<uint32_t>(bits[lane]);
    }
    operand.width == 2   ? write_lanes(warp, operand, narrow)
    : operand.width == 4 ? write_lanes(warp, operand, words)
                         : write_lanes(warp, operand, bits);
}

// The low bits of the type, with its sign where it has one.
uint64_t extended(uint64_t bits, Type type) {
    const int unused = 64 - 8 * bytes_of(type);
    const uint64_t moved = bits << unused;
    return is_signed(type) ? static_cast<uint64_t>(static_cast<int64_t>(moved) >> unused) : moved >> unused;
}

double read_float(uint64_t bits, const Conversion &c) {
    switch (c.from) {
    case Type::f16:
        return half_to_float(static_cast<uint16_t>(bits));
    case Type::bf16:
        return bfloat_to_float(static_cast<uint16_t>(bits));
    case Type::f32: {
        const float x = bits_as<float>(static_cast<uint32_t>(bits));
        return c.flush ? flushed(x) : x;
    }
    default:
        return bits_as<double>(bits);
    }
}

double rounded(double x, Rounding rounding) {
    return rounding == nearest ? std::nearbyint(x) : rounding == zero ? std::trunc(x) : rounding == down ? std::floor(x) : std::ceil(x);
}

// Out of range: the nearest value that there is. NaN: 0.
uint64_t float_to_whole(double x, const Conversion &c) {
    const int bits = 8 * bytes_of(c.to);
    const double y = rounded(x, c.rounding);
    if (std::isnan(y)) {
        return 0;
    }
    if (is_signed(c.to)) {
        const double limit = std::ldexp(1.0, bits - 1);
        const int64_t largest = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
        return static_cast<uint64_t>(y >= limit ? largest : y < -limit ? -largest - 1 : static_cast<int64_t>(y));
    }
    const uint64_t largest = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
    return y >= std::ldexp(1.0, bits) ? largest : y < 0 ? 0 : static_cast<uint64_t>(y);
}

uint64_t write_float(double x, const Conversion &c) {
    if (c.saturate) {
        x = x > 0 ? (x < 1 ? x : 1) : 0;
    }
    switch (c.to) {
    case Type::f16:
        return double_to_half(x);
    case Type::bf16:
        return float_to_bfloat(static_cast<float>(x));
    case Type::f32: {
        const float y = static_cast<float>(x);
        return bits_as<uint32_t>(c.flush ? flushed(y) : y);
    }
    default:
        return bits_as<uint64_t>(x);
    }
}

uint64_t whole_to_float(uint64_t bits, const Conversion &c) {
    const bool sign = is_signed(c.from);
    const int64_t value = static_cast<int64_t>(bits);
    if (c.to == Type::f32) { // once from 64 bits: a double between would round twice
        return bits_as<uint32_t>(sign ? static_cast<float>(value) : static_cast<float>(bits));
    }
    const double x = sign ? static_cast<double>(value) : static_cast<double>(bits);
    return write_float(x, c);
}

uint64_t whole_to_whole(uint64_t bits, const Conversion &c) {
    if (!c.saturate) {
        return bits;
    }
    const int width = 8 * bytes_of(c.to);
    const uint64_t largest = (uint64_t{1} << (width - (is_signed(c.to) ? 1 : 0))) - 1;
    if (is_signed(c.from) && static_cast<int64_t>(bits) < 0) {
        const int64_t smallest = is_signed(c.to) ? -static_cast<int64_t>(largest) - 1 : 0;
        return static_cast<int64_t>(bits) < smallest ? static_cast<uint64_t>(smallest) : bits;
    }
    return bits > largest ? largest : bits;
}

uint64_t converted(uint64_t bits, const Conversion &c) {
    bits = extended(bits, c.from);
    if (!is_float(c.from)) {
        bits = is_float(c.to) ? whole_to_float(bits, c) : whole_to_whole(bits, c);
    } else {
        const double x = read_float(bits, c);
        bits = !is_float(c.to) ? float_to_whole(x, c) : write_float(c.whole ? rounded(x, c.rounding) : x, c);
    }
    return extended(bits, c.to);
}

bool convert(Warp &warp, const Instruction &instruction) {
    const Conversion conversion = unpack(instruction.displacement);
    uint64_t bits[lanes];
    read_bits(warp, instruction.inputs[0], bits);
    for (uint64_t &lane : bits) {
        lane = converted(lane, conversion);
    }
    write_bits(warp, instruction.outputs[0], bits);
    return true;
}

// The two that address arithmetic is full of, and the two of an exponential function.
template <class To, class From> bool widen(Warp &warp, const Instruction &instruction) {
    const From *from = values<From>(warp, instruction.inputs[0]);
    To results[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        results[lane] = static_cast<To>(from[lane]);
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}
template <bool flush> struct Floor {
    static float run(float x) { return flush ? flushed(std::floor(flushed(x))) : std::floor(x); }
};
template <bool flush> struct ToWhole {
    static int32_t run(float given) {
        const float x = flush ? flushed(given) : given;
        const bool inside = x > -2147483648.0f && x < 2147483648.0f;
        const int32_t outside = x != x ? 0 : x > 0 ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int32_t>::min();
        return inside ? static_cast<int32_t>(inside ? x : 0.0f) : outside;
    }
};

// Exact, without a decision per lane: f16 times 2^112 as f32 puts its exponent right, subnormal numbers included.
struct WidenHalf {
    static float run(uint16_t half) {
        const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13, sign = static_cast<uint32_t>(half & 0x8000u) << 16;
        const uint32_t scaled = bits_as<uint32_t>(bits_as<float>(magnitude) * 0x1p112f);
        const uint32_t special = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : scaled; // infinity and NaN
        return bits_as<float>(special | sign);
    }
};
struct WidenBfloat {
    static float run(uint16_t x) { return bfloat_to_float(x); }
};

Execute fast(const Conversion &c) {
    if (c.to == Type::f32 && c.from == Type::f16 && !c.flush && !c.saturate && !c.whole) {
        return unary<uint16_t, WidenHalf, float>;
    }
    if (c.to == Type::f32 && c.from == Type::bf16 && !c.flush && !c.saturate && !c.whole) {
        return unary<uint16_t, WidenBfloat, float>;
    }
    if ((c.to == Type::u32 || c.to == Type::s32) && c.from == Type::u16 && !c.saturate) {
        return widen<uint32_t, uint16_t>;
    }
    if ((c.to == Type::u32 || c.to == Type::s32) && (c.from == Type::u64 || c.from == Type::s64) && !c.saturate) {
        return widen<uint32_t, uint64_t>;
    }
    if (c.to == Type::u64 && c.from == Type::u32) {
        return widen<uint64_t, uint32_t>;
    }
    if (c.to == Type::s64 && c.from == Type::s32) {
        return widen<int64_t, int32_t>;
    }
    if (c.to == Type::f32 && c.from == Type::s32) {
        return widen<float, int32_t>;
    }
    if (c.to == Type::f32 && c.from == Type::f32 && c.whole && c.rounding == down && !c.saturate) {
        return c.flush ? unary<float, Floor<true>> : unary<float, Floor<false>>;
    }
    if (c.to == Type::s32 && c.from == Type::f32 && c.rounding == zero) {
        return c.flush ? unary<float, ToWhole<true>, int32_t> : unary<float, ToWhole<false>, int32_t>;
    }
    return nullptr;
}

// cvt.rn.f16x2.f32 d, a, b: a in the upper half.
template <uint16_t (*narrow)(float)> bool convert_pair(Warp &warp, const Instruction &instruction) {
    const float *a = values<float>(warp, instruction.inputs[0]), *b = values<float>(warp, instruction.inputs[1]);
    uint32_t results[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        results[lane] = (static_cast<uint32_t>(narrow(a[lane])) << 16) | narrow(b[lane]);
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}

// Rounding is given where bits can be lost, and only there; halves round to nearest or not at all.
bool allowed(const Conversion &c) {
    const bool from_float = is_float(c.from), to_float = is_float(c.to);
    if (c.from == Type::pred || c.to == Type::pred || c.from == Type::f16x2 || c.from == Type::bf16x2 || c.from == Type::tf32 ||
        c.to == Type::tf32) {
        return false;
    }
    if (c.flush && c.from != Type::f32 && c.to != Type::f32) {
        return false;
    }
    if (from_float && !to_float) {
        return c.whole;
    }
    if (!from_float && to_float) {
        return c.rounding == nearest && !c.whole && c.to != Type::bf16;
    }
    if (!from_float) {
        return c.rounding == exact && !c.flush;
    }
    if (c.whole) {
        return c.to == c.from && c.to != Type::bf16;
    }
    const bool narrows = bytes_of(c.to) < bytes_of(c.from);
    return c.rounding == (narrows ? nearest : exact) && !(c.to == Type::bf16 && c.from != Type::f32);
}

bool decode_pair(Decoder &decoder, const Conversion &c) {
    if (c.from != Type::f32 || c.rounding != nearest || c.whole || c.flush || c.saturate) {
        return false;
    }
    if (decoder.expect(3)) {
        decoder.output(0, c.to);
        decoder.input(1, c.from);
        decoder.input(2, c.from);
    }
    decoder.set(c.to == Type::f16x2 ? convert_pair<float_to_half> : convert_pair<float_to_bfloat>);
    return true;
}

} // namespace

bool decode_convert(Decoder &decoder, Modifiers &modifiers) {
    Conversion c{};
    if (modifiers.base() != "cvt" || !modifiers.take_type(c.to) || !modifiers.take_type(c.from)) {
        return false;
    }
    const int whole = modifiers.take_one_of({"rni", "rzi", "rmi", "rpi"});
    const int rounding = modifiers.take_one_of({"rn", "rz", "rm", "rp"});
    c.whole = whole >= 0;
    c.rounding = static_cast<Rounding>(1 + (c.whole ? whole : rounding));
    c.flush = modifiers.take("ftz");
    c.saturate = modifiers.take("sat");
    if (c.whole && rounding >= 0) {
        return false;
    }
    if (c.to == Type::f16x2 || c.to == Type::bf16x2) {
        return decode_pair(decoder, c);
    }
    if (!allowed(c)) {
        return false;
    }
    if (decoder.expect(2)) {
        decoder.output(0, c.to, true);
        decoder.input(1, c.from, true);
    }
    decoder.instruction().displacement = pack(c);
    const auto &in = decoder.instruction().inputs;
    const auto &out = decoder.instruction().outputs;
    const bool same_width = in.size() == 1 && out.size() == 1 && in[0].width == bytes_of(c.from) && out[0].width == bytes_of(c.to);
    const Execute quick = same_width ? fast(c) : nullptr;
    decoder.set(quick ? quick : convert);
    return true;
}

} // namespace polyhead::cuda_driver

// Bit operations: and, or, xor, not, shl, shr, shf, lop3, prmt, bfe, bfi, popc, clz, brev.
#include "decoder.h"
#include "warp.h"

#include <type_traits>

namespace polyhead::cuda_driver {

namespace {

template <class T> struct And {
    static T run(T a, T b) { return static_cast<T>(a & b); }
};
template <class T> struct Or {
    static T run(T a, T b) { return static_cast<T>(a | b); }
};
template <class T> struct Xor {
    static T run(T a, T b) { return static_cast<T>(a ^ b); }
};
template <class T> struct Not {
    static T run(T a) { return static_cast<T>(~a); }
};

// Shifts by the width of the type or more: 0, or the sign.
template <class T> bool shift_left(Warp &warp, const Instruction &instruction) {
    const T *a = values<T>(warp, instruction.inputs[0]);
    const uint32_t *b = values<uint32_t>(warp, instruction.inputs[1]);
    alignas(64) T results[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        results[lane] = b[lane] < 8 * sizeof(T) ? static_cast<T>(a[lane] << b[lane]) : T{0};
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}
template <class T> bool shift_right(Warp &warp, const Instruction &instruction) {
    const T *a = values<T>(warp, instruction.inputs[0]);
    const uint32_t *b = values<uint32_t>(warp, instruction.inputs[1]);
    alignas(64) T results[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        const bool inside = b[lane] < 8 * sizeof(T);
        const T over = std::is_signed<T>::value && a[lane] < 0 ? static_cast<T>(~T{0}) : T{0};
        results[lane] = inside ? static_cast<T>(a[lane] >> (inside ? b[lane] : 0)) : over;
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}

uint32_t funnel_count(uint32_t count, bool wrap) {
    return wrap ? count & 31u : (count < 32 ? count : 32);
}
template <bool left, bool wrap> struct Funnel {
    static uint32_t run(uint32_t low, uint32_t high, uint32_t count) {
        const uint64_t both = (static_cast<uint64_t>(high) << 32) | low;
        const uint32_t by = funnel_count(count, wrap);
        return left ? static_cast<uint32_t>((both << by) >> 32) : static_cast<uint32_t>(both >> by);
    }
};

bool predicate_logic(Warp &warp, const Instruction &instruction) {
    const uint32_t a = predicate(warp, instruction.inputs[0]);
    const uint32_t b = instruction.inputs.size() > 1 ? predicate(warp, instruction.inputs[1]) : 0;
    const char first = instruction.opcode[0];
    set_predicate(warp, instruction.outputs[0], first == 'a' ? a & b : first == 'o' ? a | b : first == 'x' ? a ^ b : ~a);
    return true;
}

// The truth table is the displacement of the instruction.
bool lookup_logic(Warp &warp, const Instruction &instruction) {
    const uint32_t *a = values<uint32_t>(warp, instruction.inputs[0]), *b = values<uint32_t>(warp, instruction.inputs[1]);
    const uint32_t *c = values<uint32_t>(warp, instruction.inputs[2]);
    uint32_t results[lanes] = {};
    for (int row = 0; row < 8; row++) {
        const uint32_t keep = (instruction.displacement >> row) & 1 ? ~0u : 0u;
        for (int lane = 0; lane < lanes; lane++) {
            results[lane] |= keep & (row & 4 ? a[lane] : ~a[lane]) & (row & 2 ? b[lane] : ~b[lane]) & (row & 1 ? c[lane] : ~c[lane]);
        }
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}

struct Permute { // prmt without a mode: four nibbles choose bytes, bit 3 of a nibble spreads the sign
    static uint32_t run(uint32_t a, uint32_t b, uint32_t choice) {
        const uint64_t both = (static_cast<uint64_t>(b) << 32) | a;
        uint32_t result = 0;
        for (int byte = 0; byte < 4; byte++) {
            const uint32_t nibble = (choice >> (4 * byte)) & 15u;
            const uint32_t value = static_cast<uint32_t>(both >> (8 * (nibble & 7u))) & 255u;
            result |= (nibble & 8u ? (value & 128u ? 255u : 0u) : value) << (8 * byte);
        }
        return result;
    }
};

template <class T> bool extract_field(Warp &warp, const Instruction &instruction) {
    const T *a = values<T>(warp, instruction.inputs[0]);
    const uint32_t *from = values<uint32_t>(warp, instruction.inputs[1]), *length = values<uint32_t>(warp, instruction.inputs[2]);
    constexpr unsigned top = 8 * sizeof(T) - 1;
    T results[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        const unsigned position = from[lane] & 255u, count = length[lane] & 255u;
        const unsigned last = position + count - 1 < top ? position + count - 1 : top;
        const bool sign = std::is_signed<T>::value && count > 0 && ((a[lane] >> last) & 1);
        uint64_t bits = position > top ? 0 : static_cast<uint64_t>(static_cast<std::make_unsigned_t<T>>(a[lane])) >> position;
        const unsigned present = count == 0 || position > top ? 0 : last - position + 1;
        bits = present >= 64 ? bits : bits & ((uint64_t{1} << present) - 1);
        results[lane] = static_cast<T>(sign && present < 64 ? bits | (~uint64_t{0} << present) : bits);
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}

template <class T> bool insert_field(Warp &warp, const Instruction &instruction) {
    const T *field = values<T>(warp, instruction.inputs[0]), *base = values<T>(warp, instruction.inputs[1]);
    const uint32_t *from = values<uint32_t>(warp, instruction.inputs[2]), *length = values<uint32_t>(warp, instruction.inputs[3]);
    T results[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        const unsigned position = from[lane] & 255u, count = length[lane] & 255u;
        const uint64_t low = count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
        const uint64_t mask = position >= 64 ? 0 : low << position;
        const uint64_t moved = position >= 64 ? 0 : static_cast<uint64_t>(field[lane]) << position;
        results[lane] = static_cast<T>((base[lane] & ~mask) | (moved & mask));
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}

template <class T> bool count_bits(Warp &warp, const Instruction &instruction) {
    const T *a = values<T>(warp, instruction.inputs[0]);
    const bool ones = instruction.opcode[0] == 'p';
    uint32_t results[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        const int zeros =
            a[lane] == 0 ? static_cast<int>(8 * sizeof(T)) : __builtin_clzll(a[lane]) - (64 - static_cast<int>(8 * sizeof(T)));
        results[lane] = static_cast<uint32_t>(ones ? __builtin_popcountll(a[lane]) : zeros);
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}

template <class T> struct Reverse {
    static T run(T a) {
        T result = 0;
        for (unsigned bit = 0; bit < 8 * sizeof(T); bit++) {
            result = static_cast<T>((result << 1) | ((a >> bit) & 1));
        }
        return result;
    }
};

template <class T> Execute logic(const std::string &base) {
    return base == "and"   ? binary<T, And<T>>
           : base == "or"  ? binary<T, Or<T>>
           : base == "xor" ? binary<T, Xor<T>>
           : base == "not" ? unary<T, Not<T>>
                           : nullptr;
}

bool decode_logic(Decoder &decoder, const std::string &base, Type type) {
    const Execute execute = type == Type::pred  ? predicate_logic
                            : type == Type::b16 ? logic<uint16_t>(base)
                            : type == Type::b32 ? logic<uint32_t>(base)
                            : type == Type::b64 ? logic<uint64_t>(base)
                                                : nullptr;
    const size_t inputs = base == "not" ? 1 : 2;
    if (decoder.expect(inputs + 1)) {
        decoder.output(0, type);
        for (size_t index = 1; index <= inputs; index++) {
            decoder.input(index, type);
        }
    }
    decoder.set(execute);
    return execute != nullptr;
}

Execute find_shift(const std::string &base, Type type) {
    const bool left = base == "shl";
    switch (type) {
    case Type::b16:
        return left ? shift_left<uint16_t> : shift_right<uint16_t>;
    case Type::b32:
        return left ? shift_left<uint32_t> : shift_right<uint32_t>;
    case Type::b64:
        return left ? shift_left<uint64_t> : shift_right<uint64_t>;
    case Type::u16:
        return left ? nullptr : shift_right<uint16_t>;
    case Type::u32:
        return left ? nullptr : shift_right<uint32_t>;
    case Type::u64:
        return left ? nullptr : shift_right<uint64_t>;
    case Type::s16:
        return left ? nullptr : shift_right<int16_t>;
    case Type::s32:
        return left ? nullptr : shift_right<int32_t>;
    case Type::s64:
        return left ? nullptr : shift_right<int64_t>;
    default:
        return nullptr;
    }
}

Execute find_field(const std::string &base, Type type) {
    if (base == "bfi") {
        return type == Type::b32 ? insert_field<uint32_t> : type == Type::b64 ? insert_field<uint64_t> : nullptr;
    }
    if (base == "bfe") {
        return type == Type::u32   ? extract_field<uint32_t>
               : type == Type::s32 ? extract_field<int32_t>
               : type == Type::u64 ? extract_field<uint64_t>
               : type == Type::s64 ? extract_field<int64_t>
                                   : nullptr;
    }
    return nullptr;
}

Execute find_count(const std::string &base, Type type) {
    if (base == "popc" || base == "clz") {
        return type == Type::b32 ? count_bits<uint32_t> : type == Type::b64 ? count_bits<uint64_t> : nullptr;
    }
    return nullptr;
}

// Output and inputs of these types, in order.
bool take_operands(Decoder &decoder, Execute execute, std::initializer_list<Type> types) {
    if (decoder.expect(types.size())) {
        size_t index = 0;
        for (Type type : types) {
            index == 0 ? decoder.output(index, type) : decoder.input(index, type);
            index++;
        }
    }
    decoder.set(execute);
    return true;
}

bool decode_words(Decoder &decoder, Modifiers &modifiers) {
    const std::string &base = modifiers.base();
    if (base == "shf") {
        const int left = modifiers.take_one_of({"r", "l"}), wrap = modifiers.take_one_of({"clamp", "wrap"});
        if (left < 0 || wrap < 0) {
            return false;
        }
        const Execute execute = left ? (wrap ? ternary<uint32_t, Funnel<true, true>> : ternary<uint32_t, Funnel<true, false>>)
                                     : (wrap ? ternary<uint32_t, Funnel<false, true>> : ternary<uint32_t, Funnel<false, false>>);
        return take_operands(decoder, execute, {Type::b32, Type::b32, Type::b32, Type::b32});
    }
    if (base == "prmt") {
        return take_operands(decoder, ternary<uint32_t, Permute>, {Type::b32, Type::b32, Type::b32, Type::b32});
    }
    int64_t table = 0;
    if (!decoder.expect(5) || !parse_integer(decoder.operands()[4], table)) {
        return false;
    }
    decoder.output(0, Type::b32);
    for (size_t index = 1; index <= 3; index++) {
        decoder.input(index, Type::b32);
    }
    decoder.instruction().displacement = table;
    decoder.set(lookup_logic);
    return true;
}

} // namespace

bool decode_bits(Decoder &decoder, Modifiers &modifiers) {
    const std::string &base = modifiers.base();
    Type type;
    if (!modifiers.take_type(type)) {
        return false;
    }
    if (base == "and" || base == "or" || base == "xor" || base == "not") {
        return decode_logic(decoder, base, type);
    }
    if ((base == "shf" || base == "prmt" || base == "lop3") && type == Type::b32) {
        return decode_words(decoder, modifiers);
    }
    if (base == "shl" || base == "shr") {
        const Execute execute = find_shift(base, type);
        return execute && take_operands(decoder, execute, {type, type, Type::b32});
    }
    if (base == "brev") {
        const Execute execute = type == Type::b32   ? unary<uint32_t, Reverse<uint32_t>>
                                : type == Type::b64 ? unary<uint64_t, Reverse<uint64_t>>
                                                    : nullptr;
        return execute && take_operands(decoder, execute, {type, type});
    }
    if (const Execute execute = find_count(base, type)) {
        return take_operands(decoder, execute, {Type::b32, type});
    }
    if (const Execute execute = find_field(base, type)) {
        return base == "bfe" ? take_operands(decoder, execute, {type, type, Type::b32, Type::b32})
                             : take_operands(decoder, execute, {type, type, type, Type::b32, Type::b32});
    }
    return false;
}

} // namespace polyhead::cuda_driver

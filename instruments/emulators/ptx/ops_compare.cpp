// setp with all comparisons, and selp.
#include "decoder.h"
#include "numbers.h"
#include "warp.h"

#include <cmath>

namespace polyhead::cuda_driver {

namespace {

// A comparison as what it says about less, equal, greater and unordered: bits 0 to 3.
enum Comparison { less = 1, equal = 2, greater = 4, unordered = 8 };
constexpr int ordered_not_equal = less | greater;

struct Word {
    const char *word;
    int when; // for whole numbers without sign lo, ls, hi, hs mean the same as lt, le, gt, ge
};
const Word words[] = {
    {"eq", equal},
    {"ne", ordered_not_equal},
    {"lt", less},
    {"le", less | equal},
    {"gt", greater},
    {"ge", greater | equal},
    {"lo", less},
    {"ls", less | equal},
    {"hi", greater},
    {"hs", greater | equal},
    {"equ", equal | unordered},
    {"neu", ordered_not_equal | unordered},
    {"ltu", less | unordered},
    {"leu", less | equal | unordered},
    {"gtu", greater | unordered},
    {"geu", greater | equal | unordered},
    {"num", less | equal | greater},
    {"nan", unordered},
};

enum Combine { nothing = -1, combine_and, combine_or, combine_xor };

bool compare_bits(Warp &warp, const Instruction &instruction, uint32_t bits) {
    uint32_t inverse = ~bits;
    if (instruction.inputs.size() == 3) {
        const uint32_t other = predicate(warp, instruction.inputs[2]);
        const auto combine = [&](uint32_t mine) {
            return instruction.mode == combine_and ? mine & other : instruction.mode == combine_or ? mine | other : mine ^ other;
        };
        bits = combine(bits);
        inverse = combine(inverse);
    }
    set_predicate(warp, instruction.outputs[0], bits);
    if (instruction.outputs.size() == 2) {
        set_predicate(warp, instruction.outputs[1], inverse);
    }
    return true;
}

template <class T> bool is_nan(T x) {
    return std::isnan(static_cast<double>(x)); // false for whole numbers
}

template <class T, int when> struct Compare {
    static bool run(T a, T b) {
        return ((when & less) && a < b) || ((when & equal) && a == b) || ((when & greater) && a > b) ||
               ((when & unordered) && (is_nan(a) || is_nan(b)));
    }
};

// `Read` makes the compared value from the bits of a register.
template <class T, int when, class Read> bool compare(Warp &warp, const Instruction &instruction) {
    const T *a = values<T>(warp, instruction.inputs[0]), *b = values<T>(warp, instruction.inputs[1]);
    uint32_t yes[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        yes[lane] = Compare<decltype(Read::run(a[0])), when>::run(Read::run(a[lane]), Read::run(b[lane])) ? 1u : 0u;
    }
    uint32_t bits = 0;
    for (int lane = 0; lane < lanes; lane++) {
        bits |= yes[lane] << lane;
    }
    return compare_bits(warp, instruction, bits);
}

template <class T> struct Same {
    static T run(T x) { return x; }
};
struct Flushed {
    static float run(float x) { return flushed(x); }
};
struct Half {
    static float run(uint16_t x) { return half_to_float(x); }
};

template <class T, class Read = Same<T>> Execute find(int when) {
    switch (when) {
    case equal:
        return compare<T, equal, Read>;
    case ordered_not_equal:
        return compare<T, ordered_not_equal, Read>;
    case less:
        return compare<T, less, Read>;
    case less | equal:
        return compare < T, less | equal, Read > ;
    case greater:
        return compare<T, greater, Read>;
    case greater | equal:
        return compare < T, greater | equal, Read > ;
    case equal | unordered:
        return compare < T, equal | unordered, Read > ;
    case ordered_not_equal | unordered:
        return compare < T, ordered_not_equal | unordered, Read > ;
    case less | unordered:
        return compare < T, less | unordered, Read > ;
    case less | equal | unordered:
        return compare < T, less | equal | unordered, Read > ;
    case greater | unordered:
        return compare < T, greater | unordered, Read > ;
    case greater | equal | unordered:
        return compare < T, greater | equal | unordered, Read > ;
    case less | equal | greater:
        return compare < T, less | equal | greater, Read > ;
    case unordered:
        return compare<T, unordered, Read>;
    default:
        return nullptr;
    }
}

Execute find_compare(int when, Type type, bool flush, bool only_unsigned) {
    if (flush && type != Type::f32) {
        return nullptr;
    }
    const bool whole = type != Type::f32 && type != Type::f64 && type != Type::f16;
    const bool bits_only = type == Type::b16 || type == Type::b32 || type == Type::b64;
    if ((whole && ((when & unordered) || when == (less | equal | greater))) || (bits_only && when != equal && when != ordered_not_equal)) {
        return nullptr;
    }
    const bool has_no_sign = type == Type::u16 || type == Type::u32 || type == Type::u64;
    if (only_unsigned && !has_no_sign) {
        return nullptr;
    }
    switch (type) {
    case Type::u16:
    case Type::b16:
        return find<uint16_t>(when);
    case Type::s16:
        return find<int16_t>(when);
    case Type::u32:
    case Type::b32:
        return find<uint32_t>(when);
    case Type::s32:
        return find<int32_t>(when);
    case Type::u64:
    case Type::b64:
        return find<uint64_t>(when);
    case Type::s64:
        return find<int64_t>(when);
    case Type::f16:
        return find<uint16_t, Half>(when);
    case Type::f32:
        return flush ? find<float, Flushed>(when) : find<float>(when);
    case Type::f64:
        return find<double>(when);
    default:
        return nullptr;
    }
}

bool decode_setp(Decoder &decoder, Modifiers &modifiers, Type type) {
    const Word *found = nullptr;
    for (const Word &word : words) {
        if (modifiers.take(word.word)) {
            found = &word;
            break;
        }
    }
    if (!found) {
        return false;
    }
    const std::string word = found->word;
    const Execute execute =
        find_compare(found->when, type, modifiers.take("ftz"), word == "lo" || word == "ls" || word == "hi" || word == "hs");
    const int combine = modifiers.take_one_of({"and", "or", "xor"});
    if (!execute) {
        return false;
    }
    if (decoder.expect(combine == nothing ? 3 : 4)) {
        for (const std::string &part : split_at(decoder.operands()[0], '|')) {
            decoder.output_text(part, Type::pred);
        }
        decoder.input(1, type);
        decoder.input(2, type);
        decoder.input(3, Type::pred);
        decoder.instruction().mode = combine;
    }
    decoder.set(execute);
    return true;
}

template <class T> bool choose(Warp &warp, const Instruction &instruction) {
    const T *a = values<T>(warp, instruction.inputs[0]), *b = values<T>(warp, instruction.inputs[1]);
    const uint32_t bits = predicate(warp, instruction.inputs[2]);
    alignas(64) T results[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        results[lane] = (bits >> lane) & 1u ? a[lane] : b[lane];
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}

bool decode_selp(Decoder &decoder, Type type) {
    if (decoder.expect(4)) {
        decoder.output(0, type);
        decoder.input(1, type);
        decoder.input(2, type);
        decoder.input(3, Type::pred);
    }
    decoder.instruction().reading = Reading::select;
    decoder.set(bytes_of(type) == 2 ? choose<uint16_t> : bytes_of(type) == 4 ? choose<uint32_t> : choose<uint64_t>);
    return bytes_of(type) >= 2;
}

} // namespace

bool decode_compare(Decoder &decoder, Modifiers &modifiers) {
    const bool select = modifiers.base() == "selp";
    Type type;
    if ((!select && modifiers.base() != "setp") || !modifiers.take_type(type)) {
        return false;
    }
    return select ? decode_selp(decoder, type) : decode_setp(decoder, modifiers, type);
}

} // namespace polyhead::cuda_driver

// Products of matrices that a warp holds in registers (mma.sync), and loads of such matrices (ldmatrix).
//
// A matrix lies in the registers of 32 lanes as the PTX ISA says: lane = 4 * group + place. Of A (16 x 16) word w holds row group + 8 * (w
// % 2) and columns 2 * place + 8 * (w / 2) and the next. Of B (16 x 8) word w holds rows 2 * place + 8 * w and the next of column group. Of
// C and D (16 x 8) number i is in row group + 8 * (i / 2) and column 2 * place + i % 2. Where elements have 32 bits (tf32), A is 16 x 8 and
// B 8 x 8: of A word w holds row group + 8 * (w % 2) and column place + 4 * (w / 2), of B row place + 4 * w of column group.
#include "access.h"
#include "decoder.h"
#include "matrices.h"
#include "numbers.h"
#include "traffic.h"

#include <limits>

namespace polyhead::cuda_driver {

namespace {

constexpr int rows = 16, columns = 8, words_of_a = 4, words_of_b = 2, sums = 4;

template <int depth> struct Matrices {
    float a[rows][depth], b[depth][columns], c[rows][columns];
};

// Two elements of a word.
template <float (*widen)(uint16_t)> struct Halves {
    static constexpr int depth = 16, of_word = 2;
    static float element(uint32_t bits, int i) { return widen(static_cast<uint16_t>(bits >> (16 * i))); }
};

// One element, of 19 bits. What a device does with the others is not said: so a number that has some is none.
struct Words {
    static constexpr int depth = 8, of_word = 1;
    static float element(uint32_t bits, int) {
        return (bits & 0x1fff) != 0 ? std::numeric_limits<float>::quiet_NaN() : bits_as<float>(bits);
    }
};

template <class Elements> void read_matrices(const Warp &warp, const Instruction &instruction, Matrices<Elements::depth> &m) {
    constexpr int of_word = Elements::of_word, half = Elements::depth / 2;
    for (int lane = 0; lane < lanes; lane++) {
        const int group = lane / 4, place = lane % 4;
        for (int word = 0; word < words_of_a; word++) {
            const uint32_t bits = values<uint32_t>(warp, instruction.inputs[static_cast<size_t>(word)])[lane];
            for (int i = 0; i < of_word; i++) {
                m.a[group + 8 * (word % 2)][of_word * place + half * (word / 2) + i] = Elements::element(bits, i);
            }
        }
        for (int word = 0; word < words_of_b; word++) {
            const uint32_t bits = values<uint32_t>(warp, instruction.inputs[static_cast<size_t>(words_of_a + word)])[lane];
            for (int i = 0; i < of_word; i++) {
                m.b[of_word * place + half * word + i][group] = Elements::element(bits, i);
            }
        }
        for (int i = 0; i < sums; i++) {
            m.c[group + 8 * (i / 2)][2 * place + i % 2] =
                values<float>(warp, instruction.inputs[static_cast<size_t>(words_of_a + words_of_b + i)])[lane];
        }
    }
}

template <class Elements> bool multiply(Warp &warp, const Instruction &instruction) {
    if (!warp.whole(instruction)) {
        return false;
    }
    Matrices<Elements::depth> m;
    read_matrices<Elements>(warp, instruction, m);
    const WarpMatrices all{m.a[0], m.b[0], m.c[0], columns, Elements::depth};
    warp.launch->truncates ? add_truncated(all) : add_in_order(all);
    for (int i = 0; i < sums; i++) {
        float *to = target<float>(warp, instruction.outputs[static_cast<size_t>(i)]);
        for (int lane = 0; lane < lanes; lane++) {
            to[lane] = m.c[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
        }
    }
    return true;
}

bool decode_product(Decoder &decoder, Modifiers &modifiers) {
    Type sum, a, b, c;
    const int shape = modifiers.take_one_of({"m16n8k16", "m16n8k8"});
    const bool known = modifiers.take("sync") && modifiers.take("aligned") && shape >= 0 && modifiers.take("row") &&
                       modifiers.take("col") && modifiers.take_type(sum) && modifiers.take_type(a) && modifiers.take_type(b) &&
                       modifiers.take_type(c);
    const bool halves = shape == 0 && (a == Type::f16 || a == Type::bf16), words = shape == 1 && a == Type::tf32;
    if (!known || sum != Type::f32 || c != Type::f32 || a != b || !(halves || words)) {
        return false;
    }
    if (decoder.expect(4)) {
        decoder.list(0, Type::f32, sums, true);
        decoder.list(1, Type::b32, words_of_a, false);
        decoder.list(2, Type::b32, words_of_b, false);
        decoder.list(3, Type::f32, sums, false);
    }
    decoder.instruction().reading = Reading::strict; // a value of one lane is in the results of others
    decoder.set(words ? multiply<Words> : a == Type::f16 ? multiply<Halves<half_to_float>> : multiply<Halves<bfloat_to_float>>);
    return true;
}

constexpr int matrix_rows = 8, row_bytes = 16, row_elements = 8;

// Lane 8 * i + r has the address of row r of matrix i. Each lane gets two neighbours of a row, or with .trans of a column.
bool load_matrices(Warp &warp, const Instruction &instruction) {
    if (!warp.whole(instruction)) {
        return false;
    }
    const int count = static_cast<int>(instruction.outputs.size()), addresses = count * matrix_rows;
    Access access;
    access.bytes = row_bytes;
    find_addresses(warp, instruction.inputs[0], instruction.displacement, access);
    if (warp.launch->count_traffic) {
        const uint32_t reading = addresses == lanes ? ~0u : (1u << addresses) - 1;
        warp.launch->traffic[static_cast<size_t>(instruction.index)] += bank_passes(access.address, reading, row_bytes);
    }
    uint16_t elements[lanes][row_elements] = {};
    for (int lane = 0; lane < addresses; lane++) {
        int other = 0;
        const uint64_t offset = access.address[lane];
        if (offset % row_bytes != 0) {
            return misaligned(warp, instruction, access, lane);
        }
        if (!lookup_shared(warp, instruction, access, lane, offset)) {
            return false;
        }
        if (!warp.block->shared.note_read(offset, row_bytes, warp.thread(lane), other)) {
            return race_in_shared(warp, instruction, access, lane, other);
        }
        std::memcpy(elements[lane], access.host[lane], row_bytes);
    }
    for (int matrix = 0; matrix < count; matrix++) {
        uint32_t *to = target<uint32_t>(warp, instruction.outputs[static_cast<size_t>(matrix)]);
        const uint16_t(*from)[row_elements] = elements + matrix * matrix_rows;
        for (int lane = 0; lane < lanes; lane++) {
            const int group = lane / 4, pair = 2 * (lane % 4);
            const uint16_t low = instruction.mode ? from[pair][group] : from[group][pair];
            const uint16_t high = instruction.mode ? from[pair + 1][group] : from[group][pair + 1];
            to[lane] = low | (static_cast<uint32_t>(high) << 16);
        }
    }
    return true;
}

bool decode_load(Decoder &decoder, Modifiers &modifiers) {
    const bool known = modifiers.take("sync") && modifiers.take("aligned") && modifiers.take("m8n8");
    const int count = modifiers.take_one_of({"x1", "x2", "x4"});
    Instruction &instruction = decoder.instruction();
    instruction.mode = modifiers.take("trans");
    if (!known || count < 0 || modifiers.take_one_of({"shared", "shared::cta"}) < 0 || !modifiers.take("b16")) {
        return false;
    }
    if (decoder.expect(2)) {
        decoder.list(0, Type::b32, size_t{1} << count, true);
        decoder.address(1, false);
    }
    instruction.space = Space::shared;
    instruction.reading = Reading::strict;
    decoder.set(load_matrices);
    return true;
}

} // namespace

bool decode_matrix(Decoder &decoder, Modifiers &modifiers) {
    return modifiers.base() == "mma" ? decode_product(decoder, modifiers)
                                     : modifiers.base() == "ldmatrix" && decode_load(decoder, modifiers);
}

} // namespace polyhead::cuda_driver

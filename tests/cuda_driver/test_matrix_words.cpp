// Products of matrices whose elements have 32 bits (tf32): where each lies in the registers of a warp, as the PTX ISA says.
#include "test_program.h"

#include <cmath>
#include <cstring>

// A namespace of its own: test_matrix.cpp has the same names.
namespace polyhead::test::words {

namespace {

constexpr int rows = 16, columns = 8, depth = 8;
constexpr size_t lanes = 32, words_in = 10, words_out = 4;

struct Place {
    int row, column;
};

// PTX ISA, "Matrix Fragments for mma.m16n8k8", .tf32: groupID = laneid >> 2, threadID_in_group = laneid % 4.
Place place_in_a(int lane, int i) {
    const int group = lane >> 2, thread = lane % 4;
    return {i == 0 || i == 2 ? group : group + 8, i < 2 ? thread : thread + 4};
}
Place place_in_b(int lane, int i) {
    return {i == 0 ? lane % 4 : lane % 4 + 4, lane >> 2};
}
Place place_in_c(int lane, int i) {
    return {i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1)};
}

struct Matrices {
    float a[rows][depth] = {}, b[depth][columns] = {}, c[rows][columns] = {};
};

// c += a * b
void multiply(Matrices *m) {
    std::vector<float> words(lanes * words_in), results(lanes * words_out);
    for (int lane = 0; lane < static_cast<int>(lanes); lane++) {
        float *of_lane = words.data() + static_cast<size_t>(lane) * words_in;
        for (int i = 0; i < 4; i++) {
            const Place a = place_in_a(lane, i), c = place_in_c(lane, i);
            of_lane[i] = m->a[a.row][a.column];
            of_lane[6 + i] = m->c[c.row][c.column];
        }
        for (int i = 0; i < 2; i++) {
            const Place b = place_in_b(lane, i);
            of_lane[4 + i] = m->b[b.row][b.column];
        }
    }
    const CUdeviceptr out = upload(results), in = upload(words);
    const CUresult result =
        run("mul.wide.u32 %d2, %r0, 40;\nadd.s64 %d2, %d2, %d1;\nmul.wide.u32 %d3, %r0, 16;\nadd.s64 %d3, %d3, %d0;\n"
            "ld.global.v2.b32 {%r1, %r2}, [%d2];\nld.global.v2.b32 {%r3, %r4}, [%d2+8];\nld.global.v2.b32 {%r5, %r6}, [%d2+16];\n"
            "ld.global.v2.b32 {%r7, %r8}, [%d2+24];\nld.global.v2.b32 {%r9, %r10}, [%d2+32];\n"
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r11, %r12, %r13, %r14}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, "
            "{%r7, %r8, %r9, %r10};\nst.global.v4.b32 [%d3], {%r11, %r12, %r13, %r14};\nret;",
            out, in);
    INFO(polyhead_cuda_driver_error());
    REQUIRE(result == CUDA_SUCCESS);
    results = download<float>(out, results.size());
    for (int lane = 0; lane < static_cast<int>(lanes); lane++) {
        for (int i = 0; i < 4; i++) {
            const Place c = place_in_c(lane, i);
            m->c[c.row][c.column] = results[static_cast<size_t>(lane) * words_out + static_cast<size_t>(i)];
        }
    }
}

} // namespace

TEST_CASE("mma tf32: corners of the figures of the PTX ISA", "[cuda_driver]") {
    REQUIRE((place_in_a(0, 1).row == 8 && place_in_a(0, 1).column == 0 && place_in_a(0, 2).row == 0 && place_in_a(0, 2).column == 4));
    REQUIRE((place_in_a(31, 3).row == 15 && place_in_a(31, 3).column == 7 && place_in_b(31, 1).row == 7 && place_in_b(31, 1).column == 7));
    REQUIRE((place_in_b(0, 1).row == 4 && place_in_b(4, 0).column == 1 && place_in_c(31, 3).row == 15 && place_in_c(31, 3).column == 7));
}

TEST_CASE("mma tf32: each place of A and of B alone, beside a full matrix", "[cuda_driver]") {
    const Fresh fresh;
    int wrong = 0;
    for (int k = 0; k < depth; k++) {
        for (int row = 0; row < rows; row++) {
            Matrices m;
            m.a[row][k] = 1;
            for (int at = 0; at < depth * columns; at++) {
                m.b[at / columns][at % columns] = static_cast<float>(at + 1);
            }
            m.c[row][k] = 0.5f;
            multiply(&m);
            for (int at = 0; at < rows * columns; at++) {
                const float wanted = at / columns == row ? static_cast<float>(k * columns + at % columns + 1) : 0;
                wrong += m.c[at / columns][at % columns] != wanted + (at == row * columns + k ? 0.5f : 0);
            }
        }
        for (int column = 0; column < columns; column++) {
            Matrices m;
            m.b[k][column] = 1;
            for (int at = 0; at < rows * depth; at++) {
                m.a[at / depth][at % depth] = static_cast<float>(at + 1);
            }
            multiply(&m);
            for (int at = 0; at < rows * columns; at++) {
                wrong += m.c[at / columns][at % columns] != (at % columns == column ? static_cast<float>(at / columns * depth + k + 1) : 0);
            }
        }
    }
    REQUIRE(wrong == 0);
}

TEST_CASE("mma tf32: an element with more than 11 bits is no number", "[cuda_driver]") {
    const Fresh fresh;
    const uint32_t bits[] = {0x3f802000, 0x3f801000}; // 1 + 2^-10, 1 + 2^-11
    for (const uint32_t one : bits) {
        Matrices m;
        std::memcpy(&m.a[3][2], &one, sizeof one);
        m.b[2][5] = 1;
        multiply(&m);
        REQUIRE(std::isnan(m.c[3][5]) == (one == bits[1]));
        REQUIRE(m.c[4][5] == 0);
    }
}

} // namespace polyhead::test::words

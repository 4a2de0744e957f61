// Products of matrices and loads of them: where each element lies in the registers of a warp, as the PTX ISA says; how sums are rounded.
#include "test_program.h"

#include <cmath>
#include <random>

using namespace polyhead::test;

namespace {

constexpr size_t lanes = 32, words_in = 10, words_out = 4;

struct Place {
    int row, column;
};

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": element i of a thread, groupID = laneid >> 2,
// threadID_in_group = laneid % 4.
Place place_in_a(int lane, int i) {
    const int group = lane >> 2, thread = lane % 4;
    const bool upper = (0 <= i && i < 2) || (4 <= i && i < 6);
    return {upper ? group : group + 8, i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8};
}
Place place_in_b(int lane, int i) {
    const int group = lane >> 2, thread = lane % 4;
    return {i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8, group};
}
Place place_in_c(int lane, int i) {
    const int group = lane >> 2, thread = lane % 4;
    return {i < 2 ? group : group + 8, thread * 2 + (i & 1)};
}

struct Numbers {
    const char *type;
    uint16_t one, two_to_the_minus_12;
};
const Numbers f16{"f16", 0x3c00, 0x0c00}, bf16{"bf16", 0x3f80, 0x3980};

uint16_t narrow(const Numbers &numbers, float x) { // of small whole numbers
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return numbers.type == bf16.type ? static_cast<uint16_t>(bits >> 16)
           : x == 0                  ? 0
                    : static_cast<uint16_t>(((bits >> 31) << 15) | ((((bits >> 23) & 255) - 112) << 10) | ((bits >> 13) & 1023));
}

struct Matrices {
    uint16_t a[16][16] = {}, b[16][8] = {};
    float c[16][8] = {};
};

std::vector<uint32_t> fragments(const Matrices &m) {
    std::vector<uint32_t> words(lanes * words_in, 0);
    for (int lane = 0; lane < 32; lane++) {
        uint32_t *of_lane = words.data() + static_cast<size_t>(lane) * words_in;
        for (int i = 0; i < 8; i++) {
            const Place at = place_in_a(lane, i);
            of_lane[i / 2] |= static_cast<uint32_t>(m.a[at.row][at.column]) << (16 * (i % 2));
        }
        for (int i = 0; i < 4; i++) {
            const Place at = place_in_b(lane, i), sum = place_in_c(lane, i);
            of_lane[4 + i / 2] |= static_cast<uint32_t>(m.b[at.row][at.column]) << (16 * (i % 2));
            std::memcpy(of_lane + 6 + i, &m.c[sum.row][sum.column], 4);
        }
    }
    return words;
}

std::string product(const Numbers &numbers) {
    const std::string type = numbers.type;
    return "mul.wide.u32 %d2, %r0, 40;\nadd.s64 %d2, %d2, %d1;\nmul.wide.u32 %d3, %r0, 16;\nadd.s64 %d3, %d3, %d0;\n"
           "ld.global.v2.b32 {%r1, %r2}, [%d2];\nld.global.v2.b32 {%r3, %r4}, [%d2+8];\nld.global.v2.b32 {%r5, %r6}, [%d2+16];\n"
           "ld.global.v2.b32 {%r7, %r8}, [%d2+24];\nld.global.v2.b32 {%r9, %r10}, [%d2+32];\n"
           "mma.sync.aligned.m16n8k16.row.col.f32." +
           type + "." + type +
           ".f32 {%r11, %r12, %r13, %r14}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%r7, %r8, %r9, %r10};\n"
           "st.global.v4.b32 [%d3], {%r11, %r12, %r13, %r14};\nret;";
}

class Product {
public:
    explicit Product(const Numbers &numbers) {
        out_ = upload(std::vector<float>(lanes * words_out, 0.0f));
        in_ = upload(std::vector<uint32_t>(lanes * words_in, 0));
        REQUIRE(cuModuleLoadData(&module_, module_of(product(numbers)).c_str()) == CUDA_SUCCESS);
    }
    // m.c becomes the result.
    void run(Matrices &m) {
        const std::vector<uint32_t> words = fragments(m);
        REQUIRE(cuMemcpyHtoD_v2(in_, words.data(), words.size() * 4) == CUDA_SUCCESS);
        const CUresult result = launch(module_, out_, in_);
        INFO(polyhead_cuda_driver_error());
        REQUIRE(result == CUDA_SUCCESS);
        const std::vector<float> results = download<float>(out_, lanes * words_out);
        for (int lane = 0; lane < 32; lane++) {
            for (int i = 0; i < 4; i++) {
                const Place at = place_in_c(lane, i);
                m.c[at.row][at.column] = results[static_cast<size_t>(lane) * words_out + static_cast<size_t>(i)];
            }
        }
    }

private:
    CUmodule module_ = nullptr;
    CUdeviceptr out_ = 0, in_ = 0;
};

// The bits of one operand are 1 at one place, the other operand holds a different number everywhere.
bool only(const Matrices &m, int row, int column, const float (&row_wanted)[8], const float (&column_wanted)[16], bool of_a) {
    for (int y = 0; y < 16; y++) {
        for (int x = 0; x < 8; x++) {
            const float wanted = of_a ? (y == row ? row_wanted[x] : 0) : (x == column ? column_wanted[y] : 0);
            if (m.c[y][x] != wanted) {
                return false;
            }
        }
    }
    return true;
}

} // namespace

TEST_CASE("mma: corners of the figures of the PTX ISA", "[cuda_driver]") {
    // Thread 0 holds a0, a1 at (0, 0) and (0, 1), a2, a3 in row 8, a4 at (0, 8); thread 31 ends with a7 at (15, 15), b3 at (15, 7), c3 at
    // (15, 7).
    REQUIRE((place_in_a(0, 1).row == 0 && place_in_a(0, 1).column == 1 && place_in_a(0, 2).row == 8 && place_in_a(0, 2).column == 0));
    REQUIRE((place_in_a(0, 4).row == 0 && place_in_a(0, 4).column == 8 && place_in_a(31, 7).row == 15 && place_in_a(31, 7).column == 15));
    REQUIRE((place_in_b(0, 2).row == 8 && place_in_b(1, 0).row == 2 && place_in_b(4, 0).column == 1 && place_in_b(31, 3).row == 15));
    REQUIRE((place_in_c(0, 2).row == 8 && place_in_c(1, 1).column == 3 && place_in_c(31, 3).row == 15 && place_in_c(31, 3).column == 7));
}

TEST_CASE("mma: each place of A, of B and of C alone", "[cuda_driver]") {
    const Fresh fresh;
    for (const Numbers &numbers : {f16, bf16}) {
        Product product(numbers);
        Matrices filled;
        float value_a[16][16], value_b[16][8];
        for (int k = 0; k < 16; k++) {
            for (int i = 0; i < 16; i++) {
                value_a[i][k] = static_cast<float>(i * 16 + k + 1); // up to 256: exact as bf16, too
                filled.a[i][k] = narrow(numbers, value_a[i][k]);
            }
            for (int i = 0; i < 8; i++) {
                value_b[k][i] = static_cast<float>(k * 8 + i + 1);
                filled.b[k][i] = narrow(numbers, value_b[k][i]);
            }
        }
        int wrong = 0;
        for (int row = 0; row < 16; row++) {
            for (int k = 0; k < 16; k++) {
                Matrices m = filled;
                std::fill(&m.a[0][0], &m.a[0][0] + 256, uint16_t{0});
                m.a[row][k] = numbers.one;
                product.run(m);
                wrong += !only(m, row, 0, value_b[k], value_a[0], true);
            }
            for (int column = 0; column < 8; column++) {
                Matrices m = filled;
                std::fill(&m.b[0][0], &m.b[0][0] + 128, uint16_t{0});
                m.b[row][column] = numbers.one;
                product.run(m);
                float of_column[16];
                for (int y = 0; y < 16; y++) {
                    of_column[y] = value_a[y][row];
                }
                wrong += !only(m, 0, column, value_b[0], of_column, false);
                Matrices sum;
                sum.c[row][column] = 5;
                product.run(sum);
                for (int at = 0; at < 128; at++) {
                    wrong += sum.c[at / 8][at % 8] != (at == row * 8 + column ? 5.0f : 0.0f);
                }
            }
        }
        INFO(numbers.type);
        REQUIRE(wrong == 0);
    }
}

TEST_CASE("mma: two ways of adding, each near the exact sum, and not the same", "[cuda_driver]") {
    std::mt19937 random(5);
    Matrices m;
    double exact[16][8] = {};
    for (auto &row : m.a) {
        for (uint16_t &x : row) {
            x = static_cast<uint16_t>((random() % 2048) | 0x3800u); // 0.5 to 2
        }
    }
    for (auto &row : m.b) {
        for (uint16_t &x : row) {
            x = static_cast<uint16_t>((random() % 2048) | 0x3800u);
        }
    }
    const auto value = [](uint16_t x) { return std::ldexp(1024 + (x & 1023), ((x >> 10) & 31) - 25); };
    for (int at = 0; at < 128; at++) {
        for (int k = 0; k < 16; k++) {
            exact[at / 8][at % 8] += value(m.a[at / 8][k]) * value(m.b[k][at % 8]);
        }
    }
    std::vector<float> results[2];
    for (const bool truncates : {false, true}) {
        const Fresh fresh({truncates ? "TRUNCATE=1" : "TRUNCATE=0"});
        Product product(f16);
        Matrices result = m;
        product.run(result);
        for (int at = 0; at < 128; at++) {
            const double sum = exact[at / 8][at % 8], found = result.c[at / 8][at % 8];
            REQUIRE(std::fabs(found - sum) <= 16 * 0x1p-23 * sum);
            REQUIRE((!truncates || found <= sum));
            results[truncates].push_back(static_cast<float>(found));
        }
    }
    REQUIRE(results[0] != results[1]);
}

TEST_CASE("mma: infinities and NaN are where they belong", "[cuda_driver]") {
    for (const char *truncates : {"TRUNCATE=0", "TRUNCATE=1"}) {
        const Fresh fresh({truncates});
        Product product(f16);
        Matrices m;
        m.a[3][7] = 0x7c00;
        m.b[7][2] = f16.one;
        product.run(m);
        REQUIRE((std::isinf(m.c[3][2]) && std::isnan(m.c[3][1]) && m.c[2][2] == 0)); // infinity * 0 is NaN
    }
}

TEST_CASE("ldmatrix: rows by addresses, pairs of a row or of a column", "[cuda_driver]") {
    const Fresh fresh;
    // Element e of row r of matrix i is 64 i + 8 r + e. The row is stored at 16 * ((5 * (8 i + r)) % 32) bytes.
    std::vector<uint16_t> memory(256);
    for (unsigned row = 0; row < 32; row++) {
        for (unsigned e = 0; e < 8; e++) {
            memory[8 * (5 * row % 32) + e] = static_cast<uint16_t>(8 * row + e);
        }
    }
    Grid shape;
    shape.shared = 512 + 32;
    for (const char *trans : {"", ".trans"}) {
        for (const unsigned count : {1u, 2u, 4u}) {
            const CUdeviceptr out = upload(std::vector<uint32_t>(32 * count, 0)), in = upload(memory);
            std::string registers;
            std::string stores;
            for (unsigned i = 0; i < count; i++) {
                registers += (i ? ", %r" : "%r") + std::to_string(20 + i);
                stores += "st.global.b32 [%d3+" + std::to_string(4 * i) + "], %r" + std::to_string(20 + i) + ";\n";
            }
            const CUresult result =
                run("mul.wide.u32 %d2, %r0, 16;\nadd.s64 %d2, %d2, %d1;\nld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d2];\n"
                    "mul.lo.u32 %r5, %r0, 16;\nst.shared.v4.b32 [%r5+32], {%r1, %r2, %r3, %r4};\nbar.sync 0;\n"
                    "mul.lo.u32 %r6, %r0, 5;\nand.b32 %r6, %r6, 31;\nmul.lo.u32 %r6, %r6, 16;\n"
                    "ldmatrix.sync.aligned.m8n8.x" +
                        std::to_string(count) + trans + ".shared.b16 {" + registers + "}, [%r6+32];\nmul.wide.u32 %d3, %r0, " +
                        std::to_string(4 * count) + ";\nadd.s64 %d3, %d3, %d0;\n" + stores + "ret;",
                    out, in, shape);
            INFO(polyhead_cuda_driver_error());
            REQUIRE(result == CUDA_SUCCESS);
            const auto words = download<uint32_t>(out, 32 * count);
            for (unsigned lane = 0; lane < 32; lane++) {
                for (unsigned i = 0; i < count; i++) {
                    const unsigned line = lane / 4, pair = 2 * (lane % 4);
                    const unsigned low = *trans ? 64 * i + 8 * pair + line : 64 * i + 8 * line + pair;
                    const unsigned high = *trans ? 64 * i + 8 * (pair + 1) + line : 64 * i + 8 * line + pair + 1;
                    REQUIRE(words[lane * count + i] == (low | (high << 16)));
                }
            }
        }
    }
}

TEST_CASE("what products and loads of matrices refuse", "[cuda_driver]") {
    const Fresh fresh;
    Grid shape;
    shape.shared = 512;
    const CUdeviceptr memory = upload(std::vector<uint32_t>(512, 0));
    const auto faulty = [&](const std::string &body) { return run(body + "\nret;", memory, memory, shape); };
    const std::string zeros = "mov.b32 %r1, 0;\nmov.b32 %r2, 0;\nmov.b32 %r3, 0;\nmov.b32 %r4, 0;\n",
                      mma = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r5, %r6, %r7, %r8}, {%r1, %r2, %r3, %r4}, {%r1, %r2}, "
                            "{%r1, %r2, %r3, %r4};\n";
    REQUIRE(faulty(zeros + mma) == CUDA_SUCCESS);
    REQUIRE(faulty("mov.b32 %r1, 0;\nmov.b32 %r2, 0;\nmov.b32 %r3, 0;\n" + mma) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("never written"));
    REQUIRE(faulty(zeros + "setp.lt.u32 %p1, %r0, 31;\n@%p1 " + mma) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("only 31 of its threads are here"));
    REQUIRE(faulty("mov.b32 %r1, 8;\nldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];") ==
            CUDA_ERROR_MISALIGNED_ADDRESS);
    REQUIRE(faulty("mov.b32 %r1, 512;\nldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];") ==
            CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(faulty("mul.lo.u32 %r1, %r0, 16;\nst.shared.b32 [%r1], %r0;\nmov.b32 %r1, 0;\n"
                   "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];") == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("race in shared memory"));
    for (const char *statement :
         {"mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%r5, %r6, %r7, %r8}, {%r1, %r2, %r3, %r4}, {%r1, %r2}, {%r1, %r2, %r3, "
          "%r4};",
          "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%r5, %r6, %r7, %r8}, {%r1, %r2, %r3, %r4}, {%r1, %r2}, {%r1, %r2, %r3, %r4};",
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r5, %r6, %r7, %r8}, {%r1, %r2, %r3}, {%r1, %r2}, {%r1, %r2, %r3, %r4};",
          "mma.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r5, %r6, %r7, %r8}, {%r1, %r2, %r3, %r4}, {%r1, %r2}, {%r1, %r2, %r3, %r4};",
          "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3}, [%r1];",
          "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r2, %r3, %r4}, [%r1];"}) {
        INFO(statement);
        REQUIRE(faulty(std::string("ret;\n") + statement) == CUDA_ERROR_ILLEGAL_INSTRUCTION);
    }
}

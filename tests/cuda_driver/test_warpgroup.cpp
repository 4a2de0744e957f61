// Products of a warpgroup: where each element lies in registers and in shared memory, as the PTX ISA says; what is under way, and until
// when.
#include "test_program.h"

#include <algorithm>
#include <cmath>
#include <random>

using namespace polyhead::test;

namespace {

constexpr int rows_of_group = 64, depth_of_group = 16, threads_of_group = 128, a_bytes = 16384, b_at = a_bytes;

struct At {
    int row, column;
};

// PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16": element i of A, and of D.
At group_place_a(int thread, int i) {
    const int warp = thread / 32, group = thread % 32 >> 2, in_group = thread % 4;
    const bool upper = (0 <= i && i < 2) || (4 <= i && i < 6);
    return {warp * 16 + (upper ? group : group + 8), i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8};
}
At group_place_d(int thread, int i) {
    const int warp = thread / 32, group = thread % 32 >> 2, in_group = thread % 4;
    return {warp * 16 + (i % 4 < 2 ? group : group + 8), 8 * (i / 4) + in_group * 2 + (i & 1)};
}

// Where a matrix lies. K-major: rows of 64 of k. MN-major: rows of 64 of m or n. Both in patterns of 8 rows of 128 bytes, in which the
// 16-byte pieces of row r are exchanged by "piece xor r" (PTX ISA, "Swizzling modes").
struct Layout {
    bool along_k;
    int leading, stride, first_k; // bytes; the element of k at which the product begins

    size_t byte(int x, int k) const {
        const int along = along_k ? first_k + k : x, across = along_k ? x : first_k + k;
        const int pattern = along_k ? across / 8 * stride : along / 64 * leading + across / 8 * stride;
        const int piece = along % 64 / 8 ^ across % 8;
        return static_cast<size_t>(pattern + across % 8 * 128 + piece * 16 + along % 8 * 2);
    }
    // The descriptor of a matrix whose patterns begin at `address` (a register), in %d<to>.
    std::string descriptor(int to, int address) const {
        const int first = along_k ? first_k * 2 : first_k / 8 * stride;
        const uint64_t high = 1ull << 62 | static_cast<uint64_t>(stride / 16) << 32 | static_cast<uint64_t>(leading / 16) << 16;
        return "add.s32 %r40, %r48, " + std::to_string(address + first) + ";\nshr.u32 %r40, %r40, 4;\ncvt.u64.u32 %d" + std::to_string(to) +
               ", %r40;\nor.b64 %d" + std::to_string(to) + ", %d" + std::to_string(to) + ", " + std::to_string(high) + ";\n";
    }
};

struct Setting {
    int columns = 8;
    bool bf16 = false, a_in_registers = false;
    Layout a{true, 16, 1024, 0}, b{true, 16, 1024, 0};
};

std::string numbered(const char *name, int first, int count) {
    std::string text;
    for (int i = 0; i < count; i++) {
        text += (i ? ", %" : "{%") + std::string(name) + std::to_string(first + i);
    }
    return text + "}";
}

std::string product_of(const Setting &s, const std::string &adds = "%p1", int sums = 0) {
    const std::string type = s.bf16 ? "bf16" : "f16";
    return "wgmma.mma_async.sync.aligned.m64n" + std::to_string(s.columns) + "k16.f32." + type + "." + type + " " +
           numbered("s", sums, s.columns / 2) + ", " + (s.a_in_registers ? numbered("r", 1, 4) : "%d10") + ", %d11, " + adds + ", 1, 1" +
           (s.a_in_registers ? ""
            : s.a.along_k    ? ", 0"
                             : ", 1") +
           (s.b.along_k ? ", 0" : ", 1") + ";\n";
}

// The parts of the program between which faults are made.
struct Program {
    Setting setting;
    std::string before = "", fill_fence = "fence.proxy.async.shared::cta;\n", barrier = "bar.sync 0;\n", zero = "mov.b32 %r49, 0;\n",
                fence = "wgmma.fence.sync.aligned;\n", product, commit = "wgmma.commit_group.sync.aligned;\n", between = "",
                wait = "wgmma.wait_group.sync.aligned 0;\n", after = "";
    unsigned threads = threads_of_group;

    explicit Program(const Setting &given) : setting(given), product(product_of(given)) {}

    // Shared memory is filled from the second buffer; words of A follow there. Sums go to the first one.
    std::string text() const {
        const int sums = setting.columns / 2;
        std::string text = ".reg .b32 %s<256>;\nmov.u32 %r48, memory;\nmov.u32 %r5, %r0;\nFILL:\nmul.wide.u32 %d2, %r5, 4;\n"
                           "add.s64 %d2, %d2, %d1;\nld.global.b32 %r6, [%d2];\nmul.lo.u32 %r7, %r5, 4;\nadd.s32 %r7, %r7, %r48;\n"
                           "st.shared.b32 [%r7], %r6;\nadd.s32 %r5, %r5, " +
                           std::to_string(threads) + ";\nsetp.lt.u32 %p0, %r5, 16384;\n@%p0 bra FILL;\n" + fill_fence + barrier +
                           "mul.wide.u32 %d3, %r0, 16;\nadd.s64 %d3, %d3, %d1;\nld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d3+65536];\n";
        for (int i = 0; i < sums; i++) {
            text += "mov.b32 %s" + std::to_string(i) + ", 0;\nmov.b32 %s" + std::to_string(sums + i) + ", 0;\n";
        }
        text += setting.a.descriptor(10, 0) + setting.b.descriptor(11, b_at) + zero + "setp.ne.b32 %p1, %r49, 0;\n" + before + fence +
                product + commit + between + wait + after + "mul.wide.u32 %d4, %r0, " + std::to_string(4 * sums) +
                ";\nadd.s64 %d4, %d4, %d0;\n";
        for (int i = 0; i < sums; i++) {
            text += "st.global.b32 [%d4+" + std::to_string(4 * i) + "], %s" + std::to_string(i) + ";\n";
        }
        return text + "ret;";
    }

    CUresult run(const std::vector<uint32_t> &in, std::vector<float> *out = nullptr) const {
        const size_t count = threads * static_cast<size_t>(setting.columns) / 2;
        const CUdeviceptr first = upload(std::vector<float>(count, -1.0f)), second = upload(in);
        const std::string ptx = module_of(text(), "sm_90a", ".extern .shared .align 1024 .b8 memory[];\n", "8.0");
        return run_block(ptx, threads, 65536, first, second, count, out);
    }
};

uint16_t bits_of(float x, bool bf16) { // of whole numbers up to 256
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bf16     ? static_cast<uint16_t>(bits >> 16)
           : x == 0 ? 0
                    : static_cast<uint16_t>((((bits >> 23) & 255) - 112) << 10 | (bits >> 13 & 1023));
}

struct Operands {
    std::vector<float> a = std::vector<float>(rows_of_group * depth_of_group), b; // [row][k], [column][k]

    std::vector<uint32_t> memory(const Setting &s) const {
        std::vector<uint16_t> halves(2 * (16384 + 4 * threads_of_group), 0);
        for (int k = 0; k < depth_of_group; k++) {
            for (int row = 0; row < rows_of_group; row++) {
                halves[s.a.byte(row, k) / 2] = bits_of(a[static_cast<size_t>(row * depth_of_group + k)], s.bf16);
            }
            for (int column = 0; column < s.columns; column++) {
                halves[(b_at + s.b.byte(column, k)) / 2] = bits_of(b[static_cast<size_t>(column * depth_of_group + k)], s.bf16);
            }
        }
        for (int thread = 0; thread < threads_of_group; thread++) {
            for (int i = 0; i < 8; i++) {
                const At at = group_place_a(thread, i);
                halves[static_cast<size_t>(2 * (16384 + 4 * thread) + i)] =
                    bits_of(a[static_cast<size_t>(at.row * depth_of_group + at.column)], s.bf16);
            }
        }
        std::vector<uint32_t> words(halves.size() / 2);
        std::memcpy(words.data(), halves.data(), 4 * words.size());
        return words;
    }
};

// Row r of A is 1 at k = (r + turn) % 16; B has another number at nearly every place.
Operands one_hot(const Setting &s, int turn) {
    Operands operands;
    operands.b.resize(static_cast<size_t>(s.columns * depth_of_group));
    for (int row = 0; row < rows_of_group; row++) {
        operands.a[static_cast<size_t>(row * depth_of_group + (row + turn) % depth_of_group)] = 1;
    }
    for (size_t i = 0; i < operands.b.size(); i++) {
        operands.b[i] = static_cast<float>(37 * i % 257);
    }
    return operands;
}

int wrong_sums(const Setting &s, const Operands &operands, int turn, const std::vector<float> &out, float factor = 1) {
    int wrong = 0;
    const int sums = s.columns / 2;
    for (int thread = 0; thread < threads_of_group; thread++) {
        for (int i = 0; i < sums; i++) {
            const At at = group_place_d(thread, i);
            const int k = (at.row + turn) % depth_of_group;
            wrong +=
                out[static_cast<size_t>(thread * sums + i)] != factor * operands.b[static_cast<size_t>(at.column * depth_of_group + k)];
        }
    }
    return wrong;
}

// Two products in a row, of which the second adds.
std::string two_products(const Setting &s, const std::string &between = "") {
    return product_of(s) + between + product_of(s, "%p2");
}
const char *const second_adds = "setp.eq.b32 %p2, %r49, 0;\n";

} // namespace

TEST_CASE("wgmma: corners of the figures of the PTX ISA", "[cuda_driver]") {
    REQUIRE((group_place_a(0, 2).row == 8 && group_place_a(0, 4).column == 8 && group_place_a(127, 7).row == 63 &&
             group_place_a(127, 7).column == 15));
    REQUIRE((group_place_d(0, 2).row == 8 && group_place_d(1, 1).column == 3 && group_place_d(32, 0).row == 16 &&
             group_place_d(127, 127).row == 63 && group_place_d(127, 127).column == 255));
    const Layout k_major{true, 16, 1024, 0}, n_major{false, 4096, 1024, 0};
    REQUIRE(
        (k_major.byte(0, 8) == 16 && k_major.byte(1, 0) == 128 + 16 && k_major.byte(8, 0) == 1024 && k_major.byte(7, 0) == 7 * 128 + 112));
    REQUIRE((n_major.byte(8, 0) == 16 && n_major.byte(0, 1) == 128 + 16 && n_major.byte(0, 8) == 1024 && n_major.byte(64, 0) == 4096));
}

TEST_CASE("wgmma: each place of A and of B", "[cuda_driver]") {
    const Fresh fresh({"CAPABILITY=90"});
    std::vector<Setting> settings;
    for (const int columns : {8, 24, 64, 128, 256}) {
        Setting s;
        s.columns = columns;
        settings.push_back(s); // both K-major
        s.a.first_k = 48;
        s.b = {false, 8192, 1024, 16};
        s.bf16 = true;
        settings.push_back(s);
        s.a = {false, 1024, 2048, 8}; // A along M
        s.b = {true, 16, 1024, 32};
        settings.push_back(s);
        s.a_in_registers = true;
        s.bf16 = false;
        s.b = {false, 4096, 1024, 0};
        settings.push_back(s);
    }
    for (const Setting &s : settings) {
        for (const int turn : {0, 1, 7, 14}) {
            INFO(s.columns << " columns, turn " << turn << (s.a_in_registers ? ", A in registers" : "")
                           << (s.b.along_k ? "" : ", B along N"));
            Operands operands = one_hot(s, turn);
            std::vector<float> out;
            const CUresult result = Program(s).run(operands.memory(s), &out);
            INFO(polyhead_cuda_driver_error());
            REQUIRE(result == CUDA_SUCCESS);
            REQUIRE(wrong_sums(s, operands, turn, out) == 0);
        }
    }
}

TEST_CASE("wgmma: a wrong stride, leading dimension, swizzle or major order gives wrong sums or a refusal", "[cuda_driver]") {
    const Fresh fresh({"CAPABILITY=90"});
    Setting s;
    s.columns = 128;
    s.a_in_registers = true;
    s.b = {false, 8192, 1024, 0};
    const Operands operands = one_hot(s, 3);
    const std::vector<uint32_t> memory = operands.memory(s);
    const auto wrong = [&](const Setting &other, const std::string &before = "") {
        Program program(other);
        program.before = before;
        std::vector<float> out;
        return program.run(memory, &out) == CUDA_SUCCESS ? wrong_sums(s, operands, 3, out) : -1;
    };
    REQUIRE(wrong(s) == 0);
    for (const Layout layout : {Layout{false, 4096, 1024, 0}, {false, 8192, 2048, 0}, {true, 8192, 1024, 0}, {false, 8192, 1024, 8}}) {
        Setting other = s;
        other.b = layout;
        REQUIRE(wrong(other) != 0);
    }
    REQUIRE(wrong(s, "and.b64 %d11, %d11, 4611686018427387903;\n") == -1); // no swizzle
    REQUIRE(error_says("another swizzle"));
    REQUIRE(wrong(s, "xor.b64 %d11, %d11, 562949953421312;\n") == -1); // a base offset
    REQUIRE(wrong(s, "add.s64 %d11, %d11, 8192;\n") == -1);
    REQUIRE(error_says("shared memory"));
    REQUIRE(wrong(s, "cvt.u64.u32 %d12, %r0;\nadd.s64 %d11, %d11, %d12;\n") == -1);
    REQUIRE(error_says("different descriptors"));
}

TEST_CASE("wgmma: sums are there after the wait, and no sooner", "[cuda_driver]") {
    const Fresh fresh({"CAPABILITY=90"});
    Setting s;
    s.columns = 16;
    s.a_in_registers = true;
    const Operands operands = one_hot(s, 5);
    const std::vector<uint32_t> memory = operands.memory(s);
    std::vector<float> out;
    const auto faulty = [&](const auto &change, const char *words) {
        Program program(s);
        change(program);
        const CUresult result = program.run(memory, &out);
        INFO(program.text());
        REQUIRE(result == CUDA_ERROR_LAUNCH_FAILED);
        REQUIRE(error_says(words));
    };
    const char *const in_flight = "was not waited for";
    faulty([](Program &p) { p.wait = ""; }, in_flight);
    faulty([](Program &p) { p.wait = "wgmma.wait_group.sync.aligned 1;\n"; }, in_flight);
    faulty([](Program &p) { p.commit = ""; }, in_flight);
    faulty([](Program &p) { p.between = "mov.b32 %r9, %s0;\n"; }, in_flight);
    faulty([](Program &p) { p.between = "mov.b32 %r1, 0;\n"; }, in_flight); // a word of A
    faulty([](Program &p) { p.fence = ""; }, "no fence before it");
    faulty([](Program &p) { p.fence += "mov.b32 %s3, 0;\n"; }, "touched after the last fence");
    faulty([](Program &p) { p.fence += "mov.b32 %r2, 0;\n"; }, "touched after the last fence");
    faulty([](Program &p) { p.fill_fence = ""; }, "no fence of the proxy");
    faulty([](Program &p) { p.fill_fence = "setp.lt.u32 %p3, %r0, 127;\n@%p3 fence.proxy.async.shared::cta;\n"; }, "no fence of the proxy");
    faulty([](Program &p) { std::swap(p.fill_fence, p.barrier), p.barrier = ""; }, "no fence of the proxy");
    faulty([](Program &p) { p.barrier = ""; }, "race in shared memory");
    faulty([](Program &p) { p.between = "add.s32 %r7, %r48, 16384;\nst.shared.b32 [%r7], %r0;\n"; }, "race in shared memory");
    faulty([](Program &p) { p.between = "add.s32 %r7, %r48, 16388;\nsetp.eq.b32 %p3, %r0, 40;\n@%p3 st.shared.b32 [%r7], %r0;\n"; },
           "race in shared memory");
    faulty([](Program &p) { p.before = "setp.lt.u32 %p1, %r0, 7;\n"; }, "disagree on whether");
    faulty([](Program &p) { p.product = "setp.ne.b32 %p3, %r0, 7;\n@%p3 " + p.product; }, "one of a whole warp");
    faulty([](Program &p) { p.product = "setp.lt.u32 %p3, %r0, 96;\n@%p3 " + p.product; }, "other products of the warpgroup");
    faulty([](Program &p) { p.after = "wgmma.fence.sync.aligned;\n" + p.product + p.commit + "ret;\n"; }, "a thread leaves");
    faulty([](Program &p) { p.threads = 96; }, "no group of four");
}

TEST_CASE("wgmma: groups of products end in their order, and a later one adds to what is under way", "[cuda_driver]") {
    const Fresh fresh({"CAPABILITY=90"});
    Setting s;
    s.columns = 16;
    const Operands operands = one_hot(s, 2);
    const std::vector<uint32_t> memory = operands.memory(s);
    std::vector<float> out;
    Program program(s);
    program.before = second_adds;
    program.product = two_products(s);
    REQUIRE(program.run(memory, &out) == CUDA_SUCCESS);
    REQUIRE(wrong_sums(s, operands, 2, out, 2) == 0);
    program.product = two_products(s, program.commit); // two groups
    REQUIRE(program.run(memory, &out) == CUDA_SUCCESS);
    REQUIRE(wrong_sums(s, operands, 2, out, 2) == 0);
    program.wait = "wgmma.wait_group.sync.aligned 1;\n";
    REQUIRE(program.run(memory) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("was not waited for"));
    // Others sums in the second group: those of the first are there while it is under way.
    program.product = product_of(s) + program.commit + product_of(s, "%p1", s.columns / 2);
    program.between = program.wait + "mov.b32 %r9, %s0;\n";
    program.wait = "wgmma.wait_group.sync.aligned 0;\n";
    REQUIRE(program.run(memory, &out) == CUDA_SUCCESS);
    REQUIRE(wrong_sums(s, operands, 2, out) == 0);
    program.between = "wgmma.wait_group.sync.aligned 1;\nmov.b32 %r9, %s8;\n";
    REQUIRE(program.run(memory) == CUDA_ERROR_LAUNCH_FAILED);
}

TEST_CASE("wgmma: two ways of adding, each near the exact sum, and not the same", "[cuda_driver]") {
    std::mt19937 random(5);
    Setting s;
    s.columns = 64;
    Operands operands;
    operands.b.resize(static_cast<size_t>(s.columns * depth_of_group));
    for (float &x : operands.a) {
        x = static_cast<float>(random() % 256 + 1);
    }
    for (float &x : operands.b) {
        x = static_cast<float>(random() % 256 + 1);
    }
    std::vector<float> results[2];
    for (const bool truncates : {false, true}) {
        const Fresh fresh({truncates ? "TRUNCATE=1" : "TRUNCATE=0", "CAPABILITY=90"});
        Program program(s);
        program.before = std::string(second_adds) + "mov.b32 %s0, 0f4B800001;\n"; // 2^24 + 2: what is added is rounded
        program.product = product_of(s, "%p2");
        REQUIRE(program.run(operands.memory(s), &results[truncates]) == CUDA_SUCCESS);
        for (int thread = 0; thread < threads_of_group; thread++) {
            for (int i = 0; i < s.columns / 2; i++) {
                const At at = group_place_d(thread, i);
                double sum = i == 0 ? 0x1p24 + 2 : 0;
                for (int k = 0; k < depth_of_group; k++) {
                    sum += double(operands.a[static_cast<size_t>(at.row * depth_of_group + k)]) *
                           double(operands.b[static_cast<size_t>(at.column * depth_of_group + k)]);
                }
                const double found = results[truncates][static_cast<size_t>(thread * s.columns / 2 + i)];
                REQUIRE(std::fabs(found - sum) <= 16 * 0x1p-23 * sum);
                REQUIRE((!truncates || found <= sum));
            }
        }
    }
    REQUIRE(results[0] != results[1]);
}

TEST_CASE("wgmma: what is refused before it runs", "[cuda_driver]") {
    const Fresh fresh({"CAPABILITY=90"});
    Setting s;
    const std::vector<uint32_t> memory = one_hot(s, 0).memory(s);
    const auto refused = [&](const std::string &statement) {
        Program program(s);
        program.before = "bra OVER;\n" + statement + "\nOVER:\n";
        INFO(statement);
        REQUIRE(program.run(memory) == CUDA_ERROR_ILLEGAL_INSTRUCTION);
    };
    const std::string sums = numbered("s", 0, 4);
    REQUIRE(Program(s).run(memory) == CUDA_SUCCESS);
    refused("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 " + sums + ", %d10, %d11, %p1, -1, 1, 0, 0;");
    refused("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 " + sums + ", %d10, %d11, %p1, 1, 1, 0;");
    refused("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%s0, %s1}, %d10, %d11, %p1, 1, 1, 0, 0;");
    refused("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 " + sums + ", %d10, %d11, %p1, 1, 1, 0, 0;");
    refused("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16 " + sums + ", %d10, %d11, %p1, 1, 1, 0, 0;");
    refused("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 " + sums + ", %d10, %d11, %p1, 1, 1, 0, 0;");
    refused("wgmma.wait_group.sync.aligned %r1;");
    refused("wgmma.fence.aligned;");
    // The module must be for the device that has them.
    CUmodule module = nullptr;
    for (const char *target : {"sm_80", "sm_90", "sm_90a"}) { // of PTX 7.0
        REQUIRE(cuModuleLoadData(&module, module_of("wgmma.fence.sync.aligned;\nret;", target).c_str()) == CUDA_ERROR_INVALID_PTX);
        REQUIRE(error_says("instructions of sm_90a and PTX 8.0"));
    }
}

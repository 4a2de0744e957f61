// Loads and stores of every width, vectors, address spaces, variables of a module, poison.
#include "test_program.h"

#include <cmath>

using namespace polyhead::test;

TEST_CASE("vector loads and stores", "[cuda_driver]") {
    const Fresh fresh;
    std::vector<float> values(128);
    for (size_t index = 0; index < values.size(); index++) {
        values[index] = static_cast<float>(index);
    }
    const CUdeviceptr out = upload(std::vector<float>(128, 0)), in = upload(values);
    REQUIRE(run("mul.wide.u32 %d2, %r0, 16;\nadd.s64 %d3, %d1, %d2;\nadd.s64 %d4, %d0, %d2;\n"
                "ld.global.nc.v4.b32 {%r1, %r2, %r3, %r4}, [%d3];\nst.global.v2.b32 [%d4], {%r4, %r3};\nst.global.v2.b32 [%d4+8], {%r2, "
                "%r1};\nret;",
                out, in) == CUDA_SUCCESS);
    const auto result = download<float>(out, 128);
    for (size_t index = 0; index < 128; index++) {
        REQUIRE(result[index] == values[index / 4 * 4 + 3 - index % 4]);
    }
    const CUdeviceptr narrow = upload(std::vector<uint16_t>{1, 2, 0xffff, 0x8000});
    const CUdeviceptr words = upload(std::vector<uint32_t>(4, 0));
    Grid one;
    one.block[0] = 1;
    REQUIRE(run("ld.global.v4.b16 {%h1, %h2, %h3, %h4}, [%d1];\ncvt.u32.u16 %r1, %h3;\ncvt.s32.s16 %r2, %h4;\nmov.b32 %r3, {%h1, %h2};\n"
                "ld.global.u16 %r4, [%d1+4];\nst.global.v4.b32 [%d0], {%r1, %r2, %r3, %r4};\nret;",
                words, narrow, one) == CUDA_SUCCESS);
    REQUIRE(download<uint32_t>(words, 4) == std::vector<uint32_t>{0xffffu, 0xffff8000u, 0x00020001u, 0xffffu});
}

TEST_CASE("bytes are widened by zeros or by sign, and stored without the rest", "[cuda_driver]") {
    const Fresh fresh;
    const CUdeviceptr in = upload(std::vector<uint8_t>{0x80, 0x7f, 0, 0, 0, 0, 0, 0}), out = upload(std::vector<uint32_t>(4, 0));
    Grid one;
    one.block[0] = 1;
    REQUIRE(run("ld.global.u8 %r1, [%d1];\nld.global.s8 %r2, [%d1];\nld.global.b8 %h1, [%d1+1];\ncvt.u32.u16 %r3, %h1;\nmov.b32 %r4, "
                "0x12345678;\n"
                "st.global.v4.b32 [%d0], {%r1, %r2, %r3, %r4};\nst.global.b8 [%d0+13], 255;\nret;",
                out, in, one) == CUDA_SUCCESS);
    REQUIRE(download<uint32_t>(out, 4) == std::vector<uint32_t>{0x80u, 0xffffff80u, 0x7fu, 0x1234ff78u});
}

TEST_CASE("packing and unpacking", "[cuda_driver]") {
    const Fresh fresh;
    const CUdeviceptr out = upload(std::vector<uint32_t>(4, 0));
    Grid one;
    one.block[0] = 1;
    REQUIRE(run("mov.b32 %r1, 0x11223344;\nmov.b32 %r2, 0x55667788;\nmov.b64 %d2, {%r1, %r2};\nmov.b64 {%h1, %h2, %h3, %h4}, %d2;\n"
                "mov.b32 %r3, {%h4, %h1};\nmov.b64 {_, %r4}, %d2;\nshr.u64 %d3, %d2, 16;\nmov.b64 {%r5, %r6}, %d3;\n"
                "st.global.v4.b32 [%d0], {%r3, %r4, %r5, %r6};\nret;",
                out, 0, one) == CUDA_SUCCESS);
    REQUIRE(download<uint32_t>(out, 4) == std::vector<uint32_t>{0x33445566u, 0x55667788u, 0x77881122u, 0x00005566u});
}

TEST_CASE("local memory belongs to a thread, through its window too", "[cuda_driver]") {
    const Fresh fresh;
    const CUdeviceptr out = upload(std::vector<uint32_t>(32, 0));
    REQUIRE(run(std::string(own_words()) + ".local .align 16 .b8 depot[32];\nmov.b64 %d5, depot;\ncvta.local.u64 %d6, %d5;\n"
                                           "st.local.b32 [%d5+8], %r0;\nld.b32 %r1, [%d6+8];\nadd.s32 %r1, %r1, 1;\nst.b32 [%d6+8], %r1;\n"
                                           "ld.local.b32 %r2, [%d5+8];\nst.global.b32 [%d2], %r2;\nret;",
                out, 0) == CUDA_SUCCESS);
    const auto values = download<uint32_t>(out, 32);
    for (uint32_t lane = 0; lane < 32; lane++) {
        REQUIRE(values[lane] == lane + 1);
    }
}

TEST_CASE("variables of a module and of a kernel", "[cuda_driver]") {
    const Fresh fresh;
    const CUdeviceptr out = upload(std::vector<uint32_t>(4, 0));
    Grid one;
    one.block[0] = 1;
    const std::string before = ".const .align 4 .b32 table[3] = {10, 20, 0x1E};\n.global .align 4 .b8 bytes[4] = {1, 2, 3, 4};\n"
                               ".shared .align 16 .b8 room[64];\n";
    REQUIRE(run("mov.b64 %d2, table;\nld.const.b32 %r1, [%d2+8];\nld.const.b32 %r2, [table+4];\nld.global.b32 %r3, [bytes];\n"
                "mov.b32 %r4, 9;\nst.shared.b32 [room+60], %r4;\nld.shared.b32 %r5, [room+60];\n"
                "st.global.v4.b32 [%d0], {%r1, %r2, %r3, %r5};\nret;",
                out, 0, one, before) == CUDA_SUCCESS);
    REQUIRE(download<uint32_t>(out, 4) == std::vector<uint32_t>{30u, 20u, 0x04030201u, 9u});
    REQUIRE(run("mov.b64 %d2, table;\nmov.b32 %r1, 1;\nst.global.b32 [%d2], %r1;\nret;", out, 0, one, before) ==
            CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(error_says("constant"));
}

TEST_CASE("memory that nobody wrote holds NaN, in every block anew", "[cuda_driver]") {
    const Fresh fresh;
    Grid shape;
    shape.grid[0] = 2;
    shape.block[0] = 1;
    shape.shared = 16;
    const CUdeviceptr out = upload(std::vector<float>(2, 0.0f));
    REQUIRE(run("mov.u32 %r5, %ctaid.x;\nmul.wide.u32 %d2, %r5, 4;\nadd.s64 %d2, %d0, %d2;\nmov.b32 %r1, 8;\nld.shared.b32 %r2, [%r1];\n"
                "st.global.b32 [%d2], %r2;\nst.shared.b32 [%r1], 0;\nret;",
                out, 0, shape) == CUDA_SUCCESS);
    for (float value : download<float>(out, 2)) {
        REQUIRE(std::isnan(value));
    }
    CUdeviceptr fresh_memory = 0;
    REQUIRE(cuMemAlloc_v2(&fresh_memory, 64) == CUDA_SUCCESS);
    REQUIRE(std::isnan(download<float>(fresh_memory, 16)[5]));
}

TEST_CASE("traffic: sectors of global memory, passes over the banks", "[cuda_driver]") {
    const Fresh fresh({"TRAFFIC=1"});
    const CUdeviceptr in = upload(std::vector<uint32_t>(1024, 0));
    Grid shape;
    shape.shared = 4224;
    const auto counted = [&](const std::string &body, const char *opcode) {
        polyhead_cuda_driver_reset_statistics();
        REQUIRE(run(own_words() + body + "ret;", in, in, shape) == CUDA_SUCCESS);
        return polyhead_cuda_driver_traffic(opcode);
    };
    REQUIRE(counted("ld.global.b32 %r1, [%d2];\n", "ld.global") == 4);
    REQUIRE(counted("ld.global.b32 %r1, [%d0];\n", "ld.global") == 1);
    REQUIRE(counted("mul.wide.u32 %d5, %r0, 128;\nadd.s64 %d5, %d5, %d0;\nld.global.b32 %r1, [%d5];\n", "ld.global") == 32);
    REQUIRE(counted("mul.wide.u32 %d5, %r0, 16;\nadd.s64 %d5, %d5, %d0;\nld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d5];\n", "ld") == 16);
    const auto shared = [&](int stride, const std::string &load) {
        return counted("mul.lo.u32 %r5, %r0, " + std::to_string(stride) + ";\n" + load, "ld.shared");
    };
    const std::string word = "ld.shared.b32 %r1, [%r5];\n", four = "ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%r5];\n";
    REQUIRE(shared(4, word) == 1);
    REQUIRE(shared(0, word) == 1);
    REQUIRE(shared(8, word) == 2);
    REQUIRE(shared(128, word) == 32);
    REQUIRE(shared(132, word) == 1);
    REQUIRE(shared(16, four) == 4);
    REQUIRE(shared(0, four) == 4);
    REQUIRE(shared(128, four) == 32);
}

// Copies that arrive later, barriers that reduce, votes, and shared memory whose size a launch gives.
#include "test_program.h"

#include <cmath>

using namespace polyhead::test;

namespace {

constexpr unsigned words = 256; // 8 for each of 32 threads

std::vector<uint32_t> numbers() {
    std::vector<uint32_t> values(words);
    for (unsigned index = 0; index < words; index++) {
        values[index] = 1000 + index;
    }
    return values;
}

// %d2 is the address of this thread's 16 bytes in the second buffer, %r1 of its 16 bytes in shared memory.
const char *const own_piece = "mul.wide.u32 %d2, %r0, 16;\nadd.s64 %d2, %d2, %d1;\nmul.lo.u32 %r1, %r0, 16;\n";
const char *const copy = "cp.async.cg.shared.global [%r1], [%d2], 16;\n", *const commit = "cp.async.commit_group;\n";
const char *const own_out = "mul.wide.u32 %d3, %r0, 4;\nadd.s64 %d3, %d3, %d0;\n";

CUresult result_of(const std::string &body, std::vector<uint32_t> *out = nullptr, const std::string &before = "", unsigned threads = 32) {
    const CUdeviceptr first = upload(std::vector<uint32_t>(64, 0)), second = upload(numbers());
    Grid shape;
    shape.shared = 1024;
    shape.block[0] = threads;
    const CUresult result = run(std::string(own_piece) + own_out + body + "ret;", first, second, shape, before);
    if (out && result == CUDA_SUCCESS) {
        *out = download<uint32_t>(first, 64);
    }
    return result;
}

} // namespace

TEST_CASE("a copy arrives when its thread waits, and no sooner", "[cuda_driver]") {
    const Fresh fresh;
    std::vector<uint32_t> out;
    const std::string read = "ld.shared.b32 %r2, [%r1+4];\nst.global.b32 [%d3], %r2;\n", turned = "xor.b32 %r1, %r1, 16;\n",
                      wait = "cp.async.wait_group 0;\n", barrier = "bar.sync 0;\n";
    REQUIRE(result_of(copy + std::string(commit) + wait + read, &out) == CUDA_SUCCESS);
    REQUIRE((out[0] == 1001 && out[31] == 1125));
    REQUIRE(result_of(copy + std::string("cp.async.wait_all;\n") + read, &out) == CUDA_SUCCESS);
    REQUIRE(result_of(copy + std::string(commit) + wait + barrier + turned + read, &out) == CUDA_SUCCESS);
    REQUIRE((out[0] == 1005 && out[31] == 1121));

    REQUIRE(result_of(copy + std::string(commit) + read + wait) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("is under way that was not waited for"));
    // A barrier does not wait for copies, and a wait is none for other threads.
    REQUIRE(result_of(copy + std::string(commit) + barrier + turned + read + wait) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("is under way"));
    REQUIRE(result_of(copy + std::string(commit) + wait + turned + read) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("no barrier between"));
    // What was not committed is in no group.
    REQUIRE(result_of(copy + wait + read) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(result_of(copy + std::string(commit)) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("a thread leaves"));
}

TEST_CASE("groups of copies arrive in their order", "[cuda_driver]") {
    const Fresh fresh;
    std::vector<uint32_t> out;
    const std::string two = copy + std::string(commit) + "cp.async.cg.shared.global [%r1+512], [%d2+512], 16;\n" + commit,
                      first = "ld.shared.b32 %r2, [%r1];\nst.global.b32 [%d3], %r2;\n",
                      second = "ld.shared.b32 %r3, [%r1+512];\nst.global.b32 [%d3+128], %r3;\n";
    REQUIRE(result_of(two + "cp.async.wait_group 1;\n" + first + "cp.async.wait_group 0;\n" + second, &out) == CUDA_SUCCESS);
    REQUIRE((out[3] == 1012 && out[35] == 1140));
    REQUIRE(result_of(two + "cp.async.wait_group 1;\n" + second + "cp.async.wait_group 0;\n") == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(result_of(two + "cp.async.wait_group 2;\n" + first + "cp.async.wait_group 0;\n") == CUDA_ERROR_LAUNCH_FAILED);
}

TEST_CASE("copies: bytes that are not read become 0, and two threads may bring the same", "[cuda_driver]") {
    const Fresh fresh;
    std::vector<uint32_t> out;
    const std::string read = "cp.async.wait_all;\nld.shared.b32 %r2, [%r1+4];\nst.global.b32 [%d3], %r2;\nld.shared.b32 %r2, [%r1+12];\n"
                             "st.global.b32 [%d3+128], %r2;\n";
    REQUIRE(result_of("cp.async.cg.shared.global [%r1], [%d2], 16, 8;\n" + read, &out) == CUDA_SUCCESS);
    REQUIRE((out[1] == 1005 && out[33] == 0));
    // With no byte to read, the address may be anywhere.
    REQUIRE(result_of("mov.b64 %d2, 0;\nmov.b32 %r9, 0;\ncp.async.cg.shared.global.L2::128B [%r1], [%d2], 16, %r9;\n" + read, &out) ==
            CUDA_SUCCESS);
    REQUIRE((out[1] == 0 && out[33] == 0));
    REQUIRE(result_of("mov.b64 %d2, 0;\ncp.async.cg.shared.global [%r1], [%d2], 16;\n" + read) == CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(result_of("and.b32 %r5, %r0, 15;\nmul.wide.u32 %d2, %r5, 16;\nadd.s64 %d2, %d2, %d1;\nmul.lo.u32 %r1, %r5, 16;\n" +
                          std::string(copy) + "cp.async.wait_all;\nbar.sync 0;\n" + read,
                      &out) == CUDA_SUCCESS);
    REQUIRE(out[17] == 1005);
    // Also when the copy of one warp has arrived before the other begins its own.
    REQUIRE(result_of("and.b32 %r5, %r0, 31;\nmul.wide.u32 %d2, %r5, 16;\nadd.s64 %d2, %d2, %d1;\nmul.lo.u32 %r1, %r5, 16;\n" +
                          std::string(copy) + "cp.async.wait_all;\nbar.sync 0;\nld.shared.b32 %r2, [%r1+4];\nst.global.b32 [%d3], %r2;\n",
                      &out, "", 64) == CUDA_SUCCESS);
    REQUIRE((out[1] == 1005 && out[33] == 1005));
    REQUIRE(result_of("and.b32 %r1, %r1, 255;\n" + std::string(copy) + "cp.async.wait_all;\n") == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("race in shared memory"));
    // Another thread has read the place since the last barrier.
    REQUIRE(result_of("xor.b32 %r6, %r1, 16;\nst.shared.b32 [%r1], %r0;\nbar.sync 0;\nld.shared.b32 %r7, [%r6];\n" + std::string(copy) +
                      "cp.async.wait_all;\n") == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(result_of("add.s32 %r1, %r1, 8;\n" + std::string(copy)) == CUDA_ERROR_MISALIGNED_ADDRESS);
    REQUIRE(result_of("add.s64 %d2, %d2, 8;\n" + std::string(copy)) == CUDA_ERROR_MISALIGNED_ADDRESS);
    REQUIRE(result_of("cp.async.ca.shared.global [%r1+8], [%d2+8], 8;\ncp.async.wait_all;\n") == CUDA_SUCCESS);
    for (const char *statement : {"cp.async.cg.shared.global [%r1], [%d2], 8;", "cp.async.ca.shared.global [%r1], [%d2], 12;",
                                  "cp.async.cg.global.shared [%d2], [%r1];", "cp.async.wait_group %r1;", "cp.async.wait_group -1;"}) {
        INFO(statement);
        REQUIRE(result_of(std::string("ret;\n") + statement + "\n") == CUDA_ERROR_ILLEGAL_INSTRUCTION);
    }
}

TEST_CASE("votes of a warp", "[cuda_driver]") {
    const Fresh fresh;
    std::vector<uint32_t> out;
    const auto voted = [&](const char *mode, const char *condition) {
        REQUIRE(result_of(std::string("mov.b32 %r2, 0;\nsetp.lt.u32 %p1, %r0, ") + condition + ";\nvote.sync." + mode +
                              ".pred %p2, %p1, -1;\n@%p2 mov.b32 %r2, 1;\nst.global.b32 [%d3], %r2;\n",
                          &out) == CUDA_SUCCESS);
        REQUIRE(out[0] == out[31]);
        return out[0] == 1;
    };
    REQUIRE((voted("any", "1") && !voted("any", "0") && voted("all", "32") && !voted("all", "31")));
    REQUIRE((voted("uni", "0") && voted("uni", "32") && !voted("uni", "5")));
    REQUIRE(result_of("setp.lt.u32 %p1, %r0, 5;\nvote.sync.ballot.b32 %r2, !%p1, -1;\nst.global.b32 [%d3], %r2;\n", &out) == CUDA_SUCCESS);
    REQUIRE(out[7] == ~31u);
    REQUIRE(result_of("setp.lt.u32 %p1, %r0, 5;\n@%p1 vote.sync.any.pred %p2, %p1, -1;\n") == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("the warp has diverged"));
}

TEST_CASE("a barrier tells all threads of a block what some of them found", "[cuda_driver]") {
    const Fresh fresh;
    std::vector<uint32_t> out;
    const auto reduced = [&](const char *mode, const char *condition) {
        REQUIRE(result_of(std::string("mov.b32 %r2, 0;\nsetp.lt.u32 %p1, %r0, ") + condition + ";\nbarrier.cta.red." + mode +
                              ".pred %p2, 0, %p1;\n@%p2 mov.b32 %r2, 1;\nst.global.b32 [%d3], %r2;\n",
                          &out, "", 48) == CUDA_SUCCESS);
        REQUIRE(out[0] == out[47]);
        return out[0] == 1;
    };
    REQUIRE((reduced("or", "1") && !reduced("or", "0") && reduced("and", "48") && !reduced("and", "47")));
    REQUIRE(result_of("setp.lt.u32 %p1, %r0, 37;\nbar.red.popc.u32 %r2, 0, %p1;\nst.global.b32 [%d3], %r2;\n", &out, "", 48) ==
            CUDA_SUCCESS);
    REQUIRE((out[0] == 37 && out[47] == 37));
    REQUIRE(result_of("bar.red.or.pred %p2, 0, %p1;\n") == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("never written"));
    REQUIRE(result_of("ret;\nbar.red.xor.pred %p2, 0, %p1;\n") == CUDA_ERROR_ILLEGAL_INSTRUCTION);
}

TEST_CASE("shared memory whose size a launch gives", "[cuda_driver]") {
    const std::string
        both = ".shared .align 4 .b8 fixed[20];\n.extern .shared .align 16 .b8 free[];\n",
        body = "mov.u32 %r2, free;\nmov.u32 %r3, fixed;\nshl.b32 %r3, %r3, 16;\nor.b32 %r2, %r2, %r3;\nst.global.b32 [%d3], %r2;\n";
    std::vector<uint32_t> out;
    {
        const Fresh fresh;
        REQUIRE(result_of(body, &out, both) == CUDA_SUCCESS);
        REQUIRE(out[0] == 32); // `fixed` is at 0
        REQUIRE(result_of(body + "st.shared.b32 [%r2+1020], %r0;\n", &out,
                          ".extern .shared .align 16 .b8 free[];\n.shared .b8 fixed[4];\n") == CUDA_ERROR_LAUNCH_FAILED);
    }
    const Fresh fresh({"CAPABILITY=90"}); // the first KB is the system's
    REQUIRE(result_of(body, &out, both) == CUDA_SUCCESS);
    REQUIRE(out[0] == (1024u + 32 | 1024u << 16));
    REQUIRE(result_of("mov.b32 %r2, 1020;\nst.shared.b32 [%r2], %r2;\n" + body, &out, both) == CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(error_says("bytes from 1024 on"));
    REQUIRE(result_of("mov.b32 %r2, 0;\nst.shared.b32 [%r2], %r2;\n") == CUDA_SUCCESS); // a kernel that declares none counts from 0
}

TEST_CASE("code for one capability alone, and the shared memory of a capability", "[cuda_driver]") {
    for (const auto &[capability, kilobytes] :
         {std::pair{"CAPABILITY=80", 163}, {"CAPABILITY=86", 99}, {"CAPABILITY=90", 227}, {"CAPABILITY=120", 99}}) {
        const Fresh fresh({capability});
        CUmodule module = nullptr;
        const bool exact = std::strcmp(capability, "CAPABILITY=90") == 0;
        REQUIRE((cuModuleLoadData(&module, module_of("ret;", "sm_90a").c_str()) == CUDA_SUCCESS) == exact);
        REQUIRE((exact || error_says("compute capability 90")));
        REQUIRE(cuModuleLoadData(&module, module_of("ret;", "sm_80").c_str()) == CUDA_SUCCESS);
        CUfunction function = nullptr;
        REQUIRE(cuModuleGetFunction(&function, module, "kernel") == CUDA_SUCCESS);
        REQUIRE(cuFuncSetAttribute(function, 8, kilobytes * 1024) == CUDA_SUCCESS);
        REQUIRE(cuFuncSetAttribute(function, 8, kilobytes * 1024 + 1) == CUDA_ERROR_INVALID_VALUE);
        int value = 0;
        REQUIRE(cuDeviceGetAttribute(&value, 97, 0) == CUDA_SUCCESS);
        REQUIRE(value == kilobytes * 1024);
    }
}

// What must be found: unknown opcodes, wrong addresses, races, threads that miss a barrier, values that never were.
#include "test_program.h"

using namespace polyhead::test;

namespace {

CUresult faulty(const std::string &body, const Grid &shape = {}, size_t words = 32) {
    const CUdeviceptr out = upload(std::vector<uint32_t>(words, 0)), in = upload(std::vector<uint32_t>(words, 0));
    return run(own_words() + body + "\nret;", out, in, shape);
}

Grid of_threads(unsigned threads, unsigned shared = 0) {
    Grid shape;
    shape.block[0] = threads;
    shape.shared = shared;
    return shape;
}

} // namespace

TEST_CASE("what the interpreter does not know does not run", "[cuda_driver]") {
    const Fresh fresh;
    for (const char *statement :
         {"frobnicate.b32 %r1, %r2;", "add.rz.f32 %r1, %r2, %r3;", "add.s32 %r1, %r0;", "add.s32 %d5, %r0, 1;",
          "ld.global.v3.b32 {%r1, %r2, %r3}, [%d0];", "shl.f32 %r1, %r0, 1;", "mov.b32 %r1, nobody;", "cvt.f32.f64 %r1, %d0;",
          "setp.ltx.s32 %p1, %r0, 1;", "mov.b32 %r1, 0d3FF0000000000000;", "ex2.f32 %r1, %r0;", "call.uni (%r1), other, (%r0);"}) {
        INFO(statement);
        // Also after a return: a launch that could reach it is refused.
        REQUIRE(faulty(std::string("ret;\n") + statement) == CUDA_ERROR_ILLEGAL_INSTRUCTION);
        REQUIRE(error_says(std::string(statement).substr(0, std::strlen(statement) - 1).c_str()));
        REQUIRE(error_says("PTX line "));
    }
    REQUIRE(faulty("add.s32 %r1, %r0, 1;") == CUDA_SUCCESS);
}

TEST_CASE("accesses outside of an allocation", "[cuda_driver]") {
    const Fresh fresh;
    REQUIRE(faulty("ld.global.b32 %r1, [%d2];", {}, 31) == CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(error_says("lane 31, reads 4 bytes"));
    REQUIRE(error_says("0 bytes behind the end of an allocation of 124 bytes"));
    REQUIRE(faulty("st.global.b32 [%d2+4], %r0;") == CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(faulty("ld.global.b32 %r1, [%d2+-4];") == CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(error_says("lane 0"));
    REQUIRE(faulty("mov.b64 %d5, 0;\nld.global.b32 %r1, [%d5];") == CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(faulty("setp.lt.u32 %p1, %r0, 31;\n@%p1 ld.global.b32 %r1, [%d2];", {}, 31) == CUDA_SUCCESS);

    // Released memory belongs to no allocation, even if another allocation follows.
    const CUdeviceptr gone = upload(std::vector<uint32_t>(32, 0));
    REQUIRE(cuMemFree_v2(gone) == CUDA_SUCCESS);
    upload(std::vector<uint32_t>(32, 0));
    REQUIRE(run("ld.global.b32 %r1, [%d0];\nret;", gone, 0) == CUDA_ERROR_ILLEGAL_ADDRESS);

    // Nor is host memory ever memory of the device.
    uint32_t host = 0;
    REQUIRE(run("ld.global.b32 %r1, [%d0];\nret;", reinterpret_cast<uintptr_t>(&host), 0) == CUDA_ERROR_ILLEGAL_ADDRESS);

    REQUIRE(faulty("mov.b32 %r1, 60;\nld.shared.b32 %r2, [%r1+4];", of_threads(1, 64)) == CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(error_says("the block has 64 bytes"));
    REQUIRE(faulty("mov.b32 %r1, 60;\nld.shared.b32 %r2, [%r1];", of_threads(1, 64)) == CUDA_SUCCESS);
    REQUIRE(faulty(".local .align 4 .b8 depot[16];\nmov.b64 %d5, depot;\nst.local.b32 [%d5+16], %r0;") == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("addresses that are not multiples of the access", "[cuda_driver]") {
    const Fresh fresh;
    REQUIRE(faulty("ld.global.b32 %r1, [%d0+2];") == CUDA_ERROR_MISALIGNED_ADDRESS);
    REQUIRE(faulty("ld.global.v2.b32 {%r1, %r2}, [%d0+4];") == CUDA_ERROR_MISALIGNED_ADDRESS);
    REQUIRE(faulty("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d0+8];") == CUDA_ERROR_MISALIGNED_ADDRESS);
    REQUIRE(faulty("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d0+16];") == CUDA_SUCCESS);
    REQUIRE(faulty("mov.b32 %r1, 0;\nst.shared.v2.b32 [%r1+4], {%r1, %r1};", of_threads(1, 64)) == CUDA_ERROR_MISALIGNED_ADDRESS);
}

TEST_CASE("registers that were never written", "[cuda_driver]") {
    const Fresh fresh;
    const std::string store = "st.global.b32 [%d2], %r1;\n";
    REQUIRE(faulty("add.s32 %r1, %r2, 1;\n" + store) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("never written"));
    // The result is not used: compilers make such code.
    REQUIRE(faulty("add.s32 %r1, %r2, 1;\n") == CUDA_SUCCESS);
    // Written by some threads, read by all.
    const std::string some = "setp.lt.u32 %p1, %r0, 31;\n@%p1 mov.b32 %r2, 1;\n";
    REQUIRE(faulty(some + "add.s32 %r1, %r2, 1;\n" + store) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(faulty(some + "add.s32 %r1, %r2, 1;\n@%p1 " + store) == CUDA_SUCCESS);
    // A selection looks at what it takes.
    REQUIRE(faulty("setp.lt.u32 %p1, %r0, 40;\nselp.b32 %r1, %r0, %r2, %p1;\n" + store) == CUDA_SUCCESS);
    REQUIRE(faulty("setp.lt.u32 %p1, %r0, 31;\nselp.b32 %r1, %r0, %r2, %p1;\n" + store) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(faulty("setp.lt.u32 %p1, %r5, 31;\nselp.b32 %r1, 1, 2, %p1;\n" + store) == CUDA_ERROR_LAUNCH_FAILED);
    // Addresses and decisions.
    REQUIRE(faulty("add.s64 %d5, %d6, 4;\nld.global.b32 %r1, [%d5];") == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(faulty("setp.lt.u32 %p1, %r5, 31;\n@%p1 bra $end;\n$end:") == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(faulty("@%p7 bra $end;\n$end:") == CUDA_ERROR_LAUNCH_FAILED);
    // A half is packed beside one that has no value, and taken out again.
    const std::string pack = "mov.b16 %h1, 7;\nmov.b32 %r2, {%h1, %h2};\n";
    REQUIRE(faulty(pack + "mov.b32 {%h3, %h4}, %r2;\ncvt.u32.u16 %r1, %h3;\n" + store) == CUDA_SUCCESS);
    REQUIRE(faulty(pack + "mov.b32 {%h3, %h4}, %r2;\ncvt.u32.u16 %r1, %h4;\n" + store) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(faulty(pack + "mov.b32 %r1, %r2;\n" + store) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(faulty(pack + "add.s32 %r2, %r3, 1;\nmov.b32 {%h3, %h4}, %r2;\ncvt.u32.u16 %r1, %h3;\n" + store) == CUDA_ERROR_LAUNCH_FAILED);
    // A shuffle hands on what the other lane has: here the lanes 0 to 7 hold a value.
    const std::string eight = "setp.lt.u32 %p1, %r0, 8;\n@%p1 mov.b32 %r2, 1;\n";
    REQUIRE(faulty(eight + "shfl.sync.idx.b32 %r1, %r2, 7, 31, -1;\n" + store) == CUDA_SUCCESS);
    REQUIRE(faulty(eight + "shfl.sync.idx.b32 %r1, %r2, 8, 31, -1;\n" + store) == CUDA_ERROR_LAUNCH_FAILED);
}

TEST_CASE("races in shared memory", "[cuda_driver]") {
    const Fresh fresh;
    const std::string own = "cvt.u32.u64 %r2, %d4;\n", other = "xor.b32 %r3, %r2, 128;\n"; // the word of the same lane in the other warp
    const std::string write = "st.shared.b32 [%r2], %r0;\n", read = "ld.shared.b32 %r4, [%r3];\n", barrier = "bar.sync 0;\n";
    const Grid two_warps = of_threads(64, 256);
    REQUIRE(faulty(own + other + write + read, two_warps) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("race in shared memory"));
    REQUIRE(faulty(own + other + write + barrier + read, two_warps, 64) == CUDA_SUCCESS);
    // Read first, written by another thread before the next barrier.
    REQUIRE(faulty(own + other + write + barrier + read + "st.shared.b32 [%r2], 5;\n", two_warps, 64) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(faulty(own + other + write + barrier + read + barrier + "st.shared.b32 [%r2], 5;\n", two_warps, 64) == CUDA_SUCCESS);
    // Inside of one warp it is one too: lanes promise no order.
    REQUIRE(faulty(own + "xor.b32 %r3, %r2, 4;\n" + write + read, of_threads(32, 128)) == CUDA_ERROR_LAUNCH_FAILED);
    // Two threads, one place: with different values a race, with the same value none.
    REQUIRE(faulty("mov.b32 %r2, 0;\nst.shared.b32 [%r2], %r0;", two_warps) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(faulty("mov.b32 %r2, 0;\nst.shared.b32 [%r2], 7;", two_warps) == CUDA_SUCCESS);
    // Neighbours of 16 bits share no place.
    REQUIRE(faulty("shl.b32 %r2, %r0, 1;\ncvt.u16.u32 %h1, %r0;\nst.shared.b16 [%r2], %h1;", two_warps) == CUDA_SUCCESS);
}

TEST_CASE("blocks that touch what another block writes", "[cuda_driver]") {
    const Fresh fresh;
    Grid two_blocks = of_threads(32);
    two_blocks.grid[0] = 2;
    const std::string own = "mov.u32 %r1, %ctaid.x;\n",
                      other = "xor.b32 %r2, %r1, 1;\nmul.wide.u32 %d5, %r2, 128;\nadd.s64 %d6, %d2, %d5;\n";
    REQUIRE(faulty(own + "st.global.b32 [%d2], %r1;", two_blocks) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("race in global memory"));
    REQUIRE(faulty(own + "st.global.b32 [%d2], %r0;", two_blocks) == CUDA_SUCCESS); // the same values
    REQUIRE(faulty(own + other + "st.global.b32 [%d6], %r1;", two_blocks, 64) == CUDA_SUCCESS);
    // The second block reads where the first has written.
    REQUIRE(faulty(own + other + "st.global.b32 [%d6], %r1;\nld.global.b32 %r3, [%d2+128];", two_blocks, 64) == CUDA_ERROR_LAUNCH_FAILED);
    // Another launch may.
    const CUdeviceptr out = upload(std::vector<uint32_t>(32, 0));
    for (const char *value : {"1", "2"}) {
        REQUIRE(run(std::string(own_words()) + "mov.b32 %r1, " + value + ";\nst.global.b32 [%d2], %r1;\nret;", out, 0) == CUDA_SUCCESS);
    }
}

TEST_CASE("threads that miss a barrier", "[cuda_driver]") {
    const Fresh fresh;
    const Grid shape = of_threads(64);
    REQUIRE(faulty("setp.lt.u32 %p1, %r0, 16;\n@%p1 bra $over;\nbar.sync 0;\n$over:", shape) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("not all threads of the warp are at the barrier: 16 of 32"));
    REQUIRE(faulty("setp.lt.u32 %p1, %r0, 32;\n@%p1 bra $over;\nbar.sync 0;\n$over:", shape) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("has ended"));
    REQUIRE(faulty("setp.lt.u32 %p1, %r0, 32;\n@%p1 bra $over;\nbar.sync 0;\nret;\n$over:\nbar.sync 0;", shape) ==
            CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("waits at another one"));
    REQUIRE(faulty("setp.lt.u32 %p1, %r0, 8;\n@%p1 ret;\nbar.sync 0;", shape) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(faulty("bar.sync 0;\nbar.sync 0;", shape) == CUDA_SUCCESS);
}

TEST_CASE("warps that have diverged where they must not", "[cuda_driver]") {
    const Fresh fresh;
    REQUIRE(faulty("setp.lt.u32 %p1, %r0, 16;\n@%p1 bra $over;\nshfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;\n$over:") ==
            CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("diverged"));
    REQUIRE(faulty("setp.lt.u32 %p1, %r0, 16;\n@%p1 bra.uni $over;\n$over:\nmov.b32 %r1, 1;") == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("uniform"));
    // What comes from a lane that has left is no value.
    const std::string half = "setp.gt.u32 %p1, %r0, 15;\n@%p1 ret;\nshfl.sync.bfly.b32 %r1, %r0, 16, 31, -1;\n";
    REQUIRE(faulty(half) == CUDA_SUCCESS);
    REQUIRE(faulty(half + "add.s32 %r2, %r1, 1;\nst.global.b32 [%d2], %r2;") == CUDA_ERROR_LAUNCH_FAILED);
}

TEST_CASE("a kernel that gives up, and one that does not end", "[cuda_driver]") {
    const Fresh fresh({"STEPS=1000"});
    REQUIRE(faulty("trap;") == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(faulty("$loop:\nbra.uni $loop;") == CUDA_ERROR_LAUNCH_TIMEOUT);
    REQUIRE(faulty("mov.b32 %r1, 1;") == CUDA_SUCCESS); // a failed launch leaves the context usable
}

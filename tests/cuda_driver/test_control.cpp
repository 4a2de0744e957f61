// Divergence, loops, barriers, shuffles, guards, predicates.
#include "test_program.h"

using namespace polyhead::test;

namespace {

std::vector<uint32_t> numbers(size_t count) {
    std::vector<uint32_t> values(count);
    for (size_t index = 0; index < count; index++) {
        values[index] = static_cast<uint32_t>(index);
    }
    return values;
}

// Runs the body, which stores %r1 of each thread at its word of the first buffer.
std::vector<uint32_t> results(const std::string &body, const Grid &shape = {}, size_t count = 32) {
    const CUdeviceptr out = upload(std::vector<uint32_t>(count, 77)), in = upload(numbers(count));
    const CUresult result = run(std::string(own_words()) + body + "st.global.b32 [%d2], %r1;\nret;", out, in, shape);
    INFO(polyhead_cuda_driver_error());
    REQUIRE(result == CUDA_SUCCESS);
    return download<uint32_t>(out, count);
}

} // namespace

TEST_CASE("both sides of a branch run and meet again", "[cuda_driver]") {
    const Fresh fresh;
    const auto out = results("setp.lt.u32 %p1, %r0, 5;\n"
                             "@%p1 bra $less;\n"
                             "mov.b32 %r1, 100;\nbra.uni $meet;\n"
                             "$less:\nmov.b32 %r1, 200;\n"
                             "$meet:\nadd.s32 %r1, %r1, %r0;\n");
    for (uint32_t lane = 0; lane < 32; lane++) {
        REQUIRE(out[lane] == (lane < 5 ? 200 : 100) + lane);
    }
    // Reconverged means: the code after the branch is executed once by all threads.
    REQUIRE(polyhead_cuda_driver_executed("add.s32") == 1);
    REQUIRE(polyhead_cuda_driver_executed_threads("add.s32") == 32);
    REQUIRE(polyhead_cuda_driver_executed("mov.b32") == 2);
}

TEST_CASE("a loop runs as often as each thread wants, nested branches included", "[cuda_driver]") {
    const Fresh fresh;
    const auto out = results("mov.b32 %r1, 0;\nmov.b32 %r2, 0;\n"
                             "$loop:\nsetp.ge.u32 %p1, %r2, %r0;\n@%p1 bra $done;\n"
                             "and.b32 %r3, %r2, 1;\nsetp.eq.s32 %p2, %r3, 0;\n@%p2 bra $even;\n"
                             "add.s32 %r1, %r1, 10;\nbra $next;\n"
                             "$even:\nadd.s32 %r1, %r1, 1;\n"
                             "$next:\nadd.s32 %r2, %r2, 1;\nbra $loop;\n"
                             "$done:\n");
    for (uint32_t lane = 0; lane < 32; lane++) {
        REQUIRE(out[lane] == (lane + 1) / 2 + lane / 2 * 10);
    }
}

TEST_CASE("threads may leave early", "[cuda_driver]") {
    const Fresh fresh;
    const auto out = results("mov.b32 %r1, 5;\nsetp.gt.u32 %p1, %r0, 9;\n@%p1 ret;\n");
    for (uint32_t lane = 0; lane < 32; lane++) {
        REQUIRE(out[lane] == (lane > 9 ? 77 : 5));
    }
}

TEST_CASE("guards and predicate logic", "[cuda_driver]") {
    const Fresh fresh;
    const auto out = results("mov.b32 %r1, 1;\nsetp.lt.u32 %p1, %r0, 8;\nsetp.lt.u32 %p2, %r0, 16;\n"
                             "not.pred %p3, %p1;\nand.pred %p4, %p3, %p2;\n"
                             "@%p4 mov.b32 %r1, 2;\n@!%p2 mov.b32 %r1, 3;\n"
                             "setp.lt.and.u32 %p5|%p6, %r0, 4, %p1;\n@%p5 add.s32 %r1, %r1, 10;\n@%p6 add.s32 %r1, %r1, 100;\n");
    for (uint32_t lane = 0; lane < 32; lane++) {
        const uint32_t base = lane >= 16 ? 3 : lane >= 8 ? 2 : 1;
        REQUIRE(out[lane] == base + (lane < 4 ? 10 : 0) + (lane >= 4 && lane < 8 ? 100 : 0));
    }
}

TEST_CASE("special registers, and a last warp that is not full", "[cuda_driver]") {
    const Fresh fresh;
    Grid shape;
    shape.grid[0] = 2;
    shape.grid[1] = 3;
    shape.block[0] = 5;
    shape.block[1] = 8; // 40 threads: two warps
    const CUdeviceptr out = upload(std::vector<uint32_t>(240, 0));
    REQUIRE(run("mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ctaid.y;\nmov.u32 %r3, %nctaid.x;\nmov.u32 %r4, %tid.y;\nmov.u32 %r5, %ntid.x;\n"
                "mov.u32 %r6, %ntid.y;\nmad.lo.s32 %r7, %r2, %r3, %r1;\nmad.lo.s32 %r7, %r7, %r6, %r4;\nmad.lo.s32 %r7, %r7, %r5, %r0;\n"
                "mul.wide.u32 %d2, %r7, 4;\nadd.s64 %d2, %d0, %d2;\nmov.u32 %r8, %laneid;\nst.global.b32 [%d2], %r8;\nret;",
                out, 0, shape) == CUDA_SUCCESS);
    const auto values = download<uint32_t>(out, 240);
    for (uint32_t index = 0; index < 240; index++) {
        REQUIRE(values[index] == index % 40 % 32);
    }
    REQUIRE(polyhead_cuda_driver_executed("st.global") == 12);
    REQUIRE(polyhead_cuda_driver_executed_threads("st") == 240);
}

TEST_CASE("a barrier shows all threads of a block what the others wrote", "[cuda_driver]") {
    const Fresh fresh;
    Grid shape;
    shape.block[0] = 128;
    shape.shared = 512;
    const auto out = results("cvt.u32.u64 %r2, %d4;\nst.shared.b32 [%r2], %r0;\nbar.sync 0;\n"
                             "sub.s32 %r3, 508, %r2;\nld.shared.b32 %r1, [%r3];\n",
                             shape, 128);
    for (uint32_t thread = 0; thread < 128; thread++) {
        REQUIRE(out[thread] == 127 - thread);
    }
}

TEST_CASE("shuffles", "[cuda_driver]") {
    const Fresh fresh;
    const auto line = [](const std::string &mode, const std::string &by, const std::string &control) {
        return results("mov.b32 %r2, %r0;\nmov.b32 %r5, -1;\nshfl.sync." + mode + ".b32 %r1|%p1, %r2, " + by + ", " + control +
                       ", -1;\n@!%p1 or.b32 %r1, %r1, 256;\n");
    };
    const auto bfly = line("bfly", "5", "31"), down = line("down", "3", "31"), up = line("up", "3", "0"), idx = line("idx", "7", "31");
    const auto segment = line("idx", "9", "7199"), segment_down = line("down", "1", "7199"); // segments of 4 lanes
    for (uint32_t lane = 0; lane < 32; lane++) {
        REQUIRE(bfly[lane] == (lane ^ 5));
        REQUIRE(down[lane] == (lane + 3 < 32 ? lane + 3 : lane + 256));
        REQUIRE(up[lane] == (lane >= 3 ? lane - 3 : lane + 256));
        REQUIRE(idx[lane] == 7);
        REQUIRE(segment[lane] == (lane & 28) + 1);
        REQUIRE(segment_down[lane] == (lane % 4 < 3 ? lane + 1 : lane + 256));
    }
}

// Barriers in shared memory: phases, what a thread knows after them, and what is found where one is missing.
#include "test_program.h"

using namespace polyhead::test;

namespace {

constexpr unsigned barrier_threads = 96;

// Two barriers at 0 and 8 that expect all threads; each thread has a word at 64 + 4 * thread, and its right neighbour's warp's in %r4.
std::string prologue(unsigned expected = barrier_threads) {
    return "mov.u32 %r48, memory;\nsetp.eq.b32 %p0, %r0, 0;\n@%p0 mbarrier.init.shared::cta.b64 [%r48], " + std::to_string(expected) +
           ";\n@%p0 mbarrier.init.shared::cta.b64 [%r48+8], " + std::to_string(expected) +
           ";\nbar.sync 0;\nmul.lo.u32 %r3, %r0, 4;\nadd.s32 %r3, %r3, %r48;\nadd.s32 %r4, %r0, 32;\nrem.u32 %r4, %r4, 96;\n"
           "mul.lo.u32 %r4, %r4, 4;\nadd.s32 %r4, %r4, %r48;\nmul.wide.u32 %d3, %r0, 4;\nadd.s64 %d3, %d3, %d0;\n";
}
const char *const write_own = "st.shared.b32 [%r3+64], %r0;\n", *const read_other = "ld.shared.b32 %r5, [%r4+64];\n",
                  *const arrival = "mbarrier.arrive.shared::cta.b64 _, [%r48];\n", *const keep = "st.global.b32 [%d3], %r5;\n";
std::string wait_for(int parity) {
    static int number = 0;
    const std::string label = "AGAIN" + std::to_string(number++);
    return label + ":\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%r48], " + std::to_string(parity) + ";\n@!%p1 bra.uni " + label +
           ";\n";
}

CUresult barrier_result(const std::string &body, std::vector<uint32_t> *out = nullptr, const std::string &before = prologue()) {
    const CUdeviceptr words = upload(std::vector<uint32_t>(barrier_threads, 0));
    const std::string ptx = module_of(before + body + "ret;", "sm_90", ".extern .shared .align 16 .b8 memory[];\n", "8.0");
    return run_block(ptx, barrier_threads, 1024, words, words, barrier_threads, out);
}

} // namespace

TEST_CASE("mbarrier: who waits for a phase knows what others did before they arrived", "[cuda_driver]") {
    const Fresh fresh({"CAPABILITY=90"});
    std::vector<uint32_t> out;
    REQUIRE(barrier_result(write_own + std::string(arrival) + wait_for(0) + read_other + keep, &out) == CUDA_SUCCESS);
    REQUIRE((out[0] == 32 && out[95] == 31));
    // A second phase: places that were read before it may be written after it.
    const std::string first = write_own + std::string(arrival) + wait_for(0) + read_other + keep,
                      next = "add.s32 %r0, %r0, 100;\n" + std::string(write_own);
    REQUIRE(barrier_result(first + arrival + wait_for(1) + next + arrival + wait_for(0) + read_other + keep, &out) == CUDA_SUCCESS);
    REQUIRE((out[0] == 132 && out[95] == 131));

    const char *const race = "race in shared memory";
    REQUIRE(barrier_result(write_own + std::string(arrival) + read_other + keep) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says(race));
    REQUIRE(barrier_result(arrival + std::string(write_own) + wait_for(0) + read_other + keep) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says(race));
    // Places that others still read.
    REQUIRE(barrier_result(first + next + arrival + wait_for(1)) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says(race));
    REQUIRE(barrier_result(write_own + std::string(arrival) + wait_for(0) + arrival + read_other + keep + wait_for(1) + next) ==
            CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says(race));
    // The phase of the other parity has ended already: nobody waits.
    REQUIRE(barrier_result(write_own + std::string(arrival) + wait_for(1) + read_other + keep) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says(race));
}

TEST_CASE("mbarrier: what one thread of a warp does for all says nothing of the others", "[cuda_driver]") {
    const Fresh fresh({"CAPABILITY=90"});
    const std::string elected = "and.b32 %r9, %r0, 31;\nsetp.eq.b32 %p3, %r9, 0;\n@%p3 " + std::string(arrival);
    REQUIRE(barrier_result(write_own + elected + wait_for(0) + read_other + keep, nullptr, prologue(3)) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(error_says("race in shared memory"));
    REQUIRE(barrier_result(elected + wait_for(0), nullptr, prologue(3)) == CUDA_SUCCESS);
}

TEST_CASE("mbarrier: what never ends, and what is no barrier", "[cuda_driver]") {
    const Fresh fresh({"CAPABILITY=90"});
    const auto faulty = [](const std::string &body, const char *words, const std::string &before = prologue()) {
        REQUIRE(barrier_result(body, nullptr, before) == CUDA_ERROR_LAUNCH_FAILED);
        REQUIRE(error_says(words));
    };
    faulty(wait_for(0), "wait for each other");
    faulty(arrival + wait_for(0), "wait for each other", prologue(97));
    faulty(arrival + wait_for(0) + wait_for(1), "wait for each other");
    faulty(arrival + wait_for(2), "expected 0 or 1");
    faulty("ld.shared.b32 %r5, [%r48+4];\n", "where a barrier is");
    faulty("add.s32 %r48, %r48, 16;\n" + std::string(arrival), "no barrier was made");
    std::string early = prologue();
    early.erase(early.find("bar.sync 0;\n"), 12);
    faulty("setp.eq.b32 %p0, %r0, 1;\n@%p0 " + std::string(arrival), "no barrier of the block is between", early);
    faulty("", "expects 0 arrivals", prologue(0));
    REQUIRE(barrier_result("add.s32 %r48, %r48, 4;\n" + std::string(arrival)) == CUDA_ERROR_MISALIGNED_ADDRESS);
    REQUIRE(barrier_result("add.s32 %r48, %r48, 1024;\n" + std::string(arrival)) == CUDA_ERROR_ILLEGAL_ADDRESS);
    for (const char *statement : {"mbarrier.arrive.shared::cta.b64 %d5, [%r48];", "mbarrier.inval.shared::cta.b64 [%r48];",
                                  "mbarrier.try_wait.shared::cta.b64 %p1, [%r48], %d5;", "fence.proxy.alias;"}) {
        INFO(statement);
        REQUIRE(barrier_result("ret;\n" + std::string(statement) + "\n") == CUDA_ERROR_ILLEGAL_INSTRUCTION);
    }
}

// Every variant of the table gives the same bits with 1, 2 and 5 threads, alone and among seven, with and without padding.
#include "kernel_table.h"

#include "support/amx_emulator.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/environment.h"
#include "support/problems.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("same bits: every variant, whatever threads, neighbours and padding") {
    const AmxEmulator emulator;
    for (const Kernel *kernel : kernel_table) {
        for (const polyhead_kernel &forced : forced_variants(*kernel)) {
            const KernelSubject subject(forced, 31);
            for (uint64_t seed = 1; seed <= (test_all() ? 6u : 2u); seed++) {
                Shape shape = same_bits_shape(call_problem(forced), seed);
                if (!serves(forced, shape.seq_len_q) && forced.problem.seq_len_q == 0) {
                    shape.seq_len_q = 1 + static_cast<int64_t>(seed) % 4; // a variant for few queries
                }
                if (serves(forced, shape.seq_len_q)) {
                    CHECK(check_same_bits(subject.subject(), shape) == "");
                }
            }
        }
    }
}

// Every attention kernel of the table takes packed tokens: each sequence has the bits of a call with this sequence alone.
#include "kernel_table.h"

#include "instruments/calls/problems.h"
#include "instruments/emulators/amx/amx_emulator.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/environment.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("packed tokens: every kernel gives each sequence the bits that it has alone") {
    const AmxEmulator emulator;
    for (const Kernel *kernel : kernel_table) {
        const Problem problem = call_problem(*kernel);
        if (!takes_packed_tokens(problem) || !kernel->supported()) {
            continue;
        }
        const KernelSubject subject(*kernel, 51);
        const int32_t most = kernel->variants[kernel->num_variants - 1].max_seq_len_q;
        for (uint64_t seed = 1; seed <= (test_all() ? 4u : 2u); seed++) {
            CHECK(check_ragged(subject.subject(), seed, most > 0 ? most : 70) == "");
        }
    }
}

// Every variant of the table gives the same bits with 1, 2 and 5 threads, alone and among seven, with and without padding.
#include "kernel_table.h"

#include "instruments/calls/problems.h"
#include "instruments/emulators/amx/amx_emulator.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/environment.h"
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

TEST_CASE("same bits: rows of a linear layer, whichever variant their number takes") {
    const AmxEmulator emulator;
    for (const Kernel *kernel : kernel_table) {
        const Problem problem = call_problem(*kernel);
        if (!is_linear(problem) || problem.seq_len_q != 0 || !kernel->supported()) {
            continue;
        }
        const KernelSubject subject(*kernel, 37);
        const Shape shape = plain_shape(problem, 1, 9, 1, 38);
        const int64_t all = shape.seq_len_q;
        Inputs inputs(problem, shape);
        REQUIRE(subject.subject().run(inputs.args()).code == POLYHEAD_OK);
        const std::vector<float> expected = inputs.out();
        for (int64_t rows = 1; rows < all; rows++) {
            CAPTURE(kernel->name, rows);
            polyhead_args args = inputs.args();
            args.query.shape[0] = args.out.shape[0] = rows;
            inputs.gaps_untouched(); // refills the outputs
            CHECK(subject.subject().run(args).code == POLYHEAD_OK);
            const std::vector<float> found = Inputs::read(args.out);
            CHECK(same_bits(found, {expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(found.size())}));
        }
    }
}

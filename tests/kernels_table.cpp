// Every kernel of the table against the float64 reference, over awkward shapes and hostile inputs; each variant forced in turn.
#include <cstdio>

#include "kernel_table.h"

#include "instruments/calls/not_run.h"
#include "instruments/calls/problems.h"
#include "instruments/emulators/amx/amx_emulator.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/environment.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// One seed per kernel, so that kernels do not all see the same shapes.
uint64_t seed_of(const polyhead_kernel &kernel) {
    return text_seed(kernel.name);
}

void check_shapes(const polyhead_kernel &kernel, uint64_t seed, int count) {
    const KernelSubject subject(kernel, seed, seed % 2 == 1);
    INFO("pack: " << subject.pack_status().message);
    REQUIRE(subject.pack_status().code == POLYHEAD_OK);
    for (Shape &shape : awkward_shapes(call_problem(kernel), seed, count)) {
        if (kernel.num_variants == 1 && !serves(kernel, shape.seq_len_q)) {
            continue;
        }
        CHECK(check_answer(subject.subject(), shape) == "");
    }
}

} // namespace

TEST_CASE("kernels: every kernel is right over awkward shapes") {
    const AmxEmulator emulator;
    for (const Kernel *kernel : kernel_table) {
        if (!kernel->supported()) {
            note_not_run(std::string("kernel ") + kernel->name, "no variant for this machine");
            continue;
        }
        note_run();
        check_shapes(*kernel, seed_of(*kernel), test_all() ? 16 : 6);
    }
}

TEST_CASE("kernels: every variant that this machine can run is right") {
    const AmxEmulator emulator;
    for (const Kernel *kernel : kernel_table) {
        uint64_t seed = seed_of(*kernel);
        for (const polyhead_kernel &forced : forced_variants(*kernel)) {
            seed += 1000;
            check_shapes(forced, seed, test_all() ? 16 : 9);
        }
    }
}

TEST_CASE("kernels: every variant decodes one to sixteen queries") {
    const AmxEmulator emulator;
    for (const Kernel *kernel : kernel_table) {
        const Problem &p = kernel->problem;
        if (is_linear(p) || p.seq_len_q != 0 || (is_mha(p) && p.cross == 0 && p.cache == 0)) {
            continue;
        }
        for (const polyhead_kernel &forced : forced_variants(*kernel)) {
            const KernelSubject subject(forced, seed_of(*kernel));
            for (int64_t rows : {1, 2, 3, 5, 8, 13, 16}) {
                Shape shape = plain_shape(p, 2, rows, 517, static_cast<uint64_t>(rows));
                if (p.kv_lengths != 0 || p.cache != 0) {
                    shape.lengths.assign(static_cast<size_t>(shape.batch), static_cast<int32_t>(shape.seq_len_kv / 2));
                    shape.lengths[0] = static_cast<int32_t>(shape.seq_len_kv);
                    shape.poison = true;
                }
                if (serves(forced, rows)) {
                    CHECK(check_answer(subject.subject(), shape) == "");
                }
            }
        }
    }
}

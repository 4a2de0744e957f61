// Every variant of the table with all tensors against unmapped pages: after the last element, then before the first.
// An access outside ends the program with SIGSEGV; the kernel, variant and shape are in the message of the failed test.
#include "kernel_table.h"

#include "instruments/calls/problems.h"
#include "instruments/emulators/amx/amx_emulator.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/environment.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

std::vector<Shape> page_end_shapes(const polyhead_kernel &kernel) {
    static const int64_t lengths[][2] = {{1, 1}, {1, 97}, {5, 3}, {16, 64}, {17, 33}, {63, 129}, {130, 1}};
    std::vector<Shape> shapes;
    for (const auto &pair : lengths) {
        for (Layout layout : {Layout::bhsd, Layout::bshd}) {
            for (Place place : {Place::at_end, Place::at_begin}) {
                Shape s = plain_shape(call_problem(kernel), 2, pair[0], pair[1], 77);
                s.query = s.key = s.value = s.out = layout;
                s.place = place;
                Random random(static_cast<uint64_t>(shapes.size()));
                s.extras = random_extras(call_problem(kernel), s.seq_len_q, s.seq_len_kv, random);
                s.extras.left_out &= leave_out_positions_q | leave_out_positions_kv; // with as many tensors as there may be
                if (kernel.problem.kv_lengths != 0 || kernel.problem.cache != 0) {
                    s.lengths.assign(static_cast<size_t>(s.batch), static_cast<int32_t>(s.seq_len_kv));
                    s.lengths[0] /= 2;
                    s.poison = true;
                }
                shapes.push_back(s);
            }
        }
    }
    return shapes;
}

} // namespace

TEST_CASE("page end: no variant reads or writes outside of its tensors") {
    const AmxEmulator emulator;
    // A run with limited CPU features takes every third shape, and begins with another one for each variant.
    const uint64_t step = test_third() ? 3 : 1;
    uint64_t number = text_seed(sweep_seed_text());
    for (const Kernel *kernel : kernel_table) {
        for (const polyhead_kernel &forced : forced_variants(*kernel)) {
            const KernelSubject subject(forced, 21);
            for (const Shape &shape : page_end_shapes(forced)) {
                if (number++ % step == 0 && serves(forced, shape.seq_len_q)) {
                    INFO(reproduce(subject.subject(), shape));
                    CHECK(check_answer(subject.subject(), shape, nullptr, 1e6) == "");
                }
            }
        }
    }
}

// Integers in the caller's memory that another writer changes while a kernel of the table runs: no access leaves the tensors, all of which
// lie against unmapped pages. What is computed is undefined then.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "kernel_table.h"

#include "instruments/calls/call_tensors.h"
#include "instruments/calls/layouts.h"
#include "instruments/calls/not_run.h"
#include "instruments/calls/problems.h"
#include "instruments/emulators/amx/amx_emulator.h"
#include "support/catch.h"
#include "support/changing_memory.h"
#include "support/check.h"
#include "support/environment.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

Shape full_shape(const polyhead_kernel &kernel, Place place, int64_t seq_len_q) {
    const Problem p = call_problem(kernel);
    Shape s = plain_shape(p, 2, seq_len_q, 50, 5);
    s.place = place;
    Random random(11);
    s.extras = random_extras(p, s.seq_len_q, s.seq_len_kv, random);
    s.extras.left_out = 0;
    if (p.kv_lengths != 0 || p.cache != 0) {
        const auto all = static_cast<int32_t>(p.cache != 0 ? s.seq_len_kv - s.seq_len_q : s.seq_len_kv);
        s.lengths = lengths_within(s, {all, all / 2});
    }
    return fitting(s, kernel);
}

std::vector<int32_t> elements_of(const polyhead_tensor &t) {
    std::vector<int32_t> elements;
    for_each_offset(t, [&](int64_t offset, int64_t, int64_t, int64_t) {
        for (int64_t i = 0; i < t.shape[t.rank - 1]; i++) {
            elements.push_back(static_cast<const int32_t *>(t.data)[offset + i * t.stride[t.rank - 1]]);
        }
    });
    return elements;
}

// Runs the call with the elements of one of its tensors changed before some of their reads. Returns how many reads there were.
int change(const KernelSubject &subject, polyhead_args args, polyhead_tensor polyhead_args::*tensor) {
    polyhead_tensor &t = args.*tensor;
    ChangingMemory memory(elements_of(t));
    t.data = memory.data();
    t.offset = 0;
    for (int32_t dim = t.rank - 1, step = 1; dim >= 0; dim--) {
        t.stride[dim] = step;
        step *= static_cast<int32_t>(t.shape[dim]);
    }
    const auto call = [&] { subject.subject().run(args); };
    const int reads = memory.change_at(-1, 0, true, call);
    for (const int part : {0, 1, 2, 3, 4}) { // the first ones are those of the checks
        const int32_t value = part % 2 == 0 ? std::numeric_limits<int32_t>::max() / 2 : -100000;
        memory.change_at(std::min(reads * part / 4 + part, reads - 1), value, part != 3, call);
    }
    return reads;
}

} // namespace

TEST_CASE("changing integers: a kernel stays inside of its tensors") {
    if (!ChangingMemory::supported()) {
        return note_not_run("changing integers", "reads are stopped one by one on x86-64 Linux alone");
    }
    const AmxEmulator emulator;
    polyhead_set_num_threads(1); // threads are stopped one by one
    int changed = 0;
    for (const Kernel *kernel : kernel_table) {
        for (const polyhead_kernel &forced : forced_variants(*kernel)) {
            const KernelSubject subject(forced, 21);
            for (const Place place : {Place::at_end, Place::at_begin}) {
                const Shape shape = full_shape(forced, place, serves(forced, 3) ? 3 : 40);
                if (!serves(forced, shape.seq_len_q)) {
                    continue;
                }
                Inputs inputs(call_problem(forced), shape);
                for (const CallTensor &t : inputs_of(forced.problem.op)) {
                    const polyhead_tensor &tensor = inputs.args().*t.tensor;
                    if (tensor.dtype == POLYHEAD_I32 && tensor.rank > 0) {
                        INFO(reproduce(subject.subject(), shape) << ", " << t.name);
                        CHECK(change(subject, subject.prepared(inputs.args()), t.tensor) > 0);
                        CHECK((forced.problem.cache != 0 || inputs.gaps_untouched())); // new keys may go to any row of the cache
                        changed++;
                    }
                }
            }
        }
    }
    CHECK(changed > 20);
    polyhead_set_num_threads(0);
}

// Every kernel of the table refuses wrong arguments with the right code and leaves its outputs untouched.
#include "kernel_table.h"

#include "instruments/calls/not_run.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("refusals: every kernel leaves its outputs untouched") {
    for (const Kernel *kernel : kernel_table) {
        if (!kernel->supported()) {
            note_not_run(std::string("kernel ") + kernel->name, "no variant for this machine");
            continue;
        }
        note_run();
        const KernelSubject subject(*kernel, 41);
        CHECK(check_refusals(subject.subject(), plain_shape(kernel->problem, 2, 9, 12, 42)) == "");
    }
}

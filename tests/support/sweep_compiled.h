// What sweeps over kernels that are compiled by the test share.
#ifndef POLYHEAD_TESTS_SWEEP_COMPILED_H
#define POLYHEAD_TESTS_SWEEP_COMPILED_H

#include <string>

#include "instruments/calls/compiled_kernel.h"

#include "instruments/calls/not_run.h"
#include "sweep.h"

namespace polyhead::test {

// Compiles number `number` of a sweep for this target and visits it, unless this machine cannot run it, which is counted.
template <class Visit>
void compile_in_sweep(const std::string &name, int number, const Problem &p, const std::string &target, Visit visit) {
    if (left_to_all(target)) {
        return;
    }
    const std::string line = generate_line(p) + " --target " + target;
    INFO(line);
    const CompiledKernel compiled(p, {target, "", name + "_" + std::to_string(number)});
    REQUIRE(compiled.error() == "");
    if (!compiled.kernel().supported()) {
        note_not_run("kernel of " + line, "no variant for this machine");
        return;
    }
    note_run();
    visit(compiled, line);
}

// Every variant gives the same bits. Returns how many shapes were compared.
inline int check_same_bits_of_variants(const CompiledKernel &compiled, uint64_t seed, Random &random) {
    const Problem &p = call_problem(compiled.kernel());
    int shapes = 0;
    for (const polyhead_kernel &forced : forced_variants(compiled.kernel())) {
        KernelSubject one(forced, seed);
        Shape shape = same_bits_shape(p, seed);
        if (p.seq_len_q == 0 && !serves(forced, shape.seq_len_q)) {
            shape.seq_len_q = 1 + random.below(4);
        }
        if (serves(forced, shape.seq_len_q)) {
            CHECK(check_same_bits(one.subject(), shape) == "");
            shapes++;
        }
    }
    return shapes;
}

} // namespace polyhead::test
#endif

// Parallel loops of calls that may be small.
#pragma once

#include <Halide.h>

namespace polyhead::gen {

constexpr int most_serial_entries = 1 << 14; // of a call that one thread makes: a parallel loop costs some microseconds

// Runs the loop `task` of a stage, of so many iterations, in parallel, or all of it as one task where a call has few entries. Both are one
// loop: in a second one for small calls, which needs no tasks, LLVM may fuse other products and add up in another order, and neighbours in
// the batch would change the bits of a row.
template <class Loop>
void parallel_tasks(Halide::Stage stage, const Loop &task, const Halide::Expr &iterations, const Halide::Expr &entries) {
    const Loop tasks("tasks");
    const Halide::Expr size = Halide::select(entries >= most_serial_entries, 1, Halide::max(iterations, 1));
    stage.split(task, tasks, task, size, Halide::TailStrategy::GuardWithIf).parallel(tasks).never_partition(task);
}

} // namespace polyhead::gen

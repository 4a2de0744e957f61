// CPU schedule of 16-bit tensors as floats.
//
//   parallel (batch, head, 64 rows)
//     for rows: vectors along the row
#include "schedules.h"

#include <algorithm>

#include "../generators/widened.h"
#include "parallel_tasks.h"

namespace polyhead::gen {

constexpr int rows_of_floats = 64;

void schedule_widened(WidenedTensor &s, const Machine &machine) {
    Halide::Var block("block"), row("row"), task("task");
    s.floats.compute_root()
        .bound(s.d, 0, s.width)
        .split(s.row, block, row, rows_of_floats, Halide::TailStrategy::GuardWithIf)
        .fuse(block, s.outer, task)
        .fuse(task, s.b, task)
        .vectorize(s.d, std::min(machine.lanes, s.width), Halide::TailStrategy::GuardWithIf);
    s.floats.specialize(s.count >= most_serial_entries).parallel(task);
}

} // namespace polyhead::gen

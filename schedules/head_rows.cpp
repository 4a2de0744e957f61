// Schedules of rows of heads that are written to another place: one store for each entry, in vectors along the head.
#include "schedules.h"

#include <algorithm>

#include "../generators/layer_cache.h"
#include "parallel_tasks.h"

namespace polyhead::gen {

using Halide::RVar;
using Halide::Stage;
using Halide::TailStrategy;

namespace {

constexpr size_t rank_of_rows = 3; // (n, t, b)
constexpr int head_rows_of_task = 16;

void at_root(HeadRows &r) {
    if (!r.is_output) {
        r.rows.compute_root().bound(r.d, 0, r.head_dim);
    }
}

// Calls schedule(stage, entries, tokens, heads, batch) for the stages of the rows: every entry has a place of its own. Both parts of a
// rotated pair are made together.
template <class Schedule> void for_each_stage(HeadRows &r, const Schedule &schedule) {
    int update = 0;
    if (r.plain.defined()) {
        schedule(r.rows.update(update++).allow_race_conditions(), r.head_dim - r.rotary_dim, r.plain[0], r.plain[1], r.plain[2],
                 r.plain[3]);
    }
    if (r.rotated.defined()) {
        Stage stage = r.rows.update(update).allow_race_conditions().unroll(r.rotated[0]);
        schedule(stage, r.rotary_dim / 2, r.rotated[1], r.rotated[2], r.rotated[3], r.rotated[4]);
    }
}

} // namespace

void schedule_head_rows(HeadRows &r, const Machine &machine) {
    at_root(r);
    for_each_stage(r, [&](Stage stage, int count, const RVar &entries, const RVar &tokens, const RVar &heads, const RVar &batch) {
        const RVar task("task");
        stage.vectorize(entries, std::min(machine.lanes, count), TailStrategy::GuardWithIf).fuse(heads, batch, task);
        if (r.computed) {
            parallel_tasks(stage, task, heads.extent() * batch.extent(), r.count);
        } else { // two loops copy the same bits
            stage.specialize(r.count >= most_serial_entries).parallel(task);
        }
        if (r.norm) {
            schedule_head_norm_at(*r.norm, r.rows, tokens, machine);
        }
    });
}

void schedule_copied_out(Halide::Func out, int columns, const Machine &machine) {
    const std::vector<Halide::Var> vars = out.args();
    out.vectorize(vars[0], std::min(machine.lanes, columns), TailStrategy::GuardWithIf);
}

void schedule_along_rows(Halide::Func func, const Machine &machine) {
    const std::vector<Halide::Var> vars = func.args();
    if (vars.size() > 2) {
        func.vectorize(vars[0], machine.lanes, TailStrategy::GuardWithIf);
    }
    func.parallel(vars.back());
    for (int i = 0; i < func.num_update_definitions(); i++) {
        func.update(i).parallel(vars.back());
    }
}

void schedule_rows_of_tasks(Halide::Func func, const Machine &machine) {
    const std::vector<Halide::Var> vars = func.args();
    const Halide::Var task("task");
    func.vectorize(vars[0], machine.lanes, TailStrategy::GuardWithIf);
    const int each = vars.size() > rank_of_rows ? 1 : head_rows_of_task; // a head has many rows
    func.fuse(vars[vars.size() - 2], vars.back(), task).parallel(task, each, TailStrategy::GuardWithIf);
}

void schedule_head_rows_gpu(HeadRows &r) {
    if (r.norm) {
        schedule_head_norm_gpu(*r.norm);
    }
    at_root(r);
    // Nothing is left of this loop, but Halide 21 takes a definition outside of device loops for a use on the host.
    r.rows.gpu_blocks(r.row, r.head, r.outermost).gpu_threads(r.d);
    for_each_stage(r, [&](Stage stage, int, const RVar &entries, const RVar &tokens, const RVar &heads, const RVar &batch) {
        stage.gpu_blocks(tokens, heads, batch).gpu_threads(entries);
    });
}

} // namespace polyhead::gen

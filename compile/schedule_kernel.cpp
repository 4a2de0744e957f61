// The schedule of a whole kernel: its frame's, and what is the same for every frame.
#include "schedule_kernel.h"

#include "../schedules/schedules.h"
#include "frames/frame_builder.h"

namespace polyhead::gen {

using Halide::Func;

namespace {

void schedule_gradients(KernelStages *k, const Tiling &tiling, const Machine &machine) {
    if (k->gradients) {
        schedule_key_lanes(*k->gradients, machine);
    }
    for (PairSums &s : k->pair_sums) {
        schedule_pair_sums(s, machine);
    }
    for (const Func &f : k->small_gradients) {
        schedule_along_rows(f, machine);
    }
    for (LinearGradientsStages &s : k->linear_gradients) {
        schedule_linear_gradients(s, tiling, machine);
    }
    if (k->gate_gradient.defined()) {
        k->gate_gradient.compute_root();
        schedule_rows_of_tasks(k->gate_gradient, machine);
    }
    for (RowMarks &m : k->marks) {
        schedule_row_marks(m, machine);
    }
    for (const Func &f : k->sums_of_rows) {
        schedule_rows_of_tasks(f, machine);
    }
}

} // namespace

void schedule_kernel(KernelStages *k, const Frame &frame, const Tiling &tiling, const Machine &machine) {
    if (k->attention && !builder_of(frame).schedule(k, tiling, machine)) {
        return schedule_nothing(k);
    }
    schedule_gradients(k, tiling, machine);
    for (WidenedTensor &s : k->widened) {
        schedule_widened(s, machine);
    }
    for (HeadProjection &p : k->projections) {
        machine.gpu() ? schedule_projection_gpu(p, machine) : schedule_projection(p, tiling, machine);
    }
    for (HeadNorm &n : k->norms) {
        machine.gpu() ? schedule_head_norm_gpu(n) : schedule_head_norm(n, machine);
    }
    for (HeadRows &r : k->head_rows) {
        machine.gpu() ? schedule_head_rows_gpu(r) : schedule_head_rows(r, machine);
    }
    for (ScoreOutputStages &s : k->scores) {
        machine.gpu() ? schedule_score_output_gpu(s) : schedule_score_output(s, tiling, machine);
    }
    if (k->has_linear) {
        machine.gpu() ? schedule_linear_gpu(k->linear, k->linear_out, machine) : schedule_linear(k->linear, k->linear_out, tiling, machine);
    }
    if (k->copied_out.defined()) {
        k->linear_out.func.compute_root().bound(k->linear_out.m, 0, k->linear.num_rows);
        schedule_copied_out(k->copied_out, k->linear_out.columns, machine);
    }
    for (const Func &f : k->kept_heads) {
        schedule_rows_of_tasks(f, machine);
    }
}

void schedule_nothing(KernelStages *k) {
    std::vector<Func> funcs;
    const auto add = [&funcs](const std::vector<Func> &stages) { funcs.insert(funcs.end(), stages.begin(), stages.end()); };
    for (const WidenedTensor &s : k->widened) {
        funcs.push_back(s.floats);
    }
    for (const HeadProjection &p : k->projections) {
        add(p.linear.funcs());
        funcs.push_back(p.heads);
    }
    for (const HeadNorm &n : k->norms) {
        add(n.funcs());
    }
    for (const HeadRows &r : k->head_rows) {
        add(r.norm ? r.norm->funcs() : std::vector<Func>());
        add(r.is_output ? std::vector<Func>() : std::vector<Func>{r.rows});
    }
    add(k->attention ? k->attention->funcs() : std::vector<Func>());
    add(k->gradients ? k->gradients->funcs() : std::vector<Func>());
    for (const PairSums &s : k->pair_sums) {
        add(s.funcs());
    }
    for (const RowMarks &m : k->marks) {
        funcs.push_back(m.marks);
    }
    for (const LinearGradientsStages &s : k->linear_gradients) {
        add(s.funcs());
    }
    for (const ScoreOutputStages &s : k->scores) {
        add(s.funcs());
    }
    add(k->has_linear ? k->linear.funcs() : std::vector<Func>());
    if (k->attention_out.func.defined() && (k->has_linear || k->copy.defined())) {
        funcs.push_back(k->attention_out.func);
    }
    if (k->copied_out.defined()) {
        funcs.push_back(k->linear_out.func);
    }
    if (k->gate_gradient.defined()) {
        funcs.push_back(k->gate_gradient);
    }
    for (Func &f : funcs) {
        f.compute_root();
    }
}

} // namespace polyhead::gen

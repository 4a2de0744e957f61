// The one switch over frames: stages made and scheduled.
#include "apply.h"

#include "head_lanes_cpu.h"
#include "linear_gpu.h"
#include "query_lanes_cpu.h"
#include "rows_gpu.h"
#include "score_output_cpu.h"
#include "score_output_gpu.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;

namespace {

// Entries of head_dim side by side in the frame "head lanes": the most lanes that divide both head dims.
int head_lanes_of(const Problem &p, const Machine &machine) {
    int lanes = machine.lanes;
    while (lanes > 1 && (p.head_dim % lanes != 0 || p.head_dim_v % lanes != 0)) {
        lanes /= 2;
    }
    return lanes;
}

} // namespace

Numerics numerics_of(const Machine &machine) {
    return machine.api == POLYHEAD_CUDA ? cuda_numerics() : machine.api == POLYHEAD_OPENCL ? opencl_numerics() : portable_numerics();
}

bool frame_serves(const std::string &frame, const Problem &problem, const Machine &machine) {
    if (frame == "linear") {
        return problem.op == POLYHEAD_LINEAR;
    }
    if (frame == "head_lanes") {
        return !machine.gpu() && problem.op == POLYHEAD_SDPA && head_lanes_of(problem, machine) >= 4;
    }
    const bool attends = problem.op != POLYHEAD_LINEAR;
    if (frame == "plain") {
        return !machine.gpu() && attends;
    }
    if (frame == "thread_rows") {
        return machine.gpu() && attends && thread_rows_fit(problem, machine);
    }
    return frame == (machine.gpu() ? "block_tiles" : "query_lanes") && attends;
}

AttentionStages make_attention(const AttentionFormulas &formulas, const std::string &frame, const Tiling &t, const Machine &machine) {
    AttentionStages s;
    s.frame = frame;
    if (frame == "head_lanes") {
        const HeadLanesBlocking blocking{head_lanes_of(formulas.problem(), machine), t.row_tile, t.split_len, t.key_unroll};
        s.head_lanes = std::make_shared<HeadLanesStages>(head_lanes(formulas, blocking));
    } else if (frame == "query_lanes") {
        const QueryLanesBlocking blocking{t.q_tile, t.kv_tile, t.key_panel, t.value_panel, t.merge_group, 4 * machine.lanes};
        s.query_lanes = std::make_shared<QueryLanesStages>(query_lanes(formulas, blocking));
    } else if (frame == "plain") {
        s.plain = std::make_shared<PlainStages>(plain(formulas));
    } else {
        const bool staged = frame == "block_tiles";
        const RowsBlocking blocking{t.thread_rows, t.row_groups,     t.row_lanes, staged || t.row_lanes == 1 ? 1 : 4,
                                    t.kv_tile,     t.masked_kv_tile, staged};
        s.rows = std::make_shared<RowsStages>(rows_frame(formulas, blocking));
    }
    return s;
}

void AttentionStages::write(const AttentionOut &o, const AttentionFormulas &formulas, const RowsStages::Arguments &at,
                            const std::function<Expr(Expr)> &store) {
    if (rows) {
        return rows->write(o, formulas, at, store);
    }
    const int head_dim_v = formulas.problem().head_dim_v;
    const Expr d = o.statistics.empty() ? Expr(o.d) : Halide::min(o.d, head_dim_v - 1);
    Expr value;
    if (plain) {
        value = plain->acc(d, o.q, o.h, o.b) * formulas.out_factor(reference(o.q, o.h, o.b), sum(o.q, o.h, o.b), o.h);
    } else if (head_lanes) {
        value = head_lanes->acc_of(d, o.q, o.h, o.b) * formulas.out_factor(reference(o.q, o.h, o.b), sum(o.q, o.h, o.b), o.h);
    } else {
        value = query_lanes->out(d, o.q, o.h, o.b);
    }
    for (size_t i = 0; i < o.statistics.size(); i++) {
        const Expr before = i == 0 ? Halide::likely(value) : value;
        value = Halide::select(o.d < head_dim_v + int(i), before, statistic(o.statistics[i], formulas, o.q, o.h, o.b));
    }
    Func out = o.func;
    out(at(o.d, o.q)) = store(value);
}

Expr AttentionStages::statistic(Statistic which, const AttentionFormulas &formulas, const Expr &q, const Expr &h, const Expr &b) const {
    return formulas.statistic(which, reference(q, h, b), sum(q, h, b), h);
}

Expr AttentionStages::reference(const Expr &q, const Expr &h, const Expr &b) const {
    return plain ? Expr(plain->row_reference(q, h, b)) : head_lanes ? head_lanes->reference_of(q, h, b) : query_lanes->reference(q, h, b);
}

Expr AttentionStages::sum(const Expr &q, const Expr &h, const Expr &b) const {
    return plain ? Expr(plain->row_sum(q, h, b)) : head_lanes ? head_lanes->sum(q, h, b) : query_lanes->sum(q, h, b);
}

namespace {

void schedule_gpu(KernelStages *k, const Tiling &tiling, const Machine &machine) {
    for (HeadProjection &p : k->projections) {
        schedule_projection_gpu(p, machine);
    }
    if (k->attention.rows) {
        const AttentionOut &o = k->attention_out;
        schedule_rows(*k->attention.rows, o, tiling.load_width);
        Func attended = o.func;
        if (k->has_linear || k->copy.defined()) {
            attended.compute_root().bound(o.d, 0, o.columns);
        }
        if (k->copy.defined()) {
            schedule_copy_gpu(k->copy, o.d, {o.q, o.h, o.b});
        }
        if (k->lse.defined()) {
            schedule_copy_gpu(k->lse, o.q, {o.h, o.b});
        }
        for (ScoreOutputStages &s : k->scores) {
            schedule_score_output_gpu(s);
        }
    }
    if (k->has_linear) {
        schedule_linear_gpu(k->linear, k->linear_out, machine);
    }
}

} // namespace

void schedule_kernel(KernelStages *k, const Tiling &tiling, const Machine &machine) {
    if (machine.gpu()) {
        return schedule_gpu(k, tiling, machine);
    }
    if (k->attention.plain) {
        return schedule_nothing(k);
    }
    for (HeadProjection &p : k->projections) {
        schedule_projection(p, tiling, machine);
    }
    if (k->attention.query_lanes) {
        const AttentionOut &o = k->attention_out;
        schedule_query_lanes(*k->attention.query_lanes, o, machine);
        Func attended = o.func;
        if (k->has_linear || k->copy.defined()) {
            attended.compute_root().bound(o.d, 0, o.columns).align_storage(o.d, machine.lanes);
        }
        if (k->copy.defined()) {
            Halide::Var task("task");
            k->copy.fuse(o.h, o.b, task)
                .parallel(task)
                .vectorize(o.d, std::min(machine.lanes, o.columns - int(o.statistics.size())), Halide::TailStrategy::GuardWithIf);
        }
    } else if (k->attention.head_lanes) {
        schedule_head_lanes(*k->attention.head_lanes, k->attention_out, machine);
        if (k->lse.defined()) {
            schedule_head_lanes_lse(*k->attention.head_lanes, k->attention_out, k->lse);
        }
    }
    for (ScoreOutputStages &s : k->scores) {
        schedule_score_output(s, machine);
    }
    if (k->has_linear) {
        schedule_linear(k->linear, k->linear_out, tiling, machine);
    }
}

void schedule_nothing(KernelStages *k) {
    for (HeadProjection &p : k->projections) {
        p.linear.block_sum.compute_root();
        p.linear.acc.compute_root();
        p.heads.compute_root();
    }
    std::vector<Func> funcs;
    if (const auto &s = k->attention.query_lanes) {
        funcs = s->funcs();
    } else if (const auto &s = k->attention.head_lanes) {
        funcs = s->funcs();
    } else if (const auto &s = k->attention.rows) {
        funcs = s->funcs();
    } else if (const auto &s = k->attention.plain) {
        funcs = s->funcs();
    }
    for (const ScoreOutputStages &s : k->scores) {
        const std::vector<Func> stages = s.funcs();
        funcs.insert(funcs.end(), stages.begin(), stages.end());
    }
    if (k->has_linear) {
        funcs.insert(funcs.end(), {k->linear.block_sum, k->linear.acc});
    }
    if (k->attention_out.func.defined() && (k->has_linear || k->copy.defined())) {
        funcs.push_back(k->attention_out.func);
    }
    for (Func &f : funcs) {
        f.compute_root();
    }
}

} // namespace polyhead::gen

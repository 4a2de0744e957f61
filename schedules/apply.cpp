// The one switch over frames: stages made and scheduled.
#include "apply.h"

#include "head_lanes_cpu.h"
#include "query_lanes_cpu.h"

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

bool frame_serves(const std::string &frame, const Problem &problem, const Machine &machine) {
    if (frame == "linear") {
        return problem.op == POLYHEAD_LINEAR;
    }
    if (frame == "head_lanes") {
        return problem.op == POLYHEAD_SDPA && head_lanes_of(problem, machine) >= 4;
    }
    return frame == "query_lanes" && problem.op != POLYHEAD_LINEAR;
}

AttentionStages make_attention(const AttentionFormulas &formulas, const std::string &frame, const Tiling &t, const Machine &machine) {
    AttentionStages s;
    s.frame = frame;
    if (frame == "head_lanes") {
        const HeadLanesBlocking blocking{head_lanes_of(formulas.problem(), machine), t.row_tile, t.split_len, t.key_unroll};
        s.head_lanes = std::make_shared<HeadLanesStages>(head_lanes(formulas, portable_numerics(), blocking));
    } else {
        const QueryLanesBlocking blocking{t.q_tile, t.kv_tile, t.key_panel, t.value_panel, t.merge_group};
        s.query_lanes = std::make_shared<QueryLanesStages>(query_lanes(formulas, portable_numerics(), blocking));
    }
    return s;
}

Expr AttentionStages::out(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    return head_lanes ? head_lanes->out(d, q, h, b) : query_lanes->out(d, q, h, b);
}

Expr AttentionStages::lse(const Expr &q, const Expr &h, const Expr &b) const {
    return head_lanes ? head_lanes->lse(q, h, b) : query_lanes->lse(q, h, b);
}

void schedule_kernel(KernelStages *k, const Tiling &tiling, const Machine &machine) {
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
                .vectorize(o.d, std::min(machine.lanes, o.columns - 1), Halide::TailStrategy::GuardWithIf);
        }
    } else if (k->attention.head_lanes) {
        schedule_head_lanes(*k->attention.head_lanes, k->attention_out, machine);
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
        funcs = {s->visible, s->query_tile, s->scores, s->logits,      s->row_max,   s->row_reference,
                 s->probs,   s->row_sum,    s->acc,    s->chunk_out,   s->partial,   s->group_reference,
                 s->weight,  s->group_acc,  s->merged, s->inverse_sum, s->normalised};
    } else if (const auto &s = k->attention.head_lanes) {
        funcs = {s->visible, s->query_rows, s->lane_scores, s->scores,  s->logits,    s->row_max, s->row_reference,
                 s->probs,   s->row_sum,    s->acc,         s->partial, s->reference, s->merged};
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

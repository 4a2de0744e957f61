// From frame name and Tiling to stages, and from stages to a scheduled kernel: the one switch over frames.
#pragma once

#include "../generators/frames/attention_out.h"
#include "../generators/frames/head_lanes.h"
#include "../generators/frames/plain.h"
#include "../generators/frames/query_lanes.h"
#include "../generators/frames/rows.h"
#include "../generators/layer.h"
#include "../generators/score_output.h"
#include "linear_cpu.h"
#include "tiling.h"

namespace polyhead::gen {

// Attention through one of the frames.
struct AttentionStages {
    std::string frame;
    std::shared_ptr<QueryLanesStages> query_lanes;
    std::shared_ptr<HeadLanesStages> head_lanes;
    std::shared_ptr<RowsStages> rows;
    std::shared_ptr<PlainStages> plain;

    // Its tile stays inside a task, so that two outputs of different shape cannot be written from it.
    bool writes_one_output() const { return !head_lanes && !plain; }

    // Defines o.func, whose arguments `at` gives: head_dim_v columns, and the statistics that travel with them.
    void write(const AttentionOut &o, const AttentionFormulas &formulas, const RowsStages::Arguments &at,
               const std::function<Halide::Expr(Halide::Expr)> &store);
    // Of a row, where the frame keeps its rows beyond the task.
    Halide::Expr statistic(Statistic which, const AttentionFormulas &formulas, const Halide::Expr &q, const Halide::Expr &h,
                           const Halide::Expr &b) const;

private:
    Halide::Expr reference(const Halide::Expr &q, const Halide::Expr &h, const Halide::Expr &b) const;
    Halide::Expr sum(const Halide::Expr &q, const Halide::Expr &h, const Halide::Expr &b) const;
};

// Everything a kernel is made of; what an operation does not use stays undefined.
struct KernelStages {
    std::vector<HeadProjection> projections;
    AttentionStages attention;
    AttentionOut attention_out{Halide::Func(), Halide::Var("d"), Halide::Var("q"), Halide::Var("h"), Halide::Var("b"), 0, {}};
    Halide::Func copy; // out, where attention_out is an intermediate
    Halide::Func lse;  // (q, h, b)
    std::vector<ScoreOutputStages> scores;
    bool has_linear = false;
    LinearStages linear;
    LinearOut linear_out;
};

// True when this frame can compute the problem on this machine.
bool frame_serves(const std::string &frame, const Problem &problem, const Machine &machine);
Numerics numerics_of(const Machine &machine);
AttentionStages make_attention(const AttentionFormulas &formulas, const std::string &frame, const Tiling &tiling, const Machine &machine);
void schedule_kernel(KernelStages *stages, const Tiling &tiling, const Machine &machine);
// Every Func at root, no loop changed: the algorithm as written. The frame "plain" has no other schedule of ours.
void schedule_nothing(KernelStages *stages);

} // namespace polyhead::gen

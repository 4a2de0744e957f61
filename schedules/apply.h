// From frame name and Tiling to stages, and from stages to a scheduled kernel: the one switch over frames.
#pragma once

#include "../generators/frames/head_lanes.h"
#include "../generators/frames/query_lanes.h"
#include "../generators/layer.h"
#include "attention_out.h"
#include "linear_cpu.h"
#include "tiling.h"

namespace polyhead::gen {

// Attention through one of the frames.
struct AttentionStages {
    std::string frame;
    std::shared_ptr<QueryLanesStages> query_lanes;
    std::shared_ptr<HeadLanesStages> head_lanes;

    Halide::Expr out(const Halide::Expr &d, const Halide::Expr &q, const Halide::Expr &h, const Halide::Expr &b) const;
    Halide::Expr lse(const Halide::Expr &q, const Halide::Expr &h, const Halide::Expr &b) const;
};

// Everything a kernel is made of; what an operation does not use stays undefined.
struct KernelStages {
    std::vector<HeadProjection> projections;
    AttentionStages attention;
    AttentionOut attention_out{Halide::Func(), Halide::Var("d"), Halide::Var("q"), Halide::Var("h"), Halide::Var("b"), 0};
    Halide::Func copy; // out, where attention_out is an intermediate
    Halide::Func lse;  // (q, h, b)
    bool has_linear = false;
    LinearStages linear;
    LinearOut linear_out;
};

// True when this frame can compute the problem on this machine.
bool frame_serves(const std::string &frame, const Problem &problem, const Machine &machine);
AttentionStages make_attention(const AttentionFormulas &formulas, const std::string &frame, const Tiling &tiling, const Machine &machine);
void schedule_kernel(KernelStages *stages, const Tiling &tiling, const Machine &machine);
// Every Func at root, no loop changed: the algorithm as written.
void schedule_nothing(KernelStages *stages);

} // namespace polyhead::gen

// The stages of a whole kernel, and how they are scheduled.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "../generators/frames/attention_stages.h"
#include "../generators/frames/key_lanes.h"
#include "../generators/head_norms.h"
#include "../generators/layer_cache.h"
#include "../generators/linear_gradients.h"
#include "../generators/score_output.h"
#include "../generators/widened.h"
#include "../plan/frames/frame.h"

namespace polyhead::gen {

// Everything a kernel is made of; what an operation does not use stays undefined.
struct KernelStages {
    std::vector<WidenedTensor> widened;
    std::vector<HeadProjection> projections;
    std::vector<HeadNorm> norms;
    std::vector<HeadRows> head_rows; // key cache, value cache, rotated queries; normalised heads
    std::shared_ptr<AttentionStages> attention;
    AttentionOut attention_out{Halide::Func(), Halide::Var("d"), Halide::Var("q"), Halide::Var("h"), Halide::Var("b"), 0, {}};
    Halide::Func copy;         // out, where attention_out is an intermediate
    bool copy_is_kept = false; // it is an intermediate itself: the context of a layer, heads inside
    Halide::Func lse;          // (q, h, b)
    std::vector<ScoreOutputStages> scores;
    std::optional<KeyLanesStages> gradients;
    std::vector<PairSums> pair_sums;
    std::vector<Halide::Func> small_gradients; // results of a backward call that are read from other stages
    Halide::Func gate_gradient;                // (d, q, h, b): of a layer, whose projection reads it
    std::vector<LinearGradientsStages> linear_gradients;
    std::vector<RowMarks> marks;
    std::vector<Halide::Func> sums_of_rows; // (n, t, b): gradients of the inputs of a layer
    std::vector<Halide::Func> kept_heads;   // (d, t, h, b): results of a layer that its gradients read
    bool has_linear = false;
    LinearStages linear;
    LinearOut linear_out;
    Halide::Func copied_out; // (n, t, b): out, where linear_out has the rows of all batch rows together
};

void schedule_kernel(KernelStages *stages, const Frame &frame, const Tiling &tiling, const Machine &machine);
// Every Func at root, no loop changed: the algorithm as written.
void schedule_nothing(KernelStages *stages);

} // namespace polyhead::gen

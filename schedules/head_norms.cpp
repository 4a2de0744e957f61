// Schedules of the norms of heads.
//
//   CPU: parallel (batch, head, 64 tokens)          GPU: blocks (head, batch, tokens), a thread for each token
//          for tokens
//            sums of lanes in a vector, then of the vector
#include "schedules.h"

#include <algorithm>

#include "../generators/head_norms.h"
#include "parallel_tasks.h"

namespace polyhead::gen {

using Halide::Func;
using Halide::TailStrategy;
using Halide::Var;

namespace {

constexpr int tokens_of_task = 64;

struct Result {
    Func lanes, sum, of_head;
};

std::vector<Result> results_of(const HeadNorm &n) {
    std::vector<Result> all;
    if (n.centred) {
        all.push_back({n.lane_sums, n.sum, n.mean});
    }
    all.push_back({n.lane_squares, n.squares, n.factor});
    return all;
}

void schedule_norm_weights(HeadNorm &n, const Machine &machine) {
    for (Func f : {n.weight, n.bias}) {
        if (f.defined()) {
            f.compute_root().vectorize(n.d, std::min(machine.lanes, n.width), TailStrategy::GuardWithIf);
        }
    }
}

// The sums of one token in a loop over tokens.
void schedule_sums(const HeadNorm &n, Result &r, Func consumer, const Halide::VarOrRVar &tokens) {
    const auto at = [&](Func f) { tokens.is_rvar ? f.compute_at(consumer, tokens.rvar) : f.compute_at(consumer, tokens.var); };
    at(r.sum);
    at(r.lanes);
    r.lanes.bound(n.lane, 0, n.lanes);
    if (n.lanes > 1) {
        r.sum.update().atomic().vectorize(n.all_lanes);
        r.lanes.vectorize(n.lane);
        r.lanes.update().reorder(n.lane, n.entries.x, n.entries.y).vectorize(n.lane);
    }
}

} // namespace

void schedule_head_norm(HeadNorm &n, const Machine &machine) {
    schedule_norm_weights(n, machine);
    for (Result &r : results_of(n)) {
        const Var block("block"), token("token"), task("task");
        r.of_head.compute_root()
            .split(n.t, block, token, tokens_of_task, TailStrategy::GuardWithIf)
            .fuse(block, n.h, task)
            .fuse(task, n.b, task);
        parallel_tasks(r.of_head, task, (n.tokens + tokens_of_task - 1) / tokens_of_task * n.heads, n.tokens * n.heads * n.width);
        schedule_sums(n, r, r.of_head, token);
    }
}

void schedule_head_norm_at(HeadNorm &n, Func rows, const Halide::RVar &tokens, const Machine &machine) {
    schedule_norm_weights(n, machine);
    for (Result &r : results_of(n)) {
        r.of_head.compute_at(rows, tokens);
        schedule_sums(n, r, rows, tokens);
    }
}

void schedule_head_norm_gpu(HeadNorm &n) {
    for (Result &r : results_of(n)) {
        schedule_copy_gpu(r.of_head, n.t, {n.h, n.b});
        const Var pieces("pieces"); // the tokens of a thread, one after another
        r.of_head.compute_root();
        r.sum.compute_at(r.of_head, pieces);
        r.lanes.compute_at(r.of_head, pieces).bound(n.lane, 0, n.lanes);
    }
}

} // namespace polyhead::gen

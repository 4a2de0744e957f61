// GPU schedule of scores as an output: a thread per pair of query and key; adjacent threads have adjacent keys. Before that, for weights,
// a block of threads, or a few of them, adds up the probs of a row.
#include "schedules.h"

#include "../generators/score_output.h"

namespace polyhead::gen {

using Halide::TailStrategy;
using Halide::Var;

void schedule_score_output_gpu(ScoreOutputStages &s) {
    constexpr int threads = gpu_score_threads;
    Var block("block"), thread("thread"), outer("outer");
    // Queries may be more than the second dimension of a grid has blocks (CUDA: 65535), keys not so soon: 64 of them are one block.
    auto place = [&](auto stage, const Var &along, const Var &row, const Var &batch) {
        stage.split(along, block, thread, threads, TailStrategy::GuardWithIf).reorder(row, block, batch); // the innermost is the first
        stage.gpu_threads(thread).gpu_blocks(row, block, batch);
    };
    s.key_lanes.compute_root().fuse(s.hkv, s.b, outer);
    place(s.key_lanes, s.kv, s.d, outer);
    s.query_rows.compute_root().fuse(s.h, s.b, outer);
    place(s.query_rows, s.d, s.q, outer);
    if (s.weights) { // sums of probs that are made once more, so that no probs are kept
        s.lane_sums.compute_root().fuse(s.h, s.b, outer);
        place(s.lane_sums, s.l, s.q, outer);
        place(s.lane_sums.update().fuse(s.h, s.b, outer).reorder(s.keys, s.l, s.q, outer), s.l, s.q, outer);
        s.row_sum.compute_root();
        place(s.row_sum, s.q, s.h, s.b);
        place(s.row_sum.update().reorder(s.rl, s.q, s.h, s.b), s.q, s.h, s.b);
    }
    Halide::Func result = s.result;
    if (s.mean) {
        place(Halide::Stage(result), s.kv, s.q, s.b);
        place(result.update().reorder(s.rh, s.kv, s.q, s.b), s.kv, s.q, s.b);
    } else {
        result.fuse(s.h, s.b, outer);
        place(result, s.kv, s.q, outer);
    }
}

} // namespace polyhead::gen

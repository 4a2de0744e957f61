// GPU schedule of scores as an output: a thread per pair of query and key, neighbours along the keys.
#include "score_output_gpu.h"

namespace polyhead::gen {

using Halide::TailStrategy;
using Halide::Var;

void schedule_score_output_gpu(ScoreOutputStages &s) {
    Var block("block"), thread("thread"), d_block("d_block"), d_thread("d_thread");
    s.key_lanes.compute_root().split(s.kv, block, thread, 64, TailStrategy::GuardWithIf).gpu_threads(thread).gpu_blocks(block, s.d, s.hkv);
    s.query_rows.compute_root().split(s.d, d_block, d_thread, 64, TailStrategy::GuardWithIf).gpu_threads(d_thread).gpu_blocks(s.q, s.h, s.b);
    Halide::Func result = s.result;
    auto place = [&](auto stage, const auto &outer) {
        stage.split(s.kv, block, thread, 64, TailStrategy::GuardWithIf).gpu_threads(thread).gpu_blocks(block, s.q, outer);
        return stage;
    };
    place(Halide::Stage(result), s.b);
    if (s.mean) {
        place(result.update().reorder(s.rh, s.kv, s.q, s.b), s.b);
    }
}

} // namespace polyhead::gen

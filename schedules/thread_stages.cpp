// Stages of a thread are unrolled, so that they are registers.
#include "thread_stages.h"

namespace polyhead::gen {

using Halide::Func;
using Halide::RVar;

std::vector<Halide::VarOrRVar> loops_of(const Halide::RDom &written, const std::vector<Halide::Var> &outer) {
    std::vector<Halide::VarOrRVar> loops;
    for (int i = 0; i < written.dimensions(); i++) {
        loops.emplace_back(written[i]);
    }
    loops.insert(loops.end(), outer.begin(), outer.end());
    return loops;
}

void place_stage(const ThreadStage &stage, const Halide::LoopLevel &level) {
    Func f = stage.func;
    f.compute_at(level).store_in(Halide::MemoryType::Stack);
    for (const auto &[var, extent] : stage.dims) {
        f.bound(var, 0, extent).unroll(var);
    }
    if (!stage.update.empty()) {
        Halide::Stage update = f.update();
        std::vector<Halide::VarOrRVar> order;
        for (const RVar &loop : stage.update) {
            order.emplace_back(loop);
        }
        for (const auto &[var, extent] : stage.dims) {
            order.emplace_back(var);
        }
        if (order.size() > 1) {
            update.reorder(order);
        }
        for (const Halide::VarOrRVar &loop : order) {
            update.unroll(loop);
        }
    }
}

} // namespace polyhead::gen

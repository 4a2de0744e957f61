// The frame "warp tiles": its stages and its schedule.
#include "../../generators/frames/warp_tiles.h"
#include "../../schedules/schedules.h"
#include "../schedule_kernel.h"
#include "frame_builder.h"

namespace polyhead::gen {
namespace {

class WarpTilesBuilder : public FrameBuilder {
public:
    const char *name() const override { return "warp_tiles"; }

    std::shared_ptr<AttentionStages> make(const AttentionFormulas &formulas, const Tiling &t, const Machine &machine) const override {
        const WarpTilesBlocking blocking{t.row_groups,   t.thread_rows, t.kv_tile, machine.warp_product(formulas.problem().dtype),
                                         machine.warp(), t.kv_chunks};
        return std::make_shared<WarpTilesStages>(warp_tiles_frame(formulas, blocking));
    }

    bool schedule(KernelStages *k, const Tiling &, const Machine &) const override {
        const AttentionOut &o = k->attention_out;
        schedule_warp_tiles(static_cast<WarpTilesStages &>(*k->attention), o);
        Halide::Func attended = o.func;
        if (k->copy.defined()) {
            attended.compute_root().bound(o.d, 0, o.columns);
            schedule_copy_gpu(k->copy, o.d, {o.q, o.h, o.b});
        }
        if (k->lse.defined()) {
            schedule_copy_gpu(k->lse, o.q, {o.h, o.b});
        }
        return true;
    }
};

} // namespace

const FrameBuilder &warp_tiles_builder() {
    static const WarpTilesBuilder builder;
    return builder;
}

} // namespace polyhead::gen

// The frames "warp tiles" and "group tiles": their stages and their schedule.
#include "../../generators/frames/warp_tiles.h"
#include "../../plan/frames/warp_tiles.h"
#include "../../schedules/schedules.h"
#include "../schedule_kernel.h"
#include "frame_builder.h"

namespace polyhead::gen {
namespace {

class WarpTilesBuilder : public FrameBuilder {
public:
    explicit WarpTilesBuilder(bool by_groups) : by_groups_(by_groups) {}
    const char *name() const override { return by_groups_ ? "group_tiles" : "warp_tiles"; }

    std::shared_ptr<AttentionStages> make(const AttentionFormulas &formulas, const Tiling &t, const Machine &machine) const override {
        const Problem &problem = formulas.problem();
        const WarpTilesBlocking blocking{t.row_groups,
                                         t.thread_rows,
                                         t.kv_tile,
                                         product_for(problem, machine),
                                         machine.warp(),
                                         t.kv_chunks,
                                         by_groups_ ? machine.group_product(problem.dtype) : nullptr};
        return std::make_shared<WarpTilesStages>(warp_tiles_frame(formulas, blocking));
    }

    bool schedule(KernelStages *k, const Tiling &, const Machine &) const override {
        const AttentionOut &o = k->attention_out;
        schedule_warp_tiles(static_cast<WarpTilesStages &>(*k->attention), o);
        Halide::Func attended = o.func;
        if (k->has_linear || k->copy.defined()) {
            attended.compute_root().bound(o.d, 0, o.columns);
        }
        if (k->copy.defined()) {
            if (k->copy_is_kept) { // the context of a layer
                k->copy.compute_root();
            }
            schedule_copy_gpu(k->copy, o.d, {o.q, o.h, o.b});
        }
        if (k->lse.defined()) {
            schedule_copy_gpu(k->lse, o.q, {o.h, o.b});
        }
        return true;
    }

private:
    bool by_groups_;
};

} // namespace

const FrameBuilder &warp_tiles_builder() {
    static const WarpTilesBuilder builder(false);
    return builder;
}

const FrameBuilder &group_tiles_builder() {
    static const WarpTilesBuilder builder(true);
    return builder;
}

} // namespace polyhead::gen

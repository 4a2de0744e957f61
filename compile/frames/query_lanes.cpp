// The frame "query lanes": its stages and their schedule.
#include "../../generators/frames/query_lanes.h"
#include "../../contract/tensors.h"
#include "../../schedules/schedules.h"
#include "../schedule_kernel.h"
#include "frame_builder.h"

namespace polyhead::gen {
namespace {

// Tensors of a call that the caches hold from one call to the next cost nothing to read: up to 5 MB on Zen 4, with 32 MB of L3 shared.
// Beyond them, time with fetching / without, AVX-512 and AVX2: 8 x 12 heads of 128 x 128, d 64 0.90 and 0.91; 12 heads, 512 x 512 0.97 and
// 0.98, 2048 x 2048 0.99. In the caches 12 heads of 64 x 64 would take 1.09 of the time, 128 x 128 1.07, 256 x 256 1.01.
constexpr int64_t fetch_bytes = 4 << 20;

// Where multiply and add are rounded one after the other, up to four products are added up before they meet the score. The instructions are
// as many; a quarter of the additions is rounded at the size of the score, and the error is 0.6 of the plain sum's (docs/internals/
// schedules.md, section 2). Fused multiply-adds are as exact alone.
int products_of(const Problem &p, const Machine &machine) {
    int products = machine.fused ? 1 : 4;
    while (p.head_dim % products != 0) {
        products /= 2;
    }
    return products;
}

class QueryLanesBuilder : public FrameBuilder {
public:
    const char *name() const override { return "query_lanes"; }

    std::shared_ptr<AttentionStages> make(const AttentionFormulas &formulas, const Tiling &t, const Machine &machine) const override {
        const int dtype = contract::key_dtype(formulas.problem());
        const LaneProduct floats = lane_product(nullptr), product = t.pair == 2 ? lane_product(machine.lane_product(dtype)) : floats;
        const QueryLanesBlocking blocking{t.q_tile,
                                          t.kv_tile,
                                          t.key_panel,
                                          t.value_panel,
                                          4 * machine.lanes,
                                          products_of(formulas.problem(), machine),
                                          formulas.rotation().active() ? floats : product,
                                          product,
                                          machine.many_registers(), // with 16 LLVM 21 would store a sum at every key
                                          multiplies_by_tiles(formulas.problem(), t) ? machine.core_product(dtype) : nullptr,
                                          fetch_bytes,
                                          contract::is_attention_layer(formulas.problem()) ? POLYHEAD_WEIGHT_PANEL / product.k
                                                                                           : machine.lanes};
        return std::make_shared<QueryLanesStages>(query_lanes(formulas, blocking));
    }

    bool schedule(KernelStages *k, const Tiling &, const Machine &machine) const override {
        const AttentionOut &o = k->attention_out;
        schedule_query_lanes(static_cast<QueryLanesStages &>(*k->attention), o, machine);
        Halide::Func attended = o.func;
        if (k->has_linear || k->copy.defined()) {
            attended.compute_root().bound(o.d, 0, o.columns).align_storage(o.d, machine.lanes);
        }
        if (k->copy.defined()) {
            Halide::Var task("task");
            if (k->copy_is_kept) {
                k->copy.compute_root().bound(o.d, 0, o.columns - int(o.statistics.size()));
            }
            k->copy.fuse(k->copy_is_kept ? o.q : o.h, o.b, task)
                .parallel(task)
                .vectorize(o.d, std::min(machine.lanes, o.columns - int(o.statistics.size())), Halide::TailStrategy::GuardWithIf);
        }
        return true;
    }
};

} // namespace

const FrameBuilder &query_lanes_builder() {
    static const QueryLanesBuilder builder;
    return builder;
}

} // namespace polyhead::gen

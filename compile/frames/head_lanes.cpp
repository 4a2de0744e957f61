// The frame "head lanes": its stages and their schedule.
#include "../../generators/frames/head_lanes.h"
#include "../../contract/dtypes.h"
#include "../../contract/tensors.h"
#include "../../plan/frames/head_lanes.h"
#include "../../schedules/schedules.h"
#include "../schedule_kernel.h"
#include "frame_builder.h"

namespace polyhead::gen {
namespace {

// Rows are asked from memory by so many bytes ahead. A processor's own prefetchers stop at the end of each 4 KB, and at each page of a head
// (docs/internals/schedules.md, section 3). Rows of 16 bits are asked for twice; with 16 registers a step is bound by its
// instructions, and once is enough.
std::array<int, 2> bytes_ahead(const Problem &p, const Machine &machine) {
    constexpr int of_f32 = 8 << 10, of_bytes = 16 << 10, first = 12 << 10, again = 6 << 10;
    const int dtype = contract::key_dtype(p);
    if (dtype == POLYHEAD_F32) {
        return {of_f32, 0};
    }
    const bool once = dtype == POLYHEAD_I8 || !machine.many_registers();
    return once ? std::array<int, 2>{of_bytes, 0} : std::array<int, 2>{first, again};
}

// Vectors of words cover both head dims. With 16 registers two halves of each word are too many: 1.12 of the time.
bool reads_words(const Problem &p, const Machine &machine) {
    const int entries = 2 * head_lanes_of(p, machine);
    return machine.many_registers() && contract::key_dtype(p) == POLYHEAD_BF16 && p.head_dim % entries == 0 && p.head_dim_v % entries == 0;
}

// How keys of int8 are multiplied, and how many sums are side by side; no product: keys become floats.
struct Integers {
    const Product *product = nullptr;
    int lanes = 0;
};

// Vectors of integers cover a key that is multiplied as it is stored. Two instructions for two entries of a lane take the place of one
// multiply-add for one entry, so they need whole vectors; the instruction for four entries does not.
Integers integers_of(const Problem &p, const Tiling &t, const Machine &machine) {
    constexpr int least_lanes = 4;
    const bool as_stored = p.int8_cache != 0 && p.scale_channels == 0 && p.rope == POLYHEAD_NO_ROPE;
    const Product *product = as_stored ? machine.lane_product(POLYHEAD_I8) : nullptr;
    if (!product || t.unscheduled != 0) { // the instructions have vectors only
        return {};
    }
    const int least = product->form == Form::pattern ? machine.lanes : least_lanes;
    int lanes = machine.lanes;
    while (lanes >= least && p.head_dim % (product->k * lanes) != 0) {
        lanes /= 2;
    }
    return lanes >= least ? Integers{product, lanes} : Integers{};
}

class HeadLanesBuilder : public FrameBuilder {
public:
    const char *name() const override { return "head_lanes"; }

    std::shared_ptr<AttentionStages> make(const AttentionFormulas &formulas, const Tiling &t, const Machine &machine) const override {
        const bool words = reads_words(formulas.problem(), machine), query_words = formulas.inputs().query_storage.type.bits() == 16;
        const Integers integers = integers_of(formulas.problem(), t, machine);
        const HeadLanesBlocking blocking{head_lanes_of(formulas.problem(), machine), t.row_tile, t.split_len, t.key_unroll, machine.lanes,
                                         bytes_ahead(formulas.problem(), machine), words,
                                         // projected queries are floats
                                         words && query_words ? machine.lane_product(contract::key_dtype(formulas.problem())) : nullptr,
                                         integers.product, integers.lanes};
        return std::make_shared<HeadLanesStages>(head_lanes(formulas, blocking));
    }

    bool schedule(KernelStages *k, const Tiling &, const Machine &machine) const override {
        auto &stages = static_cast<HeadLanesStages &>(*k->attention);
        if (k->has_linear) {
            const AttentionOut &o = k->attention_out;
            Halide::Func(o.func).compute_root().bound(o.d, 0, o.columns);
        }
        schedule_head_lanes(stages, k->attention_out, machine);
        if (k->lse.defined()) {
            schedule_head_lanes_lse(stages, k->attention_out, k->lse);
        }
        return true;
    }
};

} // namespace

const FrameBuilder &head_lanes_builder() {
    static const HeadLanesBuilder builder;
    return builder;
}

} // namespace polyhead::gen

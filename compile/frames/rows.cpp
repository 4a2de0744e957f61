// The frames "thread rows" and "block tiles", with splits or without: their stages and their schedule.
#include "../../generators/frames/rows.h"
#include "../../plan/frames/rows.h"
#include "../../schedules/schedules.h"
#include "../arguments.h"
#include "../schedule_kernel.h"
#include "frame_builder.h"

namespace polyhead::gen {
namespace {

// Lanes that merge the splits of a row. Where references are no integers, factors between them are powers like any other, and beside the
// statistics of a row they take 72 registers: 1024 threads of a block have 64 (ptxas, tests/gpu_sources).
int merge_lanes(const AttentionFormulas &formulas, const Machine &machine) {
    const bool many_registers = !formulas.softmax().has_integer_references() && !statistics_of(formulas.problem()).empty();
    return many_registers ? std::max(machine.device.merge_lanes / 2, 1) : machine.device.merge_lanes;
}

class RowsBuilder : public FrameBuilder {
public:
    explicit RowsBuilder(const char *name) : name_(name) {}
    const char *name() const override { return name_; }

    bool schedule(KernelStages *k, const Tiling &t, const Machine &) const override {
        const AttentionOut &o = k->attention_out;
        RowsStages &stages = static_cast<RowsStages &>(*k->attention);
        schedule_rows(stages, o, std::min(t.load_width, stages.blocking.vec));
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
    const char *name_;
};

class ThreadRowsBuilder : public RowsBuilder {
public:
    using RowsBuilder::RowsBuilder;

    std::shared_ptr<AttentionStages> make(const AttentionFormulas &formulas, const Tiling &t, const Machine &machine) const override {
        const int piece = whole_piece(formulas.problem(), t.row_lanes), vec = t.row_lanes == 1 ? 1 : piece > 0 ? piece : widest_piece;
        const RowsBlocking blocking{
            t.thread_rows, t.row_groups, t.row_lanes, vec, t.kv_tile, t.masked_kv_tile, false, t.split_len, merge_lanes(formulas, machine)};
        return std::make_shared<RowsStages>(rows_frame(formulas, blocking));
    }
};

class BlockTilesBuilder : public RowsBuilder {
public:
    using RowsBuilder::RowsBuilder;

    std::shared_ptr<AttentionStages> make(const AttentionFormulas &formulas, const Tiling &t, const Machine &machine) const override {
        const RowsBlocking blocking{
            t.thread_rows, t.row_groups, t.row_lanes, 1, t.kv_tile, t.masked_kv_tile, true, t.split_len, merge_lanes(formulas, machine)};
        return std::make_shared<RowsStages>(rows_frame(formulas, blocking));
    }
};

} // namespace

const FrameBuilder &thread_rows_builder() {
    static const ThreadRowsBuilder builder("thread_rows");
    return builder;
}

const FrameBuilder &block_tiles_builder() {
    static const BlockTilesBuilder builder("block_tiles");
    return builder;
}

const FrameBuilder &split_rows_builder() {
    static const ThreadRowsBuilder builder("split_rows");
    return builder;
}

const FrameBuilder &split_tiles_builder() {
    static const BlockTilesBuilder builder("split_tiles");
    return builder;
}

} // namespace polyhead::gen

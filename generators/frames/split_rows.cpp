// Frames "split rows" and "split tiles": partial results of splits of the keys, and what they are merged to in a fixed order.
#include "rows.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::max;
using Halide::min;
using Halide::RDom;
using Halide::select;

namespace {

// What a thread knows of a row after the keys of its split: entry x of its lane, row_sum, reference.
struct OfThread {
    Expr entry, sum, reference;
};

// The groups of a warp have every groups-th chunk of a split each. Their columns are merged by exchange, so that all know the result.
void define_groups(RowsStages &s, const AttentionFormulas &formulas) {
    const auto &[x, r, l, g, qt, sp, h, b] = std::tie(s.x, s.r, s.l, s.g, s.qt, s.sp, s.h, s.b);
    const Numerics &numerics = formulas.numerics();
    const int groups = s.blocking.groups, lanes = s.blocking.lanes;
    auto acc = [&](const Expr &column) { return s.acc(column, r, l, g, qt, sp, h, b); };
    s.merge.group_reference(r, l, g, qt, sp, h, b) = numerics.max_over_lanes(acc(reference_column), groups, lanes);
    const Expr weight = formulas.softmax().rescaling(acc(reference_column) - s.merge.group_reference(r, l, g, qt, sp, h, b));
    const Expr column = select(x < s.value_entries, s.stat_columns + min(x, s.value_entries - 1), sum_column);
    s.merge.of_groups(x, r, l, g, qt, sp, h, b) = numerics.sum_over_lanes(acc(column) * weight, groups, lanes);
}

OfThread of_thread(const RowsStages &s, const std::vector<Expr> &place, const Expr &x) {
    auto at = [&](const Halide::Func &f, const Expr &column) {
        std::vector<Expr> args = {column};
        args.insert(args.end(), place.begin(), place.end());
        return Expr(f(args));
    };
    const Expr entry = min(x, s.value_entries - 1);
    if (s.merge.of_groups.defined()) {
        return {at(s.merge.of_groups, entry), at(s.merge.of_groups, s.value_entries), s.merge.group_reference(place)};
    }
    return {at(s.acc, s.stat_columns + entry), at(s.acc, sum_column), at(s.acc, reference_column)};
}

} // namespace

void define_partial(RowsStages &s, const AttentionFormulas &formulas) {
    const RowsBlocking &k = s.blocking;
    if (k.key_groups() > 1) {
        define_groups(s, formulas);
    }
    const KeySplits splits = {formulas, k.split_len};
    const int entries = s.entry_count(s.head_dim_v + 1), tile = k.tile_rows();
    const Expr rows = formulas.inputs().seq_len_q * formulas.group_size();
    s.written =
        RDom({{0, entries + 1}, {0, k.rows}, {0, k.lanes}, {0, k.groups}, {0, (rows + tile - 1) / tile}, {0, splits.count()}}, "written");
    const Expr x = s.written[0], r = s.written[1], l = s.written[2], g = s.written[3], qt = s.written[4], sp = s.written[5];
    const Expr column = s.column(min(x, entries - 1), l), row = qt * tile + (k.shares_keys() ? r : g * k.rows + r);
    // Entries and row_sum: a lane its own, of the first group, because after a merge all know the same. The reference: every thread. So no
    // thread has nothing to write, for which Halide would leave out all that it does, and with it what its warp waits for.
    const Expr writes = column <= s.head_dim_v && (k.key_groups() > 1 ? g == 0 : Halide::Internal::const_true());
    s.written.where(x == entries || writes);
    s.written.where(row < rows);
    // A split that no row of the batch row sees is not written: no code reads it. Block tiles write it, nothing but zeros of no weight:
    // their barriers would be under this condition, and PoCL 3.1 then takes conditions behind the last barrier of all threads from the
    // first.
    if (!k.block_tiles) {
        s.written.where(splits.first_key(sp, s.b) < splits.whole_range(s.b).end_some);
    }
    const OfThread own = of_thread(s, {r, l, g, qt, sp, s.h, s.b}, x);
    s.merge.partial(s.merge.x, s.merge.row, s.sp, s.h, s.b) = Halide::undef<float>();
    s.merge.partial(select(x == entries, s.head_dim_v + 1, min(column, s.head_dim_v)), min(row, rows - 1), sp, s.h, s.b) =
        select(x == entries, own.reference, column < s.head_dim_v, own.entry, own.sum);
}

// Lane m of the merge joins splits m, m + lanes, ... of those that the row sees keys of; then the lanes are joined. Both in ascending
// order.
void define_merge(RowsStages &s, const AttentionFormulas &formulas, const AttentionOut &o) {
    MergeStages &t = s.merge;
    const KeySplits splits = {formulas, s.blocking.split_len};
    const int lanes = s.blocking.merge_lanes;
    const Expr group = formulas.group_size();
    const Expr q = o.q, h = o.h, b = o.b, m = t.m;
    t.lane_splits = RDom(0, (splits.count() + lanes - 1) / lanes, "lane_splits");
    const Expr sp = t.lane_splits * lanes + m, existing = min(sp, splits.count() - 1);
    const Expr first = splits.first_key(sp, b);
    TileRange(formulas, q, q, b).limit(&t.lane_splits, first, first + s.blocking.split_len);
    auto partial = [&](const Expr &column) { return t.partial(column, q * group + h % group, existing, h / group, b); };
    const Expr its_reference = partial(s.head_dim_v + 1);
    t.lane_reference(t.m, o.q, o.h, o.b) = row_reference_floor;
    t.lane_reference(t.m, o.q, o.h, o.b) = max(t.lane_reference(t.m, o.q, o.h, o.b), its_reference);
    const Expr weight = formulas.softmax().rescaling(its_reference - t.lane_reference(t.m, o.q, o.h, o.b));
    t.lane_sum(t.m, o.q, o.h, o.b) = 0.0f;
    t.lane_sum(t.m, o.q, o.h, o.b) += weight * partial(s.head_dim_v);
    t.lane_acc(t.x, t.m, o.q, o.h, o.b) = 0.0f;
    t.lane_acc(t.x, t.m, o.q, o.h, o.b) += weight * partial(min(t.x, s.head_dim_v - 1)); // the last piece of out may be longer

    t.lanes = RDom(0, lanes, "merge_lanes");
    t.reference(o.q, o.h, o.b) = row_reference_floor;
    t.reference(o.q, o.h, o.b) = max(t.reference(o.q, o.h, o.b), t.lane_reference(t.lanes, o.q, o.h, o.b));
    t.lane_weight(t.m, o.q, o.h, o.b) = formulas.softmax().rescaling(t.lane_reference(t.m, o.q, o.h, o.b) - t.reference(o.q, o.h, o.b));
    t.row_sum(o.q, o.h, o.b) = 0.0f;
    t.row_sum(o.q, o.h, o.b) += t.lane_weight(t.lanes, o.q, o.h, o.b) * t.lane_sum(t.lanes, o.q, o.h, o.b);
    t.acc(t.x, o.q, o.h, o.b) = 0.0f;
    t.acc(t.x, o.q, o.h, o.b) += t.lane_weight(t.lanes, o.q, o.h, o.b) * t.lane_acc(t.x, t.lanes, o.q, o.h, o.b);
}

Expr write_merged(const RowsStages &s, const AttentionFormulas &formulas, const AttentionOut &o) {
    const Expr reference = s.merge.reference(o.q, o.h, o.b), sum = s.merge.row_sum(o.q, o.h, o.b);
    // out = acc / row_sum
    const Expr entry = o.statistics.empty() ? Expr(o.d) : min(o.d, s.head_dim_v - 1);
    Expr value = s.merge.acc(entry, o.q, o.h, o.b) * formulas.softmax().out_factor(reference, sum, o.h);
    value = formulas.softmax().gated(value, sum, entry, o.q, o.h, o.b);
    for (size_t i = 0; i < o.statistics.size(); i++) {
        value = select(o.d < s.head_dim_v + int(i), value, formulas.softmax().statistic(o.statistics[i], reference, sum, o.h));
    }
    return value;
}

std::vector<Halide::Func> MergeStages::funcs() const {
    std::vector<Halide::Func> all;
    for (const Halide::Func &f :
         {group_reference, of_groups, partial, lane_reference, lane_sum, lane_acc, reference, lane_weight, row_sum, acc}) {
        if (f.defined()) {
            all.push_back(f);
        }
    }
    return all;
}

} // namespace polyhead::gen

// What the frame "query lanes" asks from memory ahead of time.
#include "query_lanes_coordinates.h"

#include "../../runtime/helpers/fetch.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::max;
using Halide::min;
using Halide::select;

namespace {

// 0. Tensors over pairs: with each panel of a chunk, some rows of the next chunk are asked for, or of the first of the next tile.
Expr fetch_pairs(const QueryLanesStages &s, const QueryLanesCoordinates &at) {
    const auto &[formulas, blocking] = at;
    const AttentionInputs &in = formulas.inputs();
    const auto &[c, qt, h, b] = std::tie(s.c, s.qt, s.h, s.b);
    const Expr tiles = (in.seq_len_q + blocking.q_tile - 1) / blocking.q_tile;
    const Expr same_tile = at.key_of_chunk(0, c + 1, qt, b) < at.range(qt, b).end_some, same_head = same_tile || qt + 1 < tiles;
    const Expr tile = select(same_tile, qt, qt + 1 < tiles, qt + 1, 0), head = min(select(same_head, h, h + 1), in.num_heads - 1);
    const Expr key = select(same_tile, at.key_of_chunk(0, c + 1, qt, b), at.key_of_chunk(0, 0, tile, b));
    const int pieces = blocking.kv_tile / blocking.key_panel;
    Expr all = 0;
    for (const auto &pairs : in.whole->pairs) {
        all += prefetch_call(pairs.bytes >= Halide::cast<int64_t>(Expr(blocking.fetch_bytes)), "polyhead_fetch_pairs",
                             {pairs.tensor, head, b, tile * blocking.q_tile, blocking.q_tile, key, blocking.kv_tile, s.panel, pieces});
    }
    return all;
}

} // namespace

// 0. In a call of so many bytes that rows come from memory, rows that come soon are asked for, a few with each panel
// (runtime/helpers/fetch.h).
void define_fetched(QueryLanesStages &s, const QueryLanesCoordinates &at) {
    const auto &[formulas, blocking] = at;
    const AttentionInputs &in = formulas.inputs();
    const AttentionInputs::Whole &whole = *in.whole;
    const auto count = [](const Expr &number) { return Halide::cast<int64_t>(number); };
    const Expr rows = count(in.num_heads) * count(in.seq_len_q) + count(in.num_kv_heads) * count(in.keys.rows());
    const int row_bytes = (s.head_dim + s.head_dim_v) * in.query_storage.type.bytes();
    const Expr tiles = (in.seq_len_q + blocking.q_tile - 1) / blocking.q_tile,
               panel = s.c * (blocking.kv_tile / blocking.key_panel) + s.panel,
               panels = max((in.keys.rows() + blocking.key_panel - 1) / blocking.key_panel, 1);
    // Other panels ask for nothing: their calls would cost AVX2 2 % of the time.
    const Expr asks = runtime::may_ask<Expr>(s.qt, tiles, panel, panels, blocking.q_tile);
    s.fetched(s.panel, s.c, s.qt, s.h, s.b) = prefetch_call(
        exceeds_cache(in, rows, row_bytes, blocking.fetch_bytes) && asks, "polyhead_fetch",
        {whole.query, whole.key, whole.value, whole.out, s.h, s.b, formulas.group_size(), s.qt, tiles, blocking.q_tile, panel, panels});
    if (!whole.pairs.empty()) {
        s.fetched_pairs(s.panel, s.c, s.qt, s.h, s.b) = fetch_pairs(s, at);
    }
}

} // namespace polyhead::gen

// CPU schedule of the frame "query lanes".
//
//   with words of several elements: parallel (batch, key/value head, 64 words of keys): value_words
//   parallel (batch, head, tile of q_tile queries)
//     query_tile                                     rows, then transposed in squares in registers; 32 x 64 floats = 8 KB, stays in L1
//     for chunks
//       for blocks of key_panel keys                 scores: key_panel x q_tile/lanes registers, one broadcast of key per q_tile/lanes
//         for head_dim: scores += query_tile * key   multiply-adds; logits stored
//       row_max, row_reference, probs, row_sum       plain vectors of queries, 16 KB of logits and of probs at 32 x 128
//       numbers of merged                            factors of what is there and of what is added
//       for panels of value_panel columns            acc: value_panel x q_tile/lanes registers
//         for keys: acc += probs * value
//         merged: what is there and acc, rescaled    acc is never stored
//     normalised; out
// Where the time goes, and what was tried without success: docs/measured/schedules.md.
#include "schedules.h"

#include <algorithm>

#include "../generators/frames/query_lanes.h"
#include "parallel_tasks.h"

namespace polyhead::gen {

using Halide::Func;
using Halide::LoopLevel;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;

namespace {

constexpr int words_of_task = 64; // along the keys, of values that share words
constexpr int rows_of_task = 64;  // of keys that are copied

constexpr int most_chains = 4; // sums over the keys of a chunk that run side by side: an addition takes so many cycles

// As many of them as divide a chunk.
int chains_of(int keys) {
    int chains = most_chains;
    while (keys % chains != 0) {
        chains--;
    }
    return chains;
}

// Vectors along the queries of the tile, all of them unrolled.
template <class FuncOrStage> FuncOrStage lanes(FuncOrStage f, const QueryLanesStages &s, int vec) {
    f.vectorize(s.qi, vec).unroll(s.qi);
    return f;
}

// Numbers of a panel of keys or columns and of the tile, in registers.
Func in_registers(Func f, const QueryLanesStages &s, const Var &of_panel, int panel, int vec) {
    const int lanes = s.blocking.tile_lanes();
    f.bound_extent(s.lane, lanes).bound_extent(s.vector, s.blocking.q_tile / lanes).bound_extent(of_panel, panel);
    return f.vectorize(s.lane, vec).unroll(s.lane).unroll(s.vector).unroll(of_panel);
}

// Sums of a part of the tile in registers, over words one by one. `unrolled`: keys or columns of a panel.
void sums_in_registers(Halide::Stage f, const QueryLanesStages &s, const QueryLanesStages::PartLoop &loop, const Var &unrolled, int vec) {
    const bool one_vector = loop.part == TilePart::first || loop.part == TilePart::second;
    const RVar words = loop.domain;
    one_vector ? f.reorder(s.lane, unrolled, words) : f.reorder(s.lane, s.vector, unrolled, words).unroll(s.vector);
    f.vectorize(s.lane, vec).unroll(s.lane).unroll(unrolled);
}

// What is read of an extern stage has bounds of run time: its tile is told to be one.
void bound_by_tiles(Func f, const QueryLanesStages &s) {
    if (s.blocking.tiles) {
        f.bound_extent(s.qi, s.blocking.q_tile);
    }
}

// Parts of rotated pairs: both of a pair together, pairs side by side.
void rotate(Func f, const QueryLanesStages &s, int vec) {
    f.update().reorder(s.rotary.x, s.rotary.y).unroll(s.rotary.x).allow_race_conditions();
    f.update().vectorize(s.rotary.y, std::min(vec, s.rotary_dim / 2), TailStrategy::GuardWithIf);
}

// Computed once per chunk.
Func in_chunk(Func f, const QueryLanesStages &s) {
    return f.compute_at(s.merged, s.merge.z);
}

// max or sum over the keys of a chunk: one addition waits for the one before it, so several of them run side by side.
void reduce_keys(Func f, const RVar &keys, QueryLanesStages &s, int vec) {
    const int chains = chains_of(s.blocking.kv_tile);
    RVar outer("outer"), inner("inner");
    Var chain("chain");
    lanes(in_chunk(f, s), s, vec);
    if (chains == 1) {
        lanes(f.update().reorder(s.qi, keys), s, vec);
        return;
    }
    Func parts = f.update().split(keys, outer, inner, chains).rfactor(inner, chain);
    lanes(in_chunk(parts, s), s, vec).unroll(chain);
    lanes(parts.update().reorder(s.qi, chain, outer), s, vec).unroll(chain);
    lanes(f.update().reorder(s.qi, inner), s, vec).unroll(inner);
}

// A tile over pairs is read in rows as wide as a vector and shuffled in vectors.
void schedule_transposed_tile(TransposedTile &t, const LoopLevel &level, int vector_bytes) {
    const int width = vector_bytes / t.transposed.type().bytes();
    t.transposed.compute_at(level).bound_extent(t.kk, t.blocks * t.keys).bound_extent(t.qi, t.q_tile);
    t.transposed.update()
        .reorder(t.stored.x, t.stored.y, t.stored.z, t.stored.w)
        .unroll(t.stored.x)
        .unroll(t.stored.z)
        .allow_race_conditions();
    t.transposed.update().vectorize(t.stored.y, std::min(width, t.q_tile / 2));
    const LoopLevel in_block(t.transposed, RVar(t.stored.w));
    // A whole row of the chunk at a time: rows of a tensor are often a multiple of 4 KB apart, and reading one line
    // of each of 32 rows in turn neither fits L1 nor starts the prefetcher.
    t.rows.compute_at(level).bound_extent(t.kk, t.keys).bound_extent(t.block, t.blocks).bound_extent(t.qi, t.q_tile);
    t.rows.update(0).reorder(t.loaded.x, t.loaded.y, t.qi).vectorize(t.loaded.x);
    t.rows.update(1).reorder(t.last_loaded.x, t.last_loaded.y, t.qi).vectorize(t.last_loaded.x);
    for (size_t i = 0; i < t.shuffles.size(); i++) {
        const Halide::RDom &r = t.domains[i];
        t.shuffles[i].compute_at(in_block).bound_extent(t.f, t.q_tile * t.keys);
        t.shuffles[i].update().reorder(r.x, r.y, r.z).unroll(r.x).unroll(r.z).allow_race_conditions().vectorize(r.y);
    }
}

// Rows of the tile side by side. In registers transposing costs 1.5 instead of 5.5 % of 12 heads, 128 x 128, d 64.
void schedule_query(QueryLanesStages &s, const LoopLevel &level, int vec) {
    s.query_tile.compute_at(level).reorder_storage(s.qi, s.d).bound_extent(s.qi, s.blocking.q_tile);
    if (!s.query_squares) {
        s.query_tile.reorder(s.d, s.qi).vectorize(s.d, std::min(vec, s.head_dim), TailStrategy::GuardWithIf);
        if (s.rotary_dim > 0) {
            rotate(s.query_tile, s, vec);
        }
        return;
    }
    TransposedSquares &t = *s.query_squares;
    const LoopLevel square(s.query_tile, RVar(s.squares.z));
    s.query_tile.update().reorder(s.squares.x, s.squares.y, s.squares.z, s.squares.w);
    s.query_tile.update().allow_race_conditions().vectorize(s.squares.x).unroll(s.squares.y);
    schedule_square(t, square, std::min(t.side, s.blocking.row_words));
}

// Rows of out, from vectors of queries. What a square reads is normalised on the way.
void schedule_out_tile(QueryLanesStages &s, TransposedSquares &t, const LoopLevel &level) {
    const LoopLevel square(s.out_tile, RVar(s.out_squares.z));
    s.out_tile.compute_at(level).bound(s.d, 0, s.head_dim_v).bound_extent(s.qi, s.blocking.q_tile).bound_extent(s.qt, 1);
    s.out_tile.update().reorder(s.out_squares.x, s.out_squares.y, s.out_squares.z, s.out_squares.w);
    s.out_tile.update().allow_race_conditions().vectorize(s.out_squares.x).unroll(s.out_squares.y);
    schedule_square(t, square, t.side);
}

// What a chunk reads beside key and value as they lie.
void schedule_inputs(QueryLanesStages &s, int vec) {
    if (s.pages.defined()) {
        in_chunk(s.pages, s).bound_extent(s.slot, s.page_slots);
    }
    if (s.key_tile.defined()) {
        in_chunk(s.key_tile, s).bound_extent(s.kk, s.blocking.kv_tile).bound(s.d, 0, s.head_dim);
        s.key_tile.vectorize(s.d, std::min(vec, s.head_dim), TailStrategy::GuardWithIf);
        rotate(s.key_tile, s, vec);
    }
    if (s.key_words.defined()) {
        Var task("task");
        s.key_words.compute_root().bound(s.word, 0, s.head_dim / s.blocking.product.k);
        s.key_words.fuse(s.row, s.hkv, task)
            .fuse(task, s.b, task)
            .vectorize(s.word, std::min(vec, s.head_dim / s.blocking.product.k), TailStrategy::GuardWithIf);
        s.key_words.specialize(s.key_count >= most_serial_entries).parallel(task, rows_of_task);
        s.value_words.reorder_storage(s.word, s.d, s.hkv, s.b);
    }
    if (s.value_words.defined()) {
        Var task("task"), block("block"), word("word");
        s.value_words.compute_root().bound(s.d, 0, s.head_dim_v).bound(s.word, 0, s.last_value_word + 1);
        s.value_words.split(s.word, block, word, words_of_task, TailStrategy::GuardWithIf)
            .fuse(block, s.hkv, task)
            .fuse(task, s.b, task)
            .vectorize(s.d, std::min(vec, s.head_dim_v), TailStrategy::GuardWithIf);
        s.value_words.specialize(s.value_count >= most_serial_entries).parallel(task);
    }
    for (TransposedTile &tile : s.pair_tiles) {
        schedule_transposed_tile(tile, LoopLevel(s.merged, s.merge.z), s.blocking.transpose_bytes);
    }
    if (s.finds_clean) {
        Var task("task");
        s.chunk_bits.compute_root();
        s.value_bits.compute_root().bound(s.d, 0, s.head_dim_v).vectorize(s.d, std::min(vec, s.head_dim_v), TailStrategy::GuardWithIf);
        s.value_bits.update().reorder(s.d, s.value_rows).vectorize(s.d, std::min(vec, s.head_dim_v), TailStrategy::GuardWithIf);
        s.value_bits.update().fuse(s.hkv, s.b, task).parallel(task);
    }
}

void schedule_chunk(QueryLanesStages &s, int vec) {
    const int q_tile = s.blocking.q_tile, pair = s.blocking.product.k;
    in_chunk(s.logits, s).bound_extent(s.kk, s.blocking.kv_tile).bound_extent(s.qi, q_tile);
    lanes(s.logits.update().reorder(s.qi, s.key_blocks.x, s.key_blocks.y), s, vec).unroll(s.key_blocks.x);
    if (s.blocking.tiles) {
        in_chunk(s.scores, s).bound_extent(s.kk, s.blocking.kv_tile).bound_extent(s.qi, q_tile);
    } else {
        in_registers(s.scores.compute_at(s.logits, s.key_blocks.y), s, s.in_panel, s.blocking.key_panel, vec).bound_extent(s.panel, 1);
        for (Func f : {s.fetched, s.fetched_pairs}) {
            if (f.defined()) {
                f.compute_at(s.logits, s.key_blocks.y).bound_extent(s.panel, 1);
            }
        }
        const int panels = s.blocking.kv_tile / s.blocking.key_panel;
        for (size_t i = 0; i < s.score_loops.size(); i++) {
            Func words = s.score_loops[i].words;
            sums_in_registers(s.scores.update(int(i)), s, s.score_loops[i], s.in_panel, vec);
            if (words.defined()) {
                in_chunk(words, s).bound(s.panel, 0, panels).vectorize(s.panel, std::min(panels, vec), TailStrategy::GuardWithIf);
            }
        }
    }
    for (Func f : {s.row_max, s.row_reference, s.row_sum}) {
        bound_by_tiles(f, s);
    }
    lanes(in_chunk(s.row_reference, s), s, vec);
    reduce_keys(s.row_max, s.keys, s, vec);
    if (s.chunk_words.defined()) {
        lanes(in_chunk(s.row_sum, s), s, vec);
        lanes(s.row_sum.update().reorder(s.qi, RVar(s.chunk_words)), s, vec);
    } else {
        reduce_keys(s.row_sum, s.keys, s, vec);
    }
    if (s.keeps_exact_sum) {
        bound_by_tiles(s.exact_sum, s);
        lanes(in_chunk(s.exact_sum, s), s, vec);
        lanes(s.exact_sum.update().reorder(s.qi, s.keys), s, vec);
        in_chunk(s.prob_floats, s).bound_extent(s.kk, s.blocking.kv_tile).bound_extent(s.qi, q_tile);
        lanes(s.prob_floats.update().reorder(s.qi, s.float_blocks.x, s.float_blocks.y), s, vec)
            .unroll(s.float_blocks.x, std::min(2, s.blocking.key_panel));
    }
    in_chunk(s.probs, s).bound_extent(s.kk, s.blocking.kv_tile / pair).bound_extent(s.qi, q_tile);
    lanes(s.probs.update().reorder(s.qi, s.prob_blocks.x, s.prob_blocks.y), s, vec)
        .unroll(s.prob_blocks.x, std::min(2, s.blocking.key_panel / pair));
    if (s.kept_probs.defined()) {
        const Halide::RDom &r = s.dropout_groups;
        in_chunk(s.kept_probs, s).bound_extent(s.kk, s.blocking.kv_tile).bound_extent(s.qi, q_tile);
        lanes(s.kept_probs.update().reorder(s.qi, r.x, r.y, r.z), s, vec).unroll(r.x);
        lanes(s.dropout_words.compute_at(s.kept_probs, RVar(r.y)).bound_extent(s.qi, q_tile), s, vec);
    }
    in_registers(s.acc.compute_at(s.merged, s.merge.y), s, s.d, s.blocking.value_panel, vec);
    for (size_t i = 0; i < s.acc_loops.size(); i++) {
        sums_in_registers(s.acc.update(int(i)), s, s.acc_loops[i], s.d, vec);
    }
    if (s.blocking.tiles) {
        in_chunk(s.value_products, s).bound(s.d, 0, s.head_dim_v).bound_extent(s.qi, q_tile);
    }
    schedule_inputs(s, vec);
}

void schedule_merge(QueryLanesStages &s, const LoopLevel &level, int vec) {
    const int panel = s.blocking.value_panel, first_column = -panel * s.number_panels();
    s.merged.compute_at(level).bound_extent(s.qi, s.blocking.q_tile).bound(s.x, first_column, panel * s.value_panels() - first_column);
    lanes(s.merged, s, vec);
    lanes(s.merged.update().reorder(s.qi, s.merge.x, s.merge.y, s.merge.z), s, vec).unroll(s.merge.x).never_partition({s.merge.z});
    if (s.own_lengths) { // of several loops over the one tile T_kv would choose, and LLVM adds up in another order in each
        s.merged.update().never_partition({s.qt});
    }
}

} // namespace

void schedule_query_lanes(QueryLanesStages &s, const AttentionOut &o, const Machine &machine) {
    const int vec = machine.lanes, q_tile = s.blocking.q_tile;
    Var tile("tile"), q_outer("q_outer"), q_inner("q_inner");
    Func out = o.func;
    out.split(o.q, q_outer, q_inner, q_tile, TailStrategy::GuardWithIf)
        .reorder(o.d, q_inner, q_outer, o.h, o.b)
        .fuse(q_outer, o.h, tile)
        .fuse(tile, o.b, tile)
        .parallel(tile)
        .vectorize(o.d, std::min(vec, o.columns), TailStrategy::GuardWithIf);
    if (s.normalised_squares) {
        schedule_out_tile(s, *s.normalised_squares, LoopLevel(out, tile));
    } else {
        s.normalised.compute_at(out, tile).bound_extent(s.qi, q_tile).bound_extent(s.qt, 1);
        lanes(s.normalised, s, vec);
    }
    lanes(s.out_factor.compute_at(out, tile), s, vec);
    for (Func f : s.rows.funcs()) {
        bound_by_tiles(f, s);
        lanes(f.compute_at(out, tile), s, vec);
    }
    for (Func f : {s.first_end, s.second_begin, s.vectors_with_rows}) {
        if (f.defined()) {
            f.compute_at(out, tile);
        }
    }
    if (s.score_factor.defined()) {
        s.score_factor.compute_at(out, tile);
    }
    schedule_query(s, LoopLevel(out, tile), vec);
    schedule_merge(s, LoopLevel(out, tile), vec);
    schedule_chunk(s, vec);
}

} // namespace polyhead::gen

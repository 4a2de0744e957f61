// Frame "query lanes": attention over a tile of queries, chunk by chunk of keys, with exact exclusion.
#include "query_lanes.h"

namespace polyhead::gen {

using Halide::clamp;
using Halide::Expr;
using Halide::max;
using Halide::min;
using Halide::RDom;
using Halide::select;
using Halide::undef;

namespace {

// The coordinates of the frame: clamped positions, and whether the ends of a tile are visible.
struct Coordinates {
    const AttentionFormulas &formulas;
    QueryLanesBlocking blocking;

    // Rows beyond the last query repeat it, so that they never require more keys than a real row.
    Expr query(const Expr &qi, const Expr &qt) const { return min(qt * blocking.q_tile + qi, formulas.inputs().seq_len_q - 1); }
    Expr key(const Expr &kk, const Expr &c) const { return c * blocking.kv_tile + kk; }
    Expr clamped_key(const Expr &kk, const Expr &c) const { return formulas.inputs().keys.row(key(kk, c)); }
    Expr first_query(const Expr &qt) const { return query(0, qt); }
    Expr last_query(const Expr &qt) const { return query(blocking.q_tile - 1, qt); }
    TileRange range(const Expr &qt, const Expr &b) const { return {formulas, first_query(qt), last_query(qt), b}; }
    Expr kv_head(const Expr &h) const { return h / formulas.group_size(); }
};

// query_tile = query in the unit of scores, transposed: rows of the tile lie side by side. key_tile: keys of a chunk, rotated.
void define_query_and_key(QueryLanesStages &s, const Coordinates &at) {
    const auto &formulas = at.formulas;
    const auto &[qi, d, kk, c, qt, h, b] = std::tie(s.qi, s.d, s.kk, s.c, s.qt, s.h, s.b);
    const Expr q = at.query(qi, qt);
    const int lanes = at.blocking.lanes();
    if (!formulas.rotates() && s.head_dim >= lanes) {
        auto source = [&](const Expr &entry, const Expr &row) {
            return formulas.plain_query(entry, at.query(s.vector * lanes + row, qt), h, b);
        };
        s.query_squares = transpose_squares("query", lanes, s.head_dim, {s.vector, qt, h, b}, source);
        s.squares = RDom(0, lanes, 0, lanes, 0, s.query_squares->blocks(), 0, at.blocking.q_tile / lanes, "squares");
        const Expr lane = s.squares.x, column = s.squares.y, block = s.squares.z, vector = s.squares.w;
        s.query_tile(qi, d, qt, h, b) = undef<float>();
        s.query_tile(vector * lanes + lane, s.query_squares->first_column(block) + column, qt, h, b) =
            s.query_squares->transposed()(column * lanes + lane, block, vector, qt, h, b);
        return;
    }
    const bool all_rotated = formulas.rotates() && formulas.rotary_dim() == formulas.problem().head_dim;
    s.query_tile(qi, d, qt, h, b) = all_rotated ? undef<float>() : formulas.plain_query(d, q, h, b);
    if (!formulas.rotates()) {
        return;
    }
    s.rotary = RDom(0, 2, 0, formulas.rotary_dim() / 2, "rotary");
    const Expr part = s.rotary.x, pair = s.rotary.y, entry = formulas.rotary_entry(part, pair), key = at.clamped_key(kk, c);
    s.query_tile(qi, entry, qt, h, b) = formulas.rotated_query(part, pair, q, h, b);
    s.key_tile(d, kk, c, qt, h, b) = all_rotated ? undef<float>() : formulas.inputs().keys.key(d, key, at.kv_head(h), b);
    s.key_tile(entry, kk, c, qt, h, b) = formulas.rotated_key(part, pair, key, at.kv_head(h), b);
}

// Elements of the pair tensors for a key of a chunk: transposed tiles of those that differ by query, others as they lie.
std::vector<Expr> define_pairs(QueryLanesStages &s, const Coordinates &at, const Expr &key_in_chunk) {
    const auto &[qi, c, qt, h, b] = std::tie(s.qi, s.c, s.qt, s.h, s.b);
    const Expr last = at.formulas.inputs().seq_len_kv - 1;
    std::vector<Expr> elements;
    for (const PairTensor &tensor : at.formulas.pair_tensors()) {
        if (!tensor.per_query) {
            elements.push_back(tensor.at(min(at.key(key_in_chunk, c), last), 0, h, b));
            continue;
        }
        auto source = [&](const Expr &kk_, const Expr &row, bool clamped) {
            const Expr key = at.key(kk_, c);
            return tensor.at(clamped ? min(key, last) : Halide::unsafe_promise_clamped(key, 0, last), at.query(row, qt), h, b);
        };
        auto inside = [&](const Expr &behind) { return at.key(behind, c) <= last + 1; };
        const int keys = at.blocking.transpose_bytes / tensor.type.bytes();
        auto where = [&](RDom *domain, const Expr &first) { at.range(qt, b).limit(domain, at.key(first, c), at.key(first, c) + keys); };
        const int blocks = (at.blocking.kv_tile + keys - 1) / keys;
        s.pair_tiles.push_back(transpose_tile(tensor.name, at.blocking.q_tile, keys, blocks, {c, qt, h, b}, source, inside, where));
        elements.push_back(s.pair_tiles.back().transposed(qi, key_in_chunk, c, qt, h, b));
    }
    return elements;
}

void define_scores(QueryLanesStages &s, const Coordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &[qi, kk, c, qt, h, b] = std::tie(s.qi, s.kk, s.c, s.qt, s.h, s.b);
    // scores = query_tile . key
    s.rd = RDom(0, formulas.problem().head_dim / blocking.products, "rd");
    Expr products;
    for (int i = 0; i < blocking.products; i++) {
        const Expr d = blocking.products == 1 ? Expr(s.rd) : s.rd * blocking.products + i;
        const Expr key_entry = formulas.rotates() ? Expr(s.key_tile(d, kk, c, qt, h, b))
                                                  : formulas.inputs().keys.key(d, at.clamped_key(kk, c), at.kv_head(h), b);
        const Expr product = s.query_tile(qi, d, qt, h, b) * key_entry;
        products = products.defined() ? products + product : product;
    }
    s.scores(qi, kk, c, qt, h, b) = 0.0f;
    s.scores(qi, kk, c, qt, h, b) += products;
    // logits = scores, modified, where the row sees the key; blocks of keys that no row sees are not computed
    s.key_blocks = RDom(0, blocking.key_panel, 0, blocking.kv_tile / blocking.key_panel, "key_blocks");
    const Expr block = at.key(s.key_blocks.y * blocking.key_panel, c);
    at.range(qt, b).limit(&s.key_blocks, block, block + blocking.key_panel);
    Expr key = s.key_blocks.x + blocking.key_panel * s.key_blocks.y;
    s.logits(qi, kk, c, qt, h, b) = undef<float>();
    s.logits(qi, key, c, qt, h, b) = formulas.logit(s.scores(qi, key, c, qt, h, b), s.rows.at({qi, qt, b}, qt * blocking.q_tile + qi),
                                                    at.key(key, c), h, b, define_pairs(s, at, key), formulas.rows_differ());
}

void define_softmax(QueryLanesStages &s, const Coordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &[qi, kk, c, qt, h, b] = std::tie(s.qi, s.kk, s.c, s.qt, s.h, s.b);
    s.keys = RDom(0, blocking.kv_tile, "keys");
    at.range(qt, b).limit(&s.keys, at.key(s.keys, c), at.key(s.keys, c) + 1);
    // row_max = max over keys of logits; row_reference = what probs are relative to
    s.row_max(qi, c, qt, h, b) = row_reference_floor;
    s.row_max(qi, c, qt, h, b) = max(s.row_max(qi, c, qt, h, b), s.logits(qi, s.keys, c, qt, h, b));
    s.row_reference(qi, c, qt, h, b) = formulas.reference(s.row_max(qi, c, qt, h, b));
    // probs = power(logits - row_reference)
    s.prob_blocks = RDom(0, blocking.key_panel, 0, blocking.kv_tile / blocking.key_panel, "prob_blocks");
    const Expr block = at.key(s.prob_blocks.y * blocking.key_panel, c);
    at.range(qt, b).limit(&s.prob_blocks, block, block + blocking.key_panel);
    Expr key = s.prob_blocks.x + blocking.key_panel * s.prob_blocks.y;
    s.probs(qi, kk, c, qt, h, b) = undef<float>();
    s.probs(qi, key, c, qt, h, b) = formulas.power(s.logits(qi, key, c, qt, h, b) - s.row_reference(qi, c, qt, h, b));
    // row_sum = sum over keys of probs
    s.row_sum(qi, c, qt, h, b) = 0.0f;
    s.row_sum(qi, c, qt, h, b) += s.probs(qi, s.keys, c, qt, h, b);
}

// Largest |value| of a chunk of keys, as the integer of its bits: from there on all are finite or some are not.
Expr define_clean(QueryLanesStages &s, const Coordinates &at) {
    const auto &[d, c, hkv, b] = std::tie(s.d, s.c, s.hkv, s.b);
    auto magnitude = [](const Expr &x) { return Halide::reinterpret<int32_t>(x) & 0x7fffffff; };
    s.value_rows = RDom(0, at.blocking.kv_tile, "value_rows");
    s.value_columns = RDom(0, s.head_dim_v, "value_columns");
    s.value_bits(d, c, hkv, b) = 0;
    s.value_bits(d, c, hkv, b) =
        max(s.value_bits(d, c, hkv, b), magnitude(at.formulas.inputs().keys.value(d, at.clamped_key(s.value_rows, c), hkv, b)));
    s.chunk_bits(c, hkv, b) = 0;
    s.chunk_bits(c, hkv, b) = max(s.chunk_bits(c, hkv, b), s.value_bits(s.value_columns, c, hkv, b));
    constexpr int infinity = 0x7f800000;
    return s.chunk_bits(c, at.kv_head(s.h), b) < infinity;
}

void define_chunk_out(QueryLanesStages &s, const Coordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &in = formulas.inputs();
    const auto &[qi, d, c, qt, h, b] = std::tie(s.qi, s.d, s.c, s.qt, s.h, s.b);
    // acc = sum over keys of probs * value; the padding columns of the last panel repeat the last column
    Expr column = min(d, s.head_dim_v - 1);
    s.finds_clean = formulas.excludes_pairs();
    s.value_keys = TileKeys(formulas, blocking.kv_tile, at.key(0, c), at.range(qt, b), s.finds_clean ? define_clean(s, at) : Expr());
    s.acc(qi, d, c, qt, h, b) = 0.0f;
    for (const RDom *keys : s.value_keys.loops()) {
        const Expr key = *keys, value = in.keys.value(column, at.clamped_key(key, c), at.kv_head(h), b);
        s.acc(qi, d, c, qt, h, b) =
            s.value_keys.accumulate(keys, s.acc(qi, d, c, qt, h, b), s.probs(qi, key, c, qt, h, b), value, s.logits(qi, key, c, qt, h, b));
    }
    s.chunk_out(qi, d, c, qt, h, b) = s.acc(qi, d, c, qt, h, b);
}

void define_merge(QueryLanesStages &s, const Coordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &[qi, x, m, g, qt, h, b] = std::tie(s.qi, s.x, s.m, s.g, s.qt, s.h, s.b);
    const int sum_column = s.head_dim_v, reference_column = s.head_dim_v + 1;
    auto chunk = [&](const Expr &in_group) { return g * blocking.merge_group + in_group; };
    // partial = what a chunk leaves: acc, row_sum, row_reference
    s.group_chunks = RDom(0, blocking.merge_group, "group_chunks");
    const Expr first_key = at.key(0, chunk(s.group_chunks));
    at.range(qt, b).limit(&s.group_chunks, first_key, first_key + blocking.kv_tile);
    const Expr rm = s.group_chunks, rc = chunk(rm);
    s.partial(qi, x, m, g, qt, h, b) = undef<float>();
    s.partial(qi, x, rm, g, qt, h, b) = select(x < s.head_dim_v, Halide::likely(s.chunk_out(qi, min(x, s.head_dim_v - 1), rc, qt, h, b)), //
                                               x == sum_column, s.row_sum(qi, rc, qt, h, b), s.row_reference(qi, rc, qt, h, b));
    // group: reference = max, weight = rescaling(reference of chunk - reference of group), acc and row_sum weighted
    s.group_reference(qi, g, qt, h, b) = row_reference_floor;
    s.group_reference(qi, g, qt, h, b) = max(s.group_reference(qi, g, qt, h, b), s.partial(qi, reference_column, rm, g, qt, h, b));
    s.weight(qi, m, g, qt, h, b) = formulas.rescaling(s.partial(qi, reference_column, m, g, qt, h, b) - s.group_reference(qi, g, qt, h, b));
    s.group_acc(qi, x, g, qt, h, b) = 0.0f;
    s.group_acc(qi, x, g, qt, h, b) += s.weight(qi, rm, g, qt, h, b) * s.partial(qi, x, rm, g, qt, h, b);
    if (s.single_group) {
        s.merged(qi, x, qt, h, b) = select(x < reference_column, Halide::likely(s.group_acc(qi, min(x, sum_column), 0, qt, h, b)),
                                           s.group_reference(qi, 0, qt, h, b));
        return;
    }
    // merged = groups one after another. Per group the factors of what is there and of what is added are written first, in two columns
    // before the others, and the reference last, so that the others still see the old one.
    const int group_keys = blocking.merge_group * blocking.kv_tile, keep_column = s.first_merge_column, add_column = keep_column + 1;
    s.merge_columns = RDom(keep_column, s.merge_columns_end() - keep_column, 0,
                           (formulas.inputs().seq_len_kv + group_keys - 1) / group_keys, "merge_columns");
    const Expr first_of_group = s.merge_columns.y * group_keys;
    at.range(qt, b).limit(&s.merge_columns, first_of_group, first_of_group + group_keys);
    const Expr rx = s.merge_columns.x, rg = s.merge_columns.y;
    s.merged(qi, x, qt, h, b) = select(x == reference_column, row_reference_floor, 0.0f);
    Expr before = s.merged(qi, reference_column, qt, h, b), added = s.group_reference(qi, rg, qt, h, b), now = max(before, added);
    const Expr factor = formulas.rescaling(select(rx == keep_column, before, added) - now);
    const Expr sum = s.merged(qi, rx, qt, h, b) * s.merged(qi, keep_column, qt, h, b) +
                     s.group_acc(qi, clamp(rx, 0, sum_column), rg, qt, h, b) * s.merged(qi, add_column, qt, h, b);
    s.merged(qi, rx, qt, h, b) = select(rx < 0, factor, select(rx < reference_column, Halide::likely(sum), now));
}

} // namespace

QueryLanesStages query_lanes(const AttentionFormulas &formulas, const QueryLanesBlocking &blocking) {
    QueryLanesStages s;
    const Problem &p = formulas.problem();
    s.blocking = blocking;
    s.head_dim = p.head_dim;
    s.head_dim_v = p.head_dim_v;
    s.rotary_dim = formulas.rotates() ? formulas.rotary_dim() : 0;
    s.single_group = p.seq_len_kv > 0 && p.seq_len_kv <= blocking.kv_tile * blocking.merge_group;
    Coordinates at{formulas, blocking};
    s.rows.define(formulas, {s.qi, s.qt, s.b}, at.query(s.qi, s.qt), s.b);
    define_query_and_key(s, at);
    define_scores(s, at);
    define_softmax(s, at);
    define_chunk_out(s, at);
    define_merge(s, at);
    // out = acc / row_sum
    const Expr reference = s.merged(s.qi, s.head_dim_v + 1, s.qt, s.h, s.b), sum = s.merged(s.qi, s.head_dim_v, s.qt, s.h, s.b);
    s.out_factor(s.qi, s.qt, s.h, s.b) = formulas.out_factor(reference, sum, s.h);
    s.normalised(s.qi, s.d, s.qt, s.h, s.b) = s.merged(s.qi, s.d, s.qt, s.h, s.b) * s.out_factor(s.qi, s.qt, s.h, s.b);
    return s;
}

Expr QueryLanesStages::out_of(const AttentionFormulas &, const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    return normalised(q % blocking.q_tile, d, q / blocking.q_tile, h, b);
}

Expr QueryLanesStages::reference_of(const Expr &q, const Expr &h, const Expr &b) const {
    return merged(q % blocking.q_tile, head_dim_v + 1, q / blocking.q_tile, h, b);
}

Expr QueryLanesStages::sum_of(const Expr &q, const Expr &h, const Expr &b) const {
    return merged(q % blocking.q_tile, head_dim_v, q / blocking.q_tile, h, b);
}

std::vector<Halide::Func> QueryLanesStages::funcs() const {
    std::vector<Halide::Func> all = rows.funcs();
    if (query_squares) {
        const std::vector<Halide::Func> steps = query_squares->funcs();
        all.insert(all.end(), steps.begin(), steps.end());
    }
    all.push_back(query_tile);
    if (key_tile.defined()) {
        all.push_back(key_tile);
    }
    for (const TransposedTile &tile : pair_tiles) {
        const std::vector<Halide::Func> steps = tile.funcs();
        all.insert(all.end(), steps.begin(), steps.end());
    }
    if (finds_clean) {
        all.insert(all.end(), {value_bits, chunk_bits});
    }
    all.insert(all.end(), {scores, logits, row_max, row_reference, probs, row_sum, acc, chunk_out, partial, group_reference, weight,
                           group_acc, merged, out_factor, normalised});
    return all;
}

} // namespace polyhead::gen

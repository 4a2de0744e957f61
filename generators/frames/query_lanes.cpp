// Frame "query lanes": attention over a tile of queries, chunk by chunk of keys, with exact exclusion.
#include "query_lanes_coordinates.h"

#include "../formulas/infinity.h"

namespace polyhead::gen {

using Halide::clamp;
using Halide::Expr;
using Halide::max;
using Halide::min;
using Halide::RDom;
using Halide::select;
using Halide::undef;

namespace {

// A word of several elements has them as they are stored, so that they are not rounded: its scores are scaled afterwards.
Expr query_word(const QueryLanesCoordinates &at, const Expr &entry, const Expr &row, const Expr &h, const Expr &b) {
    const LaneProduct &product = at.blocking.query_product;
    const auto &stored = at.formulas.inputs().stored_query;
    return product.k == 1 ? at.formulas.operands().plain_query(entry, row, h, b)
                          : product.word([&](int part) { return stored(product.k * entry + part, row, h, b); });
}

// query_tile = query in the unit of scores, transposed: rows of the tile lie side by side. key_tile: keys of a chunk, rotated.
void define_query_and_key(QueryLanesStages &s, const QueryLanesCoordinates &at) {
    const auto &formulas = at.formulas;
    const auto &[qi, d, kk, c, qt, h, b] = std::tie(s.qi, s.d, s.kk, s.c, s.qt, s.h, s.b);
    const Expr q = at.query(qi, qt);
    const int lanes = at.blocking.lanes(), entries = s.head_dim / at.blocking.query_product.k;
    auto word = [&at, &s](const Expr &entry, const Expr &row) { return query_word(at, entry, row, s.h, s.b); };
    if (!formulas.rotation().active() && entries >= lanes) {
        auto source = [&](const Expr &entry, const Expr &row) { return word(entry, at.query(s.vector * lanes + row, qt)); };
        s.query_squares = transpose_squares("query", lanes, entries, {s.vector, qt, h, b}, source);
        s.squares = RDom(0, lanes, 0, lanes, 0, s.query_squares->blocks(), 0, at.blocking.q_tile / lanes, "squares");
        if (s.vectors_with_rows.defined()) {
            s.squares.where(s.squares.w < s.vectors_with_rows(qt, b));
        }
        const Expr lane = s.squares.x, column = s.squares.y, block = s.squares.z, vector = s.squares.w;
        s.query_tile(qi, d, qt, h, b) = undef(at.blocking.query_product.type);
        s.query_tile(vector * lanes + lane, s.query_squares->first_column(block) + column, qt, h, b) =
            s.query_squares->transposed()(column * lanes + lane, block, vector, qt, h, b);
        return;
    }
    if (!formulas.rotation().active()) {
        s.query_tile(qi, d, qt, h, b) = word(d, q);
        return;
    }
    const bool all_rotated = formulas.rotation().dim() == formulas.problem().head_dim;
    s.query_tile(qi, d, qt, h, b) = all_rotated ? undef<float>() : formulas.operands().plain_query(d, q, h, b);
    s.rotary = RDom(0, 2, 0, formulas.rotation().dim() / 2, "rotary");
    const Expr part = s.rotary.x, pair = s.rotary.y, entry = formulas.rotation().entry(part, pair), key = at.clamped_key(kk, c, qt, b);
    s.query_tile(qi, entry, qt, h, b) = formulas.operands().rotated_query(part, pair, q, h, b);
    s.key_tile(d, kk, c, qt, h, b) = all_rotated ? undef<float>() : formulas.inputs().keys.key(d, key, at.kv_head(h), b);
    s.key_tile(entry, kk, c, qt, h, b) = formulas.operands().rotated_key(part, pair, key, at.kv_head(h), b);
}

// Elements of the pair tensors for a key of a chunk: transposed tiles of those that differ by query, others as they lie.
std::vector<Expr> define_pairs(QueryLanesStages &s, const QueryLanesCoordinates &at, const Expr &key_in_chunk) {
    const auto &[qi, c, qt, h, b] = std::tie(s.qi, s.c, s.qt, s.h, s.b);
    const Expr last = at.formulas.inputs().seq_len_kv - 1;
    std::vector<Expr> elements;
    for (const PairTensor &tensor : at.formulas.logits().pair_tensors()) {
        if (!tensor.per_query) {
            elements.push_back(tensor.at(min(at.key(key_in_chunk, c, qt, b), last), 0, h, b));
            continue;
        }
        auto source = [&](const Expr &kk_, const Expr &row, bool clamped) {
            const Expr key = at.key(kk_, c, qt, b);
            return tensor.at(clamped ? min(key, last) : Halide::unsafe_promise_clamped(key, 0, last), at.query(row, qt), h, b);
        };
        auto inside = [&](const Expr &behind) { return at.key(behind, c, qt, b) <= last + 1; };
        const int keys = at.blocking.transpose_bytes / tensor.storage.type.bytes();
        auto where = [&](RDom *domain, const Expr &first) {
            at.range(qt, b).limit(domain, at.key_of_chunk(first, c, qt, b), at.key_of_chunk(first, c, qt, b) + keys);
        };
        const int blocks = (at.blocking.kv_tile + keys - 1) / keys;
        s.pair_tiles.push_back(transpose_tile(tensor.name, at.blocking.q_tile, keys, blocks, {c, qt, h, b}, source, inside, where));
        elements.push_back(s.pair_tiles.back().transposed(qi, key_in_chunk, c, qt, h, b));
    }
    return elements;
}

// (entry in panel, panel) of the panels of a chunk, of key_panel keys each, that some row of the tile sees.
RDom panels(const QueryLanesStages &s, const QueryLanesCoordinates &at, const std::string &name, int entries) {
    const int keys = at.blocking.key_panel;
    RDom domain(0, entries, 0, at.blocking.kv_tile / keys, name);
    const Expr first = at.key_of_chunk(domain.y * keys, s.c, s.qt, s.b);
    if (!at.blocking.tiles) { // it reads the whole chunk
        at.range(s.qt, s.b).limit(&domain, first, first + keys);
    }
    return domain;
}

// The word of a key as it is stored.
Expr stored_key_word(const QueryLanesCoordinates &at, const KeySource &keys, const Expr &word, const Expr &row, const Expr &hkv,
                     const Expr &b) {
    const LaneProduct &product = at.blocking.query_product;
    return product.word([&](int part) { return keys.stored_key(product.k * word + part, row, hkv, b); });
}

// scores = query_tile . key
void define_scores(QueryLanesStages &s, const QueryLanesCoordinates &at, const KeySource &keys, const std::vector<TilePart> &parts) {
    const auto &[formulas, blocking] = at;
    const auto &[qi, kk, c, qt, h, b] = std::tie(s.qi, s.kk, s.c, s.qt, s.h, s.b);
    const LaneProduct &product = blocking.query_product;
    if (blocking.tiles) {
        const AttentionInputs &in = formulas.inputs();
        const int entries = s.head_dim / product.k;
        s.key_words(s.word, s.row, s.hkv, b) = stored_key_word(at, keys, s.word, s.row, s.hkv, b);
        s.key_count = keys.rows() * entries * in.num_kv_heads * in.batch;
        s.scores.define_extern(blocking.tiles->helper("scores"),
                               {s.key_words, s.query_tile, blocking.kv_tile, formulas.group_size(), keys.rows(), entries},
                               Halide::Float(32), {qi, kk, c, qt, h, b});
        return;
    }
    const Expr key_in_chunk = s.panel * blocking.key_panel + s.in_panel;
    const auto &table = formulas.inputs().keys.page_table();
    const Expr last = table ? table->existing(formulas.inputs().seq_len_kv, b) : keys.rows() - 1;
    auto key_word = [&](const Expr &d) -> Expr {
        // Panels that end before the last key have a loop of their own, without clamps.
        const Expr row = min(Halide::likely(at.key(key_in_chunk, c, qt, b)), last), hkv = at.kv_head(h);
        return formulas.rotation().active() ? Expr(s.key_tile(d, key_in_chunk, c, qt, h, b))
               : product.k == 1             ? keys.key(d, row, hkv, b)
                                            : stored_key_word(at, keys, d, row, hkv, b);
    };
    Expr none = 0.0f;
    const bool reads_as_stored = product.k > 1 && table; // little latency to hide; prefetching costs 2 to 5 %
    const auto &whole = formulas.inputs().whole;
    if (whole && whole->query.defined() && !reads_as_stored) {
        define_fetched(s, at);
        const Expr fetched = s.fetched(s.panel, c, qt, h, b);
        none = Halide::cast<float>(s.fetched_pairs.defined() ? fetched + s.fetched_pairs(s.panel, c, qt, h, b) : fetched);
    }
    s.scores(s.lane, s.vector, s.in_panel, s.panel, c, qt, h, b) = none;
    const Expr first_key = at.key_of_chunk(s.panel * blocking.key_panel, c, qt, b);
    for (const TilePart part : parts) {
        const int entries = s.head_dim / product.k / blocking.products;
        RDom rd(0, entries, "rd");
        Halide::Func words_of_part;
        if (part != TilePart::whole) { // the end of the loop: Halide 21 would test a plain condition at every multiply-add
            words_of_part = Halide::Func("words_of_part");
            words_of_part(s.panel, c, qt, b) = select(in_part(s, part, first_key, first_key + (blocking.key_panel - 1)), entries, 0);
            rd.where(rd < words_of_part(s.panel, c, qt, b));
        }
        const Expr vector = vector_of(s, part), score = s.scores(s.lane, vector, s.in_panel, s.panel, c, qt, h, b);
        auto query_word_at = [&](const Expr &d) { return s.query_tile(s.row_of(vector), d, qt, h, b); };
        Expr products;
        for (int i = 0; blocking.products > 1 && i < blocking.products; i++) {
            const Expr d = rd * blocking.products + i, product = query_word_at(d) * key_word(d);
            products = products.defined() ? products + product : product;
        }
        s.scores(s.lane, vector, s.in_panel, s.panel, c, qt, h, b) =
            products.defined() ? score + products : product.add_products(score, query_word_at(rd), key_word(rd));
        s.score_loops.push_back({part, rd, words_of_part});
    }
}

// logits = scores, modified, where the row sees the key; blocks of keys that no row sees are not computed
void define_logits(QueryLanesStages &s, const QueryLanesCoordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &[qi, kk, c, qt, h, b] = std::tie(s.qi, s.kk, s.c, s.qt, s.h, s.b);
    const LaneProduct &product = blocking.query_product;
    s.key_blocks = panels(s, at, "key_blocks", blocking.key_panel);
    Expr key = s.key_blocks.x + blocking.key_panel * s.key_blocks.y;
    s.logits(qi, kk, c, qt, h, b) = undef<float>();
    const int lanes = blocking.tile_lanes();
    const Expr score =
        blocking.tiles ? s.scores(qi, key, c, qt, h, b) : s.scores(qi % lanes, qi / lanes, s.key_blocks.x, s.key_blocks.y, c, qt, h, b);
    if (product.k > 1) {
        s.score_factor() = formulas.operands().query_factor(); // a Func, or Halide 21 multiplies every score by each of its factors
    }
    s.logits(qi, key, c, qt, h, b) =
        formulas.logits().logit(product.k == 1 ? score : score * s.score_factor(), s.rows.at({qi, qt, b}, qt * blocking.q_tile + qi),
                                at.key(key, c, qt, b), h, b, define_pairs(s, at, key), formulas.visibility().rows_differ());
}

void define_softmax(QueryLanesStages &s, const QueryLanesCoordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &[qi, kk, c, qt, h, b] = std::tie(s.qi, s.kk, s.c, s.qt, s.h, s.b);
    s.keys = RDom(0, blocking.kv_tile, "keys");
    at.range(qt, b).limit(&s.keys, at.key_of_chunk(s.keys, c, qt, b), at.key_of_chunk(s.keys, c, qt, b) + 1);
    // row_max = max over keys of logits; row_reference = what probs are relative to
    s.row_max(qi, c, qt, h, b) = row_reference_floor;
    s.row_max(qi, c, qt, h, b) = max(s.row_max(qi, c, qt, h, b), s.logits(qi, s.keys, c, qt, h, b));
    s.row_reference(qi, c, qt, h, b) = formulas.softmax().reference(s.row_max(qi, c, qt, h, b));
    // probs = power(logits - row_reference)
    const LaneProduct &product = blocking.product;
    s.prob_blocks = panels(s, at, "prob_blocks", blocking.key_panel / product.k);
    Expr word = s.prob_blocks.x + blocking.key_panel / product.k * s.prob_blocks.y;
    auto difference = [&](const Expr &key) { return s.logits(qi, key, c, qt, h, b) - s.row_reference(qi, c, qt, h, b); };
    s.probs(qi, kk, c, qt, h, b) = undef(product.type);
    // row_sum = sum over keys of probs
    s.row_sum(qi, c, qt, h, b) = 0.0f;
    if (product.k == 1) {
        s.probs(qi, word, c, qt, h, b) = formulas.softmax().power(difference(word));
        s.row_sum(qi, c, qt, h, b) += s.probs(qi, s.keys, c, qt, h, b);
        return;
    }
    // Where rows do not differ, no logit says that the second key of the last word does not exist; nor with tiles, which read the whole
    // chunk, that any of its keys does not.
    auto existing = [&](const Expr &key, const Expr &value) {
        return formulas.visibility().rows_differ() && !blocking.tiles
                   ? value
                   : select(Halide::likely(at.key(key, c, qt, b) < at.range(qt, b).end_some), value, 0.0f);
    };
    auto first_existing = [&](const Expr &key, const Expr &value) { return blocking.tiles ? existing(key, value) : value; };
    const Expr first = 2 * word, second = first + 1;
    s.chunk_words = RDom(0, blocking.kv_tile / product.k, "chunk_words");
    const Expr first_key = at.key_of_chunk(s.chunk_words * product.k, c, qt, b);
    at.range(qt, b).limit(&s.chunk_words, first_key, first_key + product.k);
    if (s.keeps_exact_sum) {
        s.float_blocks = panels(s, at, "float_blocks", blocking.key_panel);
        const Expr place = s.float_blocks.x + blocking.key_panel * s.float_blocks.y;
        s.prob_floats(qi, kk, c, qt, h, b) = undef<float>();
        s.prob_floats(qi, place, c, qt, h, b) = formulas.softmax().power(difference(place));
        s.probs(qi, word, c, qt, h, b) = product.round(
            {first_existing(first, s.prob_floats(qi, first, c, qt, h, b)), existing(second, s.prob_floats(qi, second, c, qt, h, b))});
        s.exact_sum(qi, c, qt, h, b) = 0.0f;
        s.exact_sum(qi, c, qt, h, b) += s.prob_floats(qi, s.keys, c, qt, h, b);
    } else {
        s.probs(qi, word, c, qt, h, b) = product.cut({first_existing(first, formulas.softmax().power_to_cut(difference(first))),
                                                      existing(second, formulas.softmax().power_to_cut(difference(second)))});
    }
    // Of the rounded probs, so that weights sum to 1.
    s.row_sum(qi, c, qt, h, b) = product.add_products(s.row_sum(qi, c, qt, h, b), s.probs(qi, s.chunk_words, c, qt, h, b), product.ones);
}

// Largest |value| of a chunk of keys, as the integer of its bits: from there on all are finite or some are not.
Expr define_clean(QueryLanesStages &s, const QueryLanesCoordinates &at) {
    const auto &[d, c, hkv, b] = std::tie(s.d, s.c, s.hkv, s.b);
    const KeySource &keys = at.formulas.inputs().keys;
    s.value_rows = RDom(0, at.blocking.kv_tile, "value_rows");
    s.value_columns = RDom(0, s.head_dim_v, "value_columns");
    s.value_bits(d, c, hkv, b) = 0;
    s.value_bits(d, c, hkv, b) =
        max(s.value_bits(d, c, hkv, b), magnitude_bits(keys.value(d, keys.row(c * at.blocking.kv_tile + s.value_rows), hkv, b)));
    s.chunk_bits(c, hkv, b) = 0;
    s.chunk_bits(c, hkv, b) = max(s.chunk_bits(c, hkv, b), s.value_bits(s.value_columns, c, hkv, b));
    return s.chunk_bits(min(at.first_chunk(s.qt, b) + c, max(at.all_chunks(), 1) - 1), at.kv_head(s.h), b) < infinity_bits;
}

// Values of neighbouring keys in one word; 0 beyond the last key, whose prob is undefined. With tiles those that are finite or those that
// are not, and 0 in place of the others.
enum class Values { all, finite, special };
Expr value_word(const QueryLanesCoordinates &at, Values which, const Expr &d, const Expr &word, const Expr &hkv, const Expr &b) {
    const KeySource &keys = at.formulas.inputs().keys;
    const int pair = at.blocking.product.k;
    auto value = [&](const Expr &key) {
        const Expr element = keys.stored_value(d, keys.row(key), hkv, b), zero = Halide::cast(element.type(), 0);
        const Expr exists = key < at.formulas.visibility().kv_length(b);
        if (which == Values::all) {
            return select(exists, element, zero);
        }
        const Expr exponent = Halide::cast(element.type(), 0x7f80), is_special = (element & exponent) == exponent;
        return select(exists && (which == Values::special ? is_special : !is_special), element, zero);
    };
    return at.blocking.product.word([&](int part) { return value(pair * word + part); });
}

void define_value_words(QueryLanesStages &s, const QueryLanesCoordinates &at) {
    const auto &[d, word, hkv, b] = std::tie(s.d, s.word, s.hkv, s.b);
    const KeySource &keys = at.formulas.inputs().keys;
    const int pair = at.blocking.product.k;
    s.value_words(d, word, hkv, b) = value_word(at, at.blocking.tiles ? Values::finite : Values::all, d, word, hkv, b);
    s.last_value_word = (keys.rows() + pair - 1) / pair - 1;
    const AttentionInputs &in = at.formulas.inputs();
    s.value_count = (s.last_value_word + 1) * s.head_dim_v * in.num_kv_heads * in.batch;
}

// Column of value that a place in a panel stands for. Columns of padding repeat the last one.
Expr value_column(const QueryLanesStages &s, const Expr &d, const Expr &panel) {
    return clamp(panel * s.blocking.value_panel + d, 0, s.head_dim_v - 1);
}

// acc where tiles multiply. A prob of 0 times a value that is not finite is NaN, also in rows that do not see the key. So tiles get the
// finite values of the whole chunk, whatever its rows see, and what is not finite is added afterwards, key by key, where there is any.
void define_tiles_acc(QueryLanesStages &s, const QueryLanesCoordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &[qi, d, vp, c, qt, h, b] = std::tie(s.qi, s.d, s.vp, s.c, s.qt, s.h, s.b);
    const LaneProduct &product = blocking.product;
    const int chunk_words = blocking.kv_tile / product.k;
    s.finds_clean = true;
    const Expr clean = define_clean(s, at);
    define_value_words(s, at);
    s.value_products.define_extern(blocking.tiles->helper("values"),
                                   {s.value_words, s.probs, chunk_words, formulas.group_size(), s.last_value_word + 1, s.head_dim_v},
                                   Halide::Float(32), {qi, d, c, qt, h, b});
    s.special_words = RDom(0, chunk_words, "special_words");
    const Expr word = s.special_words, first = at.key_of_chunk(word * product.k, c, qt, b);
    at.range(qt, b).limit(&s.special_words, first, first + product.k);
    s.special_words.where(!clean && vp >= 0);
    std::vector<Expr> dropped;
    for (int i = 0; i < product.k; i++) {
        dropped.push_back(Logits::excluded(s.logits(s.row_of(s.vector), word * product.k + i, c, qt, h, b)));
    }
    const Expr column = value_column(s, d, vp), tile_row = s.row_of(s.vector);
    const Expr special = value_word(at, Values::special, column, c * chunk_words + word, at.kv_head(h), b);
    s.acc(s.lane, s.vector, d, vp, c, qt, h, b) = s.value_products(tile_row, column, c, qt, h, b);
    s.acc(s.lane, s.vector, d, vp, c, qt, h, b) = product.add_products(
        s.acc(s.lane, s.vector, d, vp, c, qt, h, b), s.probs(tile_row, word, c, qt, h, b), product.drop(special, dropped));
    s.acc_loops.push_back({TilePart::whole, s.special_words, {}});
}

// acc = sum over the keys of a chunk of probs * value, for a panel of columns
void define_acc(QueryLanesStages &s, const QueryLanesCoordinates &at, const KeySource &rows, const std::vector<TilePart> &halves) {
    const auto &[formulas, blocking] = at;
    const auto &[d, vp, c, qt, h, b] = std::tie(s.d, s.vp, s.c, s.qt, s.h, s.b);
    const Expr column = value_column(s, d, vp);
    s.finds_clean = formulas.logits().excludes_pairs();
    const LaneProduct &product = blocking.product;
    const Expr clean = s.finds_clean ? define_clean(s, at) : Expr();
    s.acc(s.lane, s.vector, d, vp, c, qt, h, b) = 0.0f;
    if (product.k > 1) {
        define_value_words(s, at);
    }
    auto value_word = [&](const Expr &word) -> Expr {
        return product.k == 1
                   ? rows.value(column, s.pages.defined() ? at.key(word, c, qt, b) : at.existing_key(word, c, qt, b), at.kv_head(h), b)
                   : s.value_words(column, Halide::unsafe_promise_clamped(at.key(0, c, qt, b) / product.k + word, 0, s.last_value_word),
                                   at.kv_head(h), b);
    };
    auto keys_of = [&](TilePart part) {
        TileKeys keys(formulas, blocking.kv_tile, at.key_of_chunk(0, c, qt, b), at.range(qt, b), clean, product.k);
        // The panels before the first column hold numbers.
        keys.where([&](const Expr &first, const Expr &last) { return vp >= 0 && in_part(s, part, first, last); });
        return keys;
    };
    const Halide::Func probs = s.kept_probs.defined() ? s.kept_probs : s.probs;
    const bool cut = blocking.cuts_ends || !keys_of(TilePart::whole).has_high;
    const std::vector<TilePart> parts = cut ? halves : std::vector<TilePart>{TilePart::whole};
    std::vector<TileKeys> keys_of_part;
    for (const TilePart part : parts) {
        keys_of_part.push_back(keys_of(part));
    }
    for (size_t loop = 0; loop < keys_of_part.front().loops().size(); loop++) {
        for (size_t i = 0; i < parts.size(); i++) {
            const TilePart part = parts[i];
            const TileKeys &keys = keys_of_part[i];
            const RDom *domain = keys.loops()[loop];
            if (part == TilePart::second && domain == &keys.whole) {
                continue; // every row sees them
            }
            const Expr word = *domain, vector = vector_of(s, part), tile_row = s.row_of(vector);
            std::vector<Expr> logits;
            for (int k = 0; k < product.k; k++) {
                logits.push_back(s.logits(tile_row, word * product.k + k, c, qt, h, b));
            }
            s.acc(s.lane, vector, d, vp, c, qt, h, b) = keys.accumulate(domain, product, s.acc(s.lane, vector, d, vp, c, qt, h, b),
                                                                        probs(tile_row, word, c, qt, h, b), value_word(word), logits);
            s.acc_loops.push_back({part, *domain, {}});
        }
    }
}

// merged = chunks one after another. Numbers of a row come before its columns: the factors of what is there and of what a chunk adds, the
// sums, and last the reference, so that the factors still see the old one.
void define_merge(QueryLanesStages &s, const QueryLanesCoordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &[qi, x, qt, h, b] = std::tie(s.qi, s.x, s.qt, s.h, s.b);
    const int panel = blocking.value_panel;
    s.merge = RDom(0, panel, -s.number_panels(), s.number_panels() + s.value_panels(), 0, at.most_chunks(), "merge");
    const Expr vp = s.merge.y, c = s.merge.z, column = vp * panel + s.merge.x;
    s.merge.where(at.key_of_chunk(0, c, qt, b) < at.range(qt, b).end_some);
    const auto number = [&](const Expr &which) { return s.merged(qi, which, qt, h, b); };
    s.merged(qi, x, qt, h, b) = select(x != s.reference_column(), Halide::likely(Expr(0.0f)), row_reference_floor);
    const Expr before = number(s.reference_column()), added = s.row_reference(qi, c, qt, h, b), now = max(before, added);
    // 0, which LLVM cannot know. It would keep the factors in registers, and with 16 registers store and load a sum at every key instead.
    const Expr zero = Halide::cast<int32_t>(Halide::cast<uint32_t>(formulas.inputs().seq_len_q) >> 31);
    const Expr before_chunk = number(column) * number(s.keep_column() + zero), add = number(s.add_column() + zero);
    const auto sum = [&](const Expr &of_chunk) { return before_chunk + of_chunk * add; };
    Expr row_sum = s.row_sum(qi, c, qt, h, b);
    if (s.keeps_exact_sum) {
        row_sum = select(column == s.last_sum_column(), s.exact_sum(qi, c, qt, h, b), row_sum);
    }
    const Expr factor = formulas.softmax().rescaling(select(column == s.keep_column(), before, added) - now);
    const Expr numbers =
        select(column == s.reference_column(), now, column >= s.sum_column(), sum(row_sum), column >= s.keep_column(), factor, 0.0f);
    const Expr acc = s.acc(qi % blocking.tile_lanes(), qi / blocking.tile_lanes(), s.merge.x, vp, c, qt, h, b);
    s.merged(qi, column, qt, h, b) = select(vp >= 0, Halide::likely(sum(acc)), numbers);
}

// out_tile = normalised, transposed: rows of out lie side by side. The last block of columns ends with the last column.
void define_out_tile(QueryLanesStages &s) {
    const int lanes = s.blocking.lanes(), columns = s.head_dim_v;
    const auto &[d, qi, qt, h, b] = std::tie(s.d, s.qi, s.qt, s.h, s.b);
    auto source = [&](const Expr &qi_, const Expr &row) { return s.normalised(qi_, first_of(s.columns, columns, lanes) + row, qt, h, b); };
    s.normalised_squares = transpose_squares("normalised", lanes, s.blocking.q_tile, {s.columns, qt, h, b}, source);
    s.out_squares = RDom(0, lanes, 0, lanes, 0, s.normalised_squares->blocks(), 0, blocks_of(columns, lanes), "out_squares");
    if (s.vectors_with_rows.defined()) {
        s.out_squares.where(s.out_squares.z < s.vectors_with_rows(qt, b));
    }
    const Expr column = s.out_squares.x, lane = s.out_squares.y, vector = s.out_squares.z, block = s.out_squares.w;
    s.out_tile(d, qi, qt, h, b) = undef<float>();
    s.out_tile(first_of(block, columns, lanes) + column, vector * lanes + lane, qt, h, b) =
        s.normalised_squares->transposed()(lane * lanes + column, vector, block, qt, h, b);
}

} // namespace

QueryLanesStages query_lanes(const AttentionFormulas &formulas, const QueryLanesBlocking &blocking) {
    QueryLanesStages s;
    const Problem &p = formulas.problem();
    s.blocking = blocking;
    s.head_dim = p.head_dim;
    s.head_dim_v = p.head_dim_v;
    s.rotary_dim = formulas.rotation().active() ? formulas.rotation().dim() : 0;
    s.own_lengths = p.kv_lengths != 0 || p.cache != 0;
    // Probs are cut downwards, all alike: their own sum divides that out. lse, and the share of a sink, need what they were.
    s.keeps_exact_sum = blocking.product.k > 1 && (p.lse != 0 || p.sinks != 0);
    const QueryLanesCoordinates at{formulas, blocking};
    s.rows.define(formulas, {s.qi, s.qt, s.b}, at.query(s.qi, s.qt), s.b);
    const std::vector<TilePart> halves = define_halves(s, at);
    define_query_and_key(s, at);
    const KeySource keys = keys_of_chunks(s, at);
    define_scores(s, at, keys, halves);
    define_logits(s, at);
    define_softmax(s, at);
    if (formulas.dropout().active()) {
        define_dropout(s, at);
    }
    blocking.tiles ? define_tiles_acc(s, at) : define_acc(s, at, keys, halves);
    define_merge(s, at);
    // out = acc / row_sum
    const Expr reference = s.merged(s.qi, s.reference_column(), s.qt, s.h, s.b), sum = s.merged(s.qi, s.sum_column(), s.qt, s.h, s.b);
    const Expr exact_sum = s.keeps_exact_sum ? Expr(s.merged(s.qi, s.last_sum_column(), s.qt, s.h, s.b)) : Expr();
    s.out_factor(s.qi, s.qt, s.h, s.b) = formulas.softmax().out_factor(reference, sum, s.h, exact_sum);
    s.normalised(s.qi, s.d, s.qt, s.h, s.b) = s.merged(s.qi, s.d, s.qt, s.h, s.b) * s.out_factor(s.qi, s.qt, s.h, s.b);
    return s;
}

void QueryLanesStages::write(const AttentionOut &o, const AttentionFormulas &formulas, const Arguments &at, const Store &store) {
    if (o.statistics.empty() && head_dim_v >= blocking.lanes() && blocking.q_tile % blocking.lanes() == 0) {
        define_out_tile(*this);
    }
    MergedRowsStages::write(o, formulas, at, store);
}

Expr QueryLanesStages::out_of(const AttentionFormulas &, const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    const Expr row = q % blocking.q_tile, tile = q / blocking.q_tile;
    return out_tile.defined() ? out_tile(d, row, tile, h, b) : normalised(row, d, tile, h, b);
}

Expr QueryLanesStages::reference_of(const Expr &q, const Expr &h, const Expr &b) const {
    return merged(q % blocking.q_tile, reference_column(), q / blocking.q_tile, h, b);
}

Expr QueryLanesStages::sum_of(const Expr &q, const Expr &h, const Expr &b) const {
    return merged(q % blocking.q_tile, last_sum_column(), q / blocking.q_tile, h, b);
}

std::vector<Halide::Func> QueryLanesStages::funcs() const {
    std::vector<Halide::Func> all = rows.funcs();
    if (query_squares) {
        const std::vector<Halide::Func> steps = query_squares->funcs();
        all.insert(all.end(), steps.begin(), steps.end());
    }
    for (const Halide::Func &f : {first_end, second_begin, vectors_with_rows, fetched, fetched_pairs, query_tile, pages, key_tile,
                                  key_words, value_words, value_products, score_factor, dropout_words, kept_probs}) {
        if (f.defined()) {
            all.push_back(f);
        }
    }
    for (const TransposedTile &tile : pair_tiles) {
        const std::vector<Halide::Func> steps = tile.funcs();
        all.insert(all.end(), steps.begin(), steps.end());
    }
    if (finds_clean) {
        all.insert(all.end(), {value_bits, chunk_bits});
    }
    if (keeps_exact_sum) {
        all.insert(all.end(), {prob_floats, exact_sum});
    }
    all.insert(all.end(), {scores, logits, row_max, row_reference, probs, row_sum, acc, merged, out_factor, normalised});
    if (normalised_squares) {
        const std::vector<Halide::Func> steps = normalised_squares->funcs();
        all.insert(all.end(), steps.begin(), steps.end());
        all.push_back(out_tile);
    }
    return all;
}

} // namespace polyhead::gen

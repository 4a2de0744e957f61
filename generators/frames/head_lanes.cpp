// Frame "head lanes": attention of few queries, keys split into pieces that are merged at the end.
#include "head_lanes.h"

#include <algorithm>
#include <cstdint>

namespace polyhead::gen {

using Halide::Expr;
using Halide::max;
using Halide::min;
using Halide::RDom;
using Halide::select;

namespace {

constexpr int memory_line = 64; // bytes

struct Coordinates {
    const AttentionFormulas &formulas;
    HeadLanesBlocking blocking;

    // Tasks in the order of their splits, key/value heads, batch rows; in pages of their key/value heads, splits, batch rows.
    // The heads of a page lie side by side, and so do their tasks: what the address translation read for one is there for the next.
    bool heads_first() const { return bool(formulas.inputs().keys.page_table()); }
    Expr task(const Expr &sp, const Expr &hkv, const Expr &b) const {
        const Expr heads = formulas.inputs().num_kv_heads;
        return heads_first() ? (b * split_count() + sp) * heads + hkv : (b * heads + hkv) * split_count() + sp;
    }
    Expr split_of(const Expr &task) const { return (heads_first() ? task / formulas.inputs().num_kv_heads : task) % split_count(); }
    Expr kv_head(const Expr &task) const { return (heads_first() ? task : task / split_count()) % formulas.inputs().num_kv_heads; }
    Expr batch(const Expr &task) const { return task / (split_count() * formulas.inputs().num_kv_heads); }
    Expr row(const Expr &r, const Expr &rt) const { return rt * blocking.row_tile + r; }
    // Rows beyond the last query repeat it.
    Expr query(const Expr &r, const Expr &rt) const { return min(row(r, rt) / formulas.group_size(), formulas.inputs().seq_len_q - 1); }
    Expr head(const Expr &r, const Expr &rt, const Expr &hkv) const {
        return hkv * formulas.group_size() + row(r, rt) % formulas.group_size();
    }
    Expr first_query(const Expr &rt) const { return query(0, rt); }
    Expr last_query(const Expr &rt) const { return query(blocking.row_tile - 1, rt); }
    TileRange range(const Expr &rt, const Expr &b) const { return {formulas, first_query(rt), last_query(rt), b}; }
    KeySplits splits() const { return {formulas, blocking.split_len}; }
    Expr key(const Expr &kk, const Expr &sp, const Expr &b) const { return splits().first_key(sp, b) + kk; }
    Expr clamped_key(const Expr &kk, const Expr &sp, const Expr &b) const { return clamped(key(kk, sp, b)); }
    // A table of pages clamps by itself; tables of rotations do not.
    Expr clamped(const Expr &key) const {
        const KeySource &keys = formulas.inputs().keys;
        return keys.page_table() && !formulas.rotation().active() ? key : keys.row(key);
    }
    Expr split_count() const { return splits().count(); }
};

// Rows by which those that are asked from memory are ahead: the furthest first.
std::vector<int> rows_ahead(const HeadLanesBlocking &blocking, int row_bytes) {
    std::vector<int> rows;
    for (const int bytes : blocking.fetch_ahead) {
        if (bytes > 0) {
            rows.push_back(std::clamp(bytes / row_bytes, 1, blocking.split_len));
        }
    }
    return rows;
}

int row_bytes(const AttentionFormulas &formulas, int entries) {
    return entries * formulas.inputs().keys.storage().type.bytes();
}

// 0. A line of each `step` bytes behind an address is asked from memory.
Expr ask_for_lines(const Expr &address, int bytes, int step) {
    Expr nothing = 0;
    for (int at_byte = 0; at_byte < bytes; at_byte += step) {
        nothing += prefetched(address + Halide::cast<uint64_t>(Expr(at_byte)));
    }
    return nothing;
}

// 0. The first line of what a head has in a page, and of each 4 KB of it, is asked from memory: pages lie anywhere, and to find them for
// the processor's address translation takes as long as to read a line.
Expr touch_page(const HeadLanesStages &s, const Coordinates &at, const Expr &page) {
    constexpr int translated = 4096, most = 8 * translated; // bytes; longer pages are read as a contiguous cache is
    const AttentionInputs &in = at.formulas.inputs();
    Expr nothing = 0;
    const auto touch = [&](const KeySource::Element &rows, int bytes) {
        nothing += ask_for_lines(rows(0, 0, at.kv_head(s.task), page), std::min(bytes, most), translated);
    };
    const int rows = in.keys.page_table()->page_size;
    touch(in.whole->key_row, rows * row_bytes(at.formulas, at.formulas.problem().head_dim));
    if (!in.keys.value_in_key()) {
        touch(in.whole->value_row, rows * row_bytes(at.formulas, at.formulas.problem().head_dim_v));
    }
    for (const KeySource::Element &scales : in.whole->scale_rows) {
        touch(scales, 1);
    }
    return nothing;
}

// pages = pages of the keys of a split: the table is read once for all keys of a page, and not for each key.
AttentionFormulas with_pages_of_split(HeadLanesStages &s, const AttentionFormulas &formulas) {
    const Coordinates at{formulas, s.blocking};
    const PageTable table = *formulas.inputs().keys.page_table();
    const Problem &p = formulas.problem();
    const int size = table.page_size;
    const int ahead = rows_ahead(s.blocking, row_bytes(formulas, std::min(p.head_dim, p.head_dim_v))).front();
    s.page_slots = (s.blocking.split_len + ahead + size - 2) / size + 1;
    const Expr b = at.batch(s.task), first = at.key(0, at.split_of(s.task), b), last = table.existing(formulas.inputs().seq_len_kv, b);
    s.slots = RDom(0, s.page_slots, "page_slots");
    s.slots.where(first / size + s.slots <= last / size);
    s.pages(s.page_slot, s.task) = Halide::undef<int32_t>();
    const Expr page = table.page(min(first / size + s.slots, last / size), b); // bounds inference forgets the condition
    s.pages(s.slots, s.task) = formulas.inputs().whole && size > 1 ? page + touch_page(s, at, page) : page;
    PageTable own = table.looked_up(s.pages, s.page_slots, {s.task}, first);
    own.existing = [=](const Expr &row, const Expr &) { return min(Halide::likely(row), last); };
    AttentionInputs inputs = formulas.inputs();
    inputs.keys = inputs.keys.in_pages(own);
    return formulas.reading(inputs);
}

// query_shorts or query_bytes = query_rows / query_step, rounded to integers: a sum of head_dim products with -128 to 127 is below 2^31
void define_query_integers(HeadLanesStages &s, int head_dim) {
    const auto &[l, d, r, rt, task] = std::tie(s.l, s.d, s.r, s.rt, s.task);
    const Product &integers = *s.blocking.integers;
    const int lanes = s.blocking.integer_lanes, of_type = integers.b == Number::s8 ? INT8_MAX : INT16_MAX;
    const auto most = static_cast<float>(std::min(of_type, INT32_MAX / (128 * head_dim)));
    s.rd = RDom(0, head_dim, "rd");
    // Of a row with NaN or infinity it is NaN, and with it all scores of the row.
    s.query_largest(r, rt, task) = 0.0f;
    const Expr entry = s.query_rows(s.rd, r, rt, task);
    s.query_largest(r, rt, task) = max(s.query_largest(r, rt, task), Halide::abs(entry));
    s.query_poison(r, rt, task) = 0.0f;
    s.query_poison(r, rt, task) += entry * 0.0f;
    s.query_step(r, rt, task) = s.query_largest(r, rt, task) * (1.0f / most) + s.query_poison(r, rt, task);
    const auto steps = [&](const Expr &entry) {
        const Expr largest = s.query_largest(r, rt, task), exact = s.query_rows(entry, r, rt, task) * (most / largest);
        // The conversion of what is not finite is not defined.
        return select(largest > 0.0f, Halide::cast<int32_t>(Halide::clamp(Halide::round(exact), -most, most)), 0);
    };
    if (integers.form == Form::pattern) {
        s.query_shorts(d, r, rt, task) = Halide::cast<int16_t>(steps(d));
        return;
    }
    const LaneProduct product = lane_product(&integers);
    s.query_bytes(l, r, rt, task) = product.word([&](int part) { return Halide::cast<uint8_t>(steps(product.k * l + part)); });
    s.rv = RDom(0, head_dim / lanes / product.k, "rv");
    s.query_sums(l, r, rt, task) = 0;
    s.query_sums(l, r, rt, task) =
        product.add_products(s.query_sums(l, r, rt, task), product.repeated(128), s.query_bytes(l + lanes * s.rv, r, rt, task));
}

// query_rows = query in the unit of scores; key_rows = keys; both rotated where the problem has it.
void define_query_and_key(HeadLanesStages &s, const Coordinates &at) {
    const auto &formulas = at.formulas;
    const auto &[d, r, kk, rt, task] = std::tie(s.d, s.r, s.kk, s.rt, s.task);
    const Expr sp = at.split_of(task), hkv = at.kv_head(task), b = at.batch(task), q = at.query(r, rt), h = at.head(r, rt, hkv);
    if (at.blocking.pairs && !formulas.rotation().active()) {
        const LaneProduct product = lane_product(at.blocking.pairs);
        s.query_words(s.l, r, rt, task) =
            product.word([&](int part) { return formulas.inputs().stored_query(product.k * s.l + part, q, h, b); });
        s.score_factor() = formulas.operands().query_factor(); // a Func, or Halide 21 multiplies every score by each of its factors
        return;
    }
    if (at.blocking.words && !formulas.rotation().active()) {
        s.query_parts(s.l, s.part, r, rt, task) = formulas.operands().plain_query(2 * s.l + s.part, q, h, b);
        return;
    }
    s.query_rows(d, r, rt, task) = formulas.operands().plain_query(d, q, h, b);
    if (!formulas.rotation().active()) {
        if (at.blocking.integers) {
            define_query_integers(s, formulas.problem().head_dim);
        }
        return;
    }
    s.rotary = RDom(0, 2, 0, formulas.rotation().dim() / 2, "rotary");
    const Expr part = s.rotary.x, pair = s.rotary.y, entry = formulas.rotation().entry(part, pair), key = at.clamped_key(kk, sp, b);
    s.query_rows(entry, r, rt, task) = formulas.operands().rotated_query(part, pair, q, h, b);
    s.key_rows(d, kk, rt, task) = formulas.inputs().keys.key(d, key, hkv, b);
    s.key_rows(entry, kk, rt, task) = formulas.operands().rotated_key(part, pair, key, hkv, b);
}

// lane_scores = sums of query_bytes . key, or query_shorts . key, by lane, as integers. A key of bytes is the unsigned operand, so 128 is
// added to each of its entries.
void define_integer_scores(HeadLanesStages &s, const Coordinates &at, const Expr &nothing) {
    const auto &[l, r, kk, rt, task] = std::tie(s.l, s.r, s.kk, s.rt, s.task);
    const KeySource &keys = at.formulas.inputs().keys;
    const Expr row = at.clamped_key(kk, at.split_of(task), at.batch(task)), hkv = at.kv_head(task), b = at.batch(task);
    const int lanes = at.blocking.integer_lanes;
    if (s.query_shorts.defined()) {
        s.rv = RDom(0, 2, 0, at.formulas.problem().head_dim / lanes / 2, "rv");
        const Expr entry = 2 * (l + lanes * s.rv.y) + s.rv.x, key = Halide::reinterpret<int8_t>(keys.stored_key(entry, row, hkv, b));
        s.lane_scores(l, r, kk, rt, task) = nothing;
        s.lane_scores(l, r, kk, rt, task) += Halide::cast<int32_t>(s.query_shorts(entry, r, rt, task)) * Halide::cast<int32_t>(key);
    } else {
        const LaneProduct product = lane_product(at.blocking.integers);
        const Expr word = l + lanes * s.rv;
        const Expr key =
            product.word([&](int part) { return keys.stored_key(product.k * word + part, row, hkv, b); }) ^ product.repeated(128);
        s.lane_scores(l, r, kk, rt, task) = nothing - s.query_sums(l, r, rt, task);
        const Expr sum = s.lane_scores(l, r, kk, rt, task);
        s.lane_scores(l, r, kk, rt, task) = product.add_products(sum, key, s.query_bytes(word, r, rt, task));
    }
    s.rl = RDom(0, lanes, "rl");
    s.scores(r, kk, rt, task) = 0;
    s.scores(r, kk, rt, task) += s.lane_scores(s.rl, r, kk, rt, task);
}

// 0. While row `key` of a split is read, rows that are some KB further are asked from memory: instructions in the loop over keys, without
// conditions, which take longer than what they save.
Expr fetch(const HeadLanesStages &s, const Coordinates &at, const Expr &key, bool values) {
    const AttentionInputs &in = at.formulas.inputs();
    const int bytes = row_bytes(at.formulas, values ? s.head_dim_v : at.formulas.problem().head_dim);
    Expr nothing = 0;
    for (const int ahead : rows_ahead(at.blocking, bytes)) {
        const Expr row = at.key(key, at.split_of(s.task), at.batch(s.task)) + ahead;
        const Expr address = in.keys.at(values ? in.whole->value_row : in.whole->key_row, 0, row, at.kv_head(s.task), at.batch(s.task));
        nothing += ask_for_lines(address, bytes, memory_line);
    }
    return nothing;
}

// 0. The first values of a split are asked from memory while probs are made: some lines at each vector of a row. No prefetcher expects
// them.
Expr fetch_first_values(const HeadLanesStages &s, const Coordinates &at, const Expr &vector, const Expr &r) {
    const AttentionInputs &in = at.formulas.inputs();
    const int lines_of_row = std::max(row_bytes(at.formulas, s.head_dim_v) / memory_line, 1);
    const int vectors = at.blocking.split_len / at.blocking.keys_side_by_side;
    const int lines = std::max(at.blocking.fetch_ahead[0] / memory_line / (vectors * at.blocking.row_tile), 1);
    Expr nothing = 0;
    for (int i = 0; i < lines; i++) {
        const Expr line = (r * vectors + vector) * lines + i, own = min(line / lines_of_row, at.blocking.split_len - 1);
        const Expr row = at.key(own, at.split_of(s.task), at.batch(s.task));
        const Expr address = in.keys.at(in.whole->value_row, 0, row, at.kv_head(s.task), at.batch(s.task));
        nothing += prefetched(address + Halide::cast<uint64_t>(line % lines_of_row * memory_line));
    }
    return nothing;
}

void define_scores(HeadLanesStages &s, const Coordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &[l, r, kk, rt, task] = std::tie(s.l, s.r, s.kk, s.rt, s.task);
    if (s.query_rows.defined() && s.key_vectors.repeated() != 0) {
        const Expr vector = s.x / blocking.lanes, lane = s.x % blocking.lanes, entry = s.key_vectors.entry(vector, lane);
        s.query_columns(s.x, r, rt, task) = select(s.key_vectors.first(vector, lane), s.query_rows(entry, r, rt, task), 0.0f);
    }
    const Expr sp = at.split_of(task), hkv = at.kv_head(task), b = at.batch(task);
    Expr nothing = 0;
    if (formulas.inputs().whole) {
        s.fetched_keys(kk, rt, task) = fetch(s, at, kk, false);
        nothing = s.fetched_keys(kk, rt, task);
    }
    if (s.query_step.defined()) {
        return define_integer_scores(s, at, nothing);
    }
    // scores = query_rows . key, first per lane, then over lanes
    const int entries = s.query_parts.defined() || s.query_words.defined() ? 2 : 1; // of a lane
    s.rv = RDom(0, (s.key_vectors.count() + entries - 1) / entries, "rv");
    s.rl = RDom(0, blocking.lanes, "rl");
    const Expr column = l + blocking.lanes * s.rv, row = at.clamped_key(kk, sp, b);
    const Expr entry = entries == 1 ? s.key_vectors.entry(s.rv, l) : column;
    const KeySource &keys = formulas.inputs().keys;
    s.lane_scores(l, r, kk, rt, task) = Halide::cast<float>(nothing);
    const auto stored = [&](int part) { return keys.stored_key(2 * entry + part, row, hkv, b); };
    const Expr sum = s.lane_scores(l, r, kk, rt, task);
    // One scale for a row waits until its score is made.
    const Expr key = formulas.rotation().active() ? Expr(s.key_rows(entry, kk, rt, task))
                     : keys.scales_rows()         ? keys.storage().load(keys.stored_key(entry, row, hkv, b))
                                                  : keys.key(entry, row, hkv, b);
    if (s.query_words.defined()) {
        const LaneProduct product = lane_product(blocking.pairs);
        s.lane_scores(l, r, kk, rt, task) = product.add_products(sum, s.query_words(entry, r, rt, task), product.word(stored));
    } else if (s.query_parts.defined()) {
        const auto key = floats_of_bf16_pair(stored(0), stored(1));
        const auto query = [&](int part) { return s.query_parts(entry, part, r, rt, task); };
        s.lane_scores(l, r, kk, rt, task) = sum + query(0) * key[0] + query(1) * key[1];
    } else if (s.query_columns.defined()) { // a repeated entry may be infinite, and 0 times it NaN
        s.lane_scores(l, r, kk, rt, task) = sum + s.query_columns(column, r, rt, task) * select(s.key_vectors.first(s.rv, l), key, 0.0f);
    } else {
        s.lane_scores(l, r, kk, rt, task) = sum + s.query_rows(entry, r, rt, task) * key;
    }
    s.scores(r, kk, rt, task) = 0.0f;
    s.scores(r, kk, rt, task) += s.lane_scores(s.rl, r, kk, rt, task);
}

// key_scales, value_scales = one for each row of an int8 cache, along the keys. A row that is rotated has its scale in key_rows.
void define_scales(HeadLanesStages &s, const Coordinates &at) {
    const KeySource &source = at.formulas.inputs().keys;
    const auto &[kk, rt, task] = std::tie(s.kk, s.rt, s.task);
    const Expr key = s.key_in_split(), hkv = at.kv_head(task), b = at.batch(task),
               row = at.clamped(Halide::likely(at.key(key, at.split_of(task), b)));
    if (source.scales_rows() && !at.formulas.rotation().active()) {
        s.key_scales(kk, rt, task) = Halide::undef<float>();
        s.key_scales(key, rt, task) = source.key_scale(0, row, hkv, b);
    }
    if (source.scales_rows()) {
        s.value_scales(kk, rt, task) = Halide::undef<float>();
        s.value_scales(key, rt, task) = source.value_scale(0, row, hkv, b);
    }
}

// logits = scores, modified, where the row sees the key
void define_logits(HeadLanesStages &s, const Coordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &[r, kk, rt, task] = std::tie(s.r, s.kk, s.rt, s.task);
    const Expr sp = at.split_of(task), hkv = at.kv_head(task), b = at.batch(task);
    // Keys that no row sees are not computed.
    s.key_blocks = RDom(0, blocking.key_unroll, 0, blocking.split_len / blocking.key_unroll, "key_blocks");
    const Expr block = at.key(s.key_blocks.y * blocking.key_unroll, sp, b);
    at.range(rt, b).limit(&s.key_blocks, block, block + blocking.key_unroll);
    Expr key = s.key_blocks.x + blocking.key_unroll * s.key_blocks.y;
    auto logit = [&](const Expr &score, const Expr &kk_) {
        const Expr existing = min(Halide::likely(at.key(kk_, sp, b)), formulas.inputs().seq_len_kv - 1), q = at.query(r, rt);
        std::vector<Expr> pairs;
        for (const PairTensor &tensor : formulas.logits().pair_tensors()) {
            pairs.push_back(tensor.at(existing, q, at.head(r, rt, hkv), b));
        }
        return formulas.logits().logit(s.score_factor.defined() ? score * s.score_factor() : score, s.row_bounds.at({r, rt, task}, q),
                                       at.key(kk_, sp, b), at.head(r, rt, hkv), b, pairs, true);
    };
    // Vectors of keys, of which some row sees one, are filled first: what is behind the last block is excluded.
    const int side_by_side = blocking.keys_side_by_side;
    s.keys = RDom(0, side_by_side, 0, blocking.split_len / side_by_side, "keys");
    const Expr first = at.key(s.keys.y * side_by_side, sp, b);
    at.range(rt, b).limit(&s.keys, first, first + side_by_side);
    const Expr any_key = s.key_in_split();
    define_scales(s, at);
    // What is more than a comparison goes along the keys, where masks lie.
    if (formulas.logits().plain() && !s.key_scales.defined()) {
        s.logits(kk, r, rt, task) = Halide::undef<float>();
        s.logits(any_key, r, rt, task) = excluded_logit;
        s.logits(key, r, rt, task) = logit(s.scores(r, key, rt, task), key);
        return;
    }
    const Halide::Type type = s.query_step.defined() ? Halide::Int(32) : Halide::Type(Halide::Float(32));
    s.row_scores(kk, r, rt, task) = Halide::undef(type);
    s.row_scores(any_key, r, rt, task) = Halide::cast(type, 0);
    s.row_scores(key, r, rt, task) = s.scores(r, key, rt, task);
    Expr score = Halide::cast<float>(s.row_scores(any_key, r, rt, task));
    if (s.key_scales.defined()) {
        const Expr scale = s.key_scales(any_key, rt, task);
        score *= s.query_step.defined() ? s.query_step(r, rt, task) * scale : scale;
    }
    s.logits(kk, r, rt, task) = Halide::undef<float>();
    s.logits(any_key, r, rt, task) = logit(score, any_key);
}

// row_max, row_reference, probs, row_sum: as in every frame, over all keys of the split (excluded ones are exactly 0)
void define_probs(HeadLanesStages &s, const Coordinates &at) {
    const AttentionFormulas &formulas = at.formulas;
    const auto &[r, kk, rt, task, x] = std::tie(s.r, s.kk, s.rt, s.task, s.x);
    const Expr any_key = s.key_in_split();
    s.row_max(r, rt, task) = row_reference_floor;
    s.row_max(r, rt, task) = max(s.row_max(r, rt, task), s.logits(any_key, r, rt, task));
    s.row_reference(r, rt, task) = formulas.softmax().reference(s.row_max(r, rt, task));
    s.probs(kk, r, rt, task) = Halide::undef<float>();
    Expr reference = s.row_reference(r, rt, task);
    if (formulas.inputs().whole && !formulas.inputs().keys.value_in_key()) {
        s.fetched_first(x, r, rt, task) = Halide::cast<float>(fetch_first_values(s, at, x, r));
        reference += s.fetched_first(s.keys.y, r, rt, task);
    }
    s.probs(any_key, r, rt, task) = formulas.softmax().power(s.logits(any_key, r, rt, task) - reference);
    s.row_sum(r, rt, task) = 0.0f;
    s.row_sum(r, rt, task) += s.probs(any_key, r, rt, task);
    if (s.value_scales.defined()) { // what is behind the last key may have any scale
        const Expr weight = s.probs(any_key, r, rt, task) * s.value_scales(any_key, rt, task);
        s.weights(kk, r, rt, task) = Halide::undef<float>();
        s.weights(any_key, r, rt, task) = select(Logits::excluded(s.logits(any_key, r, rt, task)), 0.0f, weight);
    }
}

void define_partial(HeadLanesStages &s, const Coordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &[d, r, kk, rt, task, x] = std::tie(s.d, s.r, s.kk, s.rt, s.task, s.x);
    const Expr sp = at.split_of(task), hkv = at.kv_head(task), b = at.batch(task);
    // acc = sum over keys of probs * value; a row never uses the value of a key that it does not see
    const AttentionInputs &in = formulas.inputs();
    // Where keys are excluded one by one, every key is tested: reading the values is what takes time here.
    s.value_keys = TileKeys(formulas, blocking.split_len, at.key(0, sp, b), at.range(rt, b), Expr(), 1, true);
    const std::vector<Expr> place = blocking.words ? std::vector<Expr>{s.l, s.part, r, rt, task} : std::vector<Expr>{d, r, rt, task};
    const auto value_at = [&](const Expr &row) {
        const Expr entry = s.value_vectors.entry(d / blocking.lanes, d % blocking.lanes);
        if (in.keys.scales_rows()) {
            return in.keys.storage().load(in.keys.stored_value(entry, row, hkv, b));
        }
        if (!blocking.words) {
            return in.keys.value(entry, row, hkv, b);
        }
        const auto value = floats_of_bf16_pair(in.keys.stored_value(2 * s.l, row, hkv, b), in.keys.stored_value(2 * s.l + 1, row, hkv, b));
        return select(s.part == 0, value[0], value[1]);
    };
    s.acc(place) = 0.0f;
    for (const RDom *domain : s.value_keys.loops()) {
        const Expr key = *domain, value = value_at(at.clamped_key(key, sp, b));
        Expr prob = s.value_scales.defined() ? s.weights(key, r, rt, task) : s.probs(key, r, rt, task);
        if (s.fetched_keys.defined() && !in.keys.value_in_key()) {
            s.fetched_values.emplace_back("fetched_values");
            s.fetched_values.back()(kk, rt, task) = Halide::cast<float>(fetch(s, at, kk, true));
            prob += s.fetched_values.back()(key, rt, task);
        }
        s.acc(place) = s.value_keys.accumulate(domain, s.acc(place), prob, value, s.logits(key, r, rt, task));
    }
    if (blocking.words) {
        s.halves = RDom(0, 2, 0, s.head_dim_v / 2, "halves");
        s.acc_columns(d, r, rt, task) = Halide::undef<float>();
        s.acc_columns(2 * s.halves.y + s.halves.x, r, rt, task) = s.acc(s.halves.y, s.halves.x, r, rt, task);
    }
    const Halide::Func &sums = blocking.words ? s.acc_columns : s.acc;
    // A split that no row of the batch row sees is not written: no code reads it.
    s.columns = RDom(0, s.head_dim_v + 2, "columns");
    s.columns.where(at.key(0, sp, b) < at.splits().whole_range(b).end_some);
    const Expr column = s.columns;
    s.partial(x, r, rt, task) = Halide::undef<float>();
    s.partial(column, r, rt, task) =
        select(column < s.head_dim_v, Halide::likely(sums(s.value_vectors.column(min(column, s.head_dim_v - 1)), r, rt, task)), //
               column == s.head_dim_v, s.row_sum(r, rt, task), s.row_reference(r, rt, task));
}

// merge: reference = max over splits, sums = sum over splits of rescaling(row_reference - reference) * partial
void define_merge(HeadLanesStages &s, const Coordinates &at) {
    const auto &[r, rt, hkv, b, x] = std::tie(s.r, s.rt, s.hkv, s.b, s.x);
    s.splits = RDom(0, at.split_count(), "splits");
    at.range(rt, b).limit(&s.splits, at.key(0, s.splits, b), at.key(at.blocking.split_len, s.splits, b));
    const Expr task = at.task(s.splits, hkv, b), row_reference = s.partial(s.head_dim_v + 1, r, rt, task);
    s.reference(r, rt, hkv, b) = row_reference_floor;
    s.reference(r, rt, hkv, b) = max(s.reference(r, rt, hkv, b), row_reference);
    s.sums(x, r, rt, hkv, b) = 0.0f;
    s.sums(x, r, rt, hkv, b) += at.formulas.softmax().rescaling(row_reference - s.reference(r, rt, hkv, b)) * s.partial(x, r, rt, task);
    s.merged(x, r, rt, hkv, b) =
        select(x <= s.head_dim_v, Halide::likely(s.sums(min(x, s.head_dim_v), r, rt, hkv, b)), s.reference(r, rt, hkv, b));
}

} // namespace

HeadLanesStages head_lanes(const AttentionFormulas &given, const HeadLanesBlocking &blocking) {
    HeadLanesStages s;
    s.blocking = blocking;
    const AttentionFormulas formulas = given.inputs().keys.page_table() ? with_pages_of_split(s, given) : given;
    s.head_dim_v = formulas.problem().head_dim_v;
    s.key_vectors = {formulas.problem().head_dim, blocking.lanes};
    s.value_vectors = {s.head_dim_v, blocking.lanes};
    s.group_size = formulas.group_size();
    s.rotary_dim = formulas.rotation().active() ? formulas.rotation().dim() : 0;
    s.rows_of_call = formulas.inputs().batch * formulas.inputs().num_heads * formulas.inputs().seq_len_q;
    Coordinates at{formulas, blocking};
    s.row_bounds.define(formulas, {s.r, s.rt, s.task}, at.query(s.r, s.rt), at.batch(s.task));
    define_query_and_key(s, at);
    define_scores(s, at);
    define_logits(s, at);
    define_probs(s, at);
    define_partial(s, at);
    define_merge(s, at);
    return s;
}

namespace {

// Where row (q, h) lies.
struct Place {
    Expr r, rt, hkv;
    Place(const HeadLanesStages &s, const Expr &q, const Expr &h) {
        Expr row = q * s.group_size + h % s.group_size;
        r = row % s.blocking.row_tile;
        rt = row / s.blocking.row_tile;
        hkv = h / s.group_size;
    }
};

} // namespace

Expr HeadLanesStages::merged_column(const Expr &column, const Expr &q, const Expr &h, const Expr &batch) const {
    Place at(*this, q, h);
    return merged(column, at.r, at.rt, at.hkv, batch);
}

Expr HeadLanesStages::out_of(const AttentionFormulas &formulas, const Expr &d, const Expr &q, const Expr &h, const Expr &batch) const {
    return merged_column(d, q, h, batch) * formulas.softmax().out_factor(reference_of(q, h, batch), sum_of(q, h, batch), h);
}

Expr HeadLanesStages::sum_of(const Expr &q, const Expr &h, const Expr &batch) const {
    return merged_column(head_dim_v, q, h, batch);
}

Expr HeadLanesStages::reference_of(const Expr &q, const Expr &h, const Expr &batch) const {
    return merged_column(head_dim_v + 1, q, h, batch);
}

std::vector<Halide::Func> HeadLanesStages::funcs() const {
    std::vector<Halide::Func> all = row_bounds.funcs();
    all.insert(all.end(), fetched_values.begin(), fetched_values.end());
    for (const Halide::Func &f :
         {pages,      query_rows,   query_columns, query_parts,  query_words, score_factor, query_largest, query_poison,
          query_step, query_shorts, query_bytes,   query_sums,   key_rows,    fetched_keys, fetched_first, lane_scores,
          scores,     row_scores,   key_scales,    value_scales, weights,     logits,       row_max,       row_reference,
          probs,      row_sum,      acc,           acc_columns,  partial,     reference,    sums,          merged}) {
        if (f.defined()) {
            all.push_back(f);
        }
    }
    return all;
}

} // namespace polyhead::gen

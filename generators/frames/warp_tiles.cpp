// The frame "warp tiles": the tile of a block, its chunks, and how rows end.
#include <limits>

#include "warp_tiles_builder.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;
using Halide::min;
using Halide::RDom;
using Halide::select;
using Halide::Var;

void WarpTilesBuilder::build() {
    number_registers();
    s_.row_bounds.define(f_, {q2_, mt_, s_.lane, s_.w, s_.qt, s_.b}, query_of(half_row(q2_, mt_)), s_.b);
    define_tile();
    define_memory();
    define_start();
    s_.acc(thread()) = start_;
    divide_chunks();
}

void WarpTilesBuilder::number_registers() {
    WarpTilesStages::Registers &r = s_.registers;
    const int sums = k_.product->sums_of_lane();
    r.scores = r.acc + k_.tiles * s_.columns_of_acc() * sums;
    r.reference = r.scores + k_.tiles * score_columns() * sums;
    r.unit = r.reference + 2 * k_.tiles;
    r.product = r.unit + 1;
    r.key = r.probs + k_.tiles * key_steps() * k_.product->words_of_a();
    r.value = r.key + 2 * k_.product->words_of_b();
    r.ones = r.value + 2 * k_.product->words_of_b();
    r.stored = r.ones + k_.product->words_of_b();
    r.query = r.stored + (splits() ? k_.product->stored_words_of_a() : 0);
}

// What the rows of a tile see of the keys, in chunks.
void WarpTilesBuilder::define_tile() {
    const TileRange range(f_, query_of(0), query_of(k_.rows() - 1), s_.b);
    all_masked_ = range.begin_some.defined() || f_.logits().excludes_pairs();
    first_chunk_(s_.qt, s_.b) = range.begin_some.defined() ? range.begin_some / k_.keys : Expr(0);
    whole_end_(s_.qt, s_.b) = all_masked_ ? first_chunk_(s_.qt, s_.b) : range.end_all / k_.keys;
    length_(s_.qt, s_.b) = f_.visibility().kv_length(s_.b);
    // With bounds that Halide knew it would compare chunks with them besides.
    whole_(s_.qt, s_.b) = device_call("unbounded", {whole_end_(s_.qt, s_.b)});
    masked_(s_.qt, s_.b) = device_call("unbounded", {(range.end_some + k_.keys - 1) / k_.keys - whole_end_(s_.qt, s_.b)});
    s_.of_tile = {first_chunk_, whole_end_, whole_, masked_, length_};
}

void WarpTilesBuilder::define_memory() {
    memory_(thread()) = device_call("shared_memory", {bytes_.all()});
    base_ = own(memory_);
    add_stage(&s_.before, memory_);
    const Expr lane = s_.lane;
    // A lane's part of the addresses of matrices: 8 rows of each of 4.
    query_at_(vars({n_}, false)) =
        base_ + place_of(s_.w * (k_.tiles * k_.product->m) + lane / 8 % 2 * 8 + lane % 8, n_ * 2 + lane / 16, k_.rows());
    key_at_(vars({n_}, false)) = base_ + place_of(lane % 8, n_ * 4 + lane / 8, k_.keys);
    // Of value, which is not turned as it is loaded: the column of this lane of the first of 16 columns, in the first of its two rows.
    value_at_(vars({n_}, false)) = base_ + (splits() ? place_of(lane % 4 * 2, n_ * 4 + lane / 16, k_.keys) + lane / 4 % 4 * 4
                                                     : place_of(lane / 8 % 2 * 8 + lane % 8, n_ * 2 + lane / 16, k_.keys));
    add_stage(&s_.before, query_at_, {{n_, 4}});
    add_stage(&s_.before, key_at_, {{n_, 2}});
    add_stage(&s_.before, value_at_, {{n_, sixteens_of_panel()}});
}

Func WarpTilesBuilder::copies(const std::string &name, int rows, int head_dim, const Expr &to, const Expr &after, bool of_chunk,
                              const std::function<Expr(Expr)> &bytes, const Element &element) {
    Func f(name);
    const int of_row = pieces_of(padded(head_dim)), pieces = rows * of_row;
    const Expr number = own_piece(n_), own = pieces % k_.threads() == 0 ? number : min(number, pieces - 1);
    const Expr row = own / of_row, x = own % of_row;
    Expr from = x * piece(), read = bytes(row);
    if (of_row > pieces_of(head_dim)) {
        read = select(from < head_dim, read, 0);
        from = min(from, head_dim - piece());
    }
    f(vars({n_}, of_chunk)) = device_call("copy", {to + place_of(row, x, rows) + after, element(from, row), read});
    return f;
}

Func WarpTilesBuilder::copy_chunk(const std::string &name, int head_dim, const Expr &to, const Expr &chunk, const Expr &after,
                                  bool of_chunk, bool exist, const KeySource::Element &stored) {
    const auto key = [=](const Expr &row) { return chunk * k_.keys + row; };
    return copies(
        name, k_.keys, head_dim, base_ + to, after, of_chunk, [=](const Expr &row) { return exist ? Expr(16) : bytes_of(key(row)); },
        [=](const Expr &d, const Expr &row) { return stored(d, row_of(key(row)), kv_head(), s_.b); });
}

Func WarpTilesBuilder::copy_keys(const std::string &kind, const Expr &chunk, const Expr &after, bool of_chunk) {
    return copy_chunk(kind + "key_copy", f_.problem().head_dim, key_place(chunk), chunk, after, of_chunk, false,
                      [keys = f_.inputs().keys](auto... at) { return keys.stored_key(at...); });
}

Func WarpTilesBuilder::copy_values(const std::string &kind, const Expr &chunk, const Expr &after, bool of_chunk, bool exist) {
    return copy_chunk(kind + "value_copy", s_.head_dim_v, value_place(chunk), chunk, after, of_chunk, exist,
                      [keys = f_.inputs().keys](auto... at) { return keys.stored_value(at...); });
}

void WarpTilesBuilder::define_start() {
    const AttentionInputs &in = f_.inputs();
    const WarpTilesStages::Registers &r = s_.registers;
    Func query_copy = copies(
        "query_copy", k_.rows(), f_.problem().head_dim, base_, 0, false, [](const Expr &) { return Expr(16); },
        [&](const Expr &d, const Expr &row) { return in.stored_query(d, query_of(row), s_.h, s_.b); });
    const Expr chunk = first_chunk_(s_.qt, s_.b);
    Func key_copy = copy_keys("first_", chunk, 0, false), value_copy = first_values();
    const int of_query = copies_of(k_.rows(), d_), of_key = copies_of(k_.keys, d_), of_value = copies_of(k_.keys, dv_);
    add_stage(&s_.before, query_copy, {{n_, of_query}});
    add_stage(&s_.before, key_copy, {{n_, of_key}});
    Expr copied = sum_of(query_copy, of_query, at({}, false)) + sum_of(key_copy, of_key, at({}, false));
    if (!one_chunk()) {
        add_stage(&s_.before, value_copy, {{n_, of_value}});
        copied = copied + sum_of(value_copy, of_value, at({}, false));
    }
    Func start("start"), start_rows("start_rows");
    Expr token = device_call("commit", {}, copied);
    const Expr factor = f_.operands().query_factor();
    // Excluded scores are -inf, times 0 NaN: so 0 is the least number, with which no score becomes as much as 10^-6.
    const float least = std::numeric_limits<float>::denorm_min();
    token = token + device_call("set", {r.unit, scores_keep_order() ? select(factor == 0.0f, least, Halide::abs(factor)) : factor}) +
            device_call("zero", {r.acc, r.scores - r.acc}) + more_start();
    for (int i = 0; s_.sums_by_product() && i < k_.product->words_of_b(); i++) {
        token = token + device_call("set_word", {r.ones + i, two_ones()});
    }
    start(thread()) = token;
    add_stage(&s_.before, start);
    start_rows(vars({q2_, mt_}, false)) = device_call("set", {r.reference + mt_ * 2 + q2_, row_reference_floor});
    add_stage(&s_.before, start_rows, {{q2_, 2}, {mt_, k_.tiles}});
    start_ = own(start);
    for (int row = 0; row < 2 * k_.tiles; row++) {
        start_ = start_ + start_rows(at({row % 2, row / 2}, false));
    }
    const int under_way = send_more();
    if (scores_keep_order()) {
        define_signed(under_way);
    }
    if (s_.keeps_query) {
        keep_query();
    }
}

// The largest score of a row is found before scores are in their unit, which must not be negative then: the sign goes to query, where a
// thread changes what it copied.
void WarpTilesBuilder::define_signed(int under_way) {
    const int count = copies_of(k_.rows(), d_);
    Func arrived("query_arrived"), changed("query_signed");
    arrived(thread()) = device_call("wait", {under_way}, start_);
    add_stage(&s_.before, arrived);
    const RDom r(0, count, 0, 2, "rs");
    RDom domain = r;
    domain.where(r.y < Halide::cast<int32_t>(f_.operands().query_factor() < 0.0f));
    const Expr number = own_piece(r.x), row = number / pieces_of(d_), x = number % pieces_of(d_);
    changed(thread()) = own(arrived);
    changed(thread()) += negated(*k_.product, base_ + place_of(row, x, k_.rows()));
    s_.query_signed = changed;
    s_.signed_piece = r.x;
    s_.signed_once = r.y;
    start_ = own(changed);
}

void WarpTilesBuilder::keep_query() {
    Func ready("query_ready"), kept("query_kept");
    ready(thread()) = all_here(start_);
    add_stage(&s_.before, ready);
    const RDom r(0, steps(), 0, k_.tiles, "rq");
    kept(thread()) = own(ready);
    kept(thread()) += load_query(r.x, r.y, r.y * steps() + r.x, 0);
    add_stage(&s_.before, kept);
    s_.before.back().update = {r.x, r.y};
    start_ = own(kept);
}

// Step of head_dim of tile mt, into the fragment of this number.
Expr WarpTilesBuilder::load_query(const Expr &step, const Expr &mt, const Expr &number, const Expr &after) {
    const Expr place = mt * (k_.product->m * row_bytes) + step / 4 * (k_.rows() * row_bytes);
    const Expr to = s_.registers.query + number * k_.product->words_of_a();
    const Expr loaded =
        device_call("load_matrices", {splits() ? Expr(s_.registers.stored) : to, query_at_(at({step % 4}, false)) + after, place});
    return splits() ? split(s_.registers.stored, k_.product->stored_words_of_a(), 1, to, loaded) : loaded;
}

void WarpTilesBuilder::divide_chunks() {
    const Expr rows = f_.inputs().seq_len_kv, all = (rows + k_.keys - 1) / k_.keys;
    if (!all_masked_) {
        add_chunk("whole_", rows / k_.keys, whole_(s_.qt, s_.b), Expr(c_), Part::whole);
    }
    add_masked_chunks();
}

void WarpTilesBuilder::add_masked_chunks() {
    const Expr rows = f_.inputs().seq_len_kv, all = (rows + k_.keys - 1) / k_.keys;
    const int apart = f_.visibility().rows_differ() ? k_.rows() - 1 : 0, most = (k_.keys - 1 + apart + k_.keys - 1) / k_.keys + 1;
    add_chunk("masked_", all_masked_ ? all : min(all, most), masked_(s_.qt, s_.b), whole_end_(s_.qt, s_.b) + c_, Part::masked);
}

void WarpTilesBuilder::add_chunk(const std::string &kind, const Expr &most, const Expr &count, const Expr &number, Part part) {
    WarpChunk chunk;
    chunk.part = part;
    const bool always = Halide::Internal::is_const_one(count);
    chunk.domain = RDom(0, most, kind + (always ? "chunk" : counted_chunks));
    if (!always) {
        chunk.domain.where(chunk.domain.x < count);
    }
    define_chunk(kind, number, &chunk);
    s_.acc(thread()) += (chunk.masked() ? chunk.mended : chunk.acc)(at({chunk.domain.x}, false));
    s_.chunks.push_back(chunk);
}

void WarpTilesBuilder::define_chunk(const std::string &kind, const Expr &number, WarpChunk *chunk) {
    const bool ch = true;
    const int of_key = copies_of(k_.keys, d_), of_value = copies_of(k_.keys, dv_);
    Func ready = func(kind, "ready"), sent = func(kind, "sent");
    ready(vars({}, ch)) = all_here(c_ * 0);
    add_stage(&chunk->stages, ready);
    Expr values_ready = ready(at({}, ch));
    const auto add_copies = [&](const Func &copy, int count) {
        add_stage(&chunk->stages, copy, {{n_, count}});
        return sum_of(copy, count, at({}, ch));
    };
    const auto add_sent = [&](Func f, const Expr &copied) {
        f(vars({}, ch)) = device_call("commit", {}, copied);
        add_stage(&chunk->stages, f);
        return f(at({}, ch));
    };
    const bool own_values = one_chunk();
    Expr copied = add_copies(copy_values(kind, number + (own_values ? 0 : 1), values_ready, ch, own_values && !chunk->masked()), of_value);
    if (!one_chunk()) {
        copied = copied + add_copies(copy_keys(kind, number + 1, values_ready, ch), of_key);
    }
    const Expr is_sent = add_sent(sent, copied);
    define_scores(kind, key_place(number) + is_sent, is_sent, chunk);
    chunk->scored = chunk->scores;
    if (one_chunk()) {
        Func arrived = func(kind, "values_ready");
        chunk->scored = func(kind, "keys_sent");
        arrived(vars({}, ch)) = all_here(chunk->scores(at({}, ch)));
        add_stage(&chunk->stages, arrived);
        values_ready = arrived(at({}, ch));
        add_sent(chunk->scored, add_copies(copy_keys(kind, number + 1, values_ready, ch), of_key));
    }
    Func logits = func(kind, "logits");
    const Func probs_ready = define_softmax(kind, number, logits, chunk);
    Expr values = value_place(number) + is_sent;
    if (chunk->masked()) {
        define_lost(kind, value_place(number) + values_ready, chunk);
        values = values + min(chunk->lost(at({}, ch)), 0); // 0, and after it
    }
    define_acc(kind, values, probs_ready(at({}, ch)), chunk);
    if (chunk->masked()) {
        define_mended(kind, number, logits, chunk);
    }
}

int WarpTilesStages::sum_column() const {
    return padded_head_dim_v() / WarpTilesBuilder::eight;
}

Expr WarpTilesStages::sum_slot(const Expr &q2, const Expr &mt, bool exactly) const {
    return registers.acc +
           (mt * columns_of_acc() + sum_column() + (exactly && sums_by_product() ? 1 : 0)) * blocking.product->sums_of_lane() + q2 * 2;
}

WarpTilesStages warp_tiles_frame(const AttentionFormulas &formulas, const WarpTilesBlocking &blocking) {
    WarpTilesStages s;
    const Problem &p = formulas.problem();
    s.blocking = blocking;
    s.head_dim_v = p.head_dim_v;
    // Fragments of 64 entries of query fit into the registers beside scores and acc.
    s.keeps_query = p.head_dim <= 64 && s.sums_by_product() && !blocking.group_product;
    s.sums_exactly = p.lse != 0 || p.sinks != 0 || !s.sums_by_product();
    s.last_tile_first = p.causal != POLYHEAD_NOT_CAUSAL;
    blocking.group_product ? build_group_tiles(formulas, &s) : WarpTilesBuilder(formulas, &s).build();
    return s;
}

void WarpTilesStages::write(const AttentionOut &o, const AttentionFormulas &formulas, const Arguments &at, const Store &store) {
    const WarpTilesBlocking &k = blocking;
    const int sums = k.product->sums_of_lane(), tile = k.rows(),
              eights = (o.columns + WarpTilesBuilder::eight - 1) / WarpTilesBuilder::eight;
    const Expr seq_len_q = formulas.inputs().seq_len_q;
    const Halide::Var q2("q2"), mt("mt");
    Func end("end"), exact("end_exact"), reference("end_reference"), sum("end_sum"), factor("end_factor");
    end(lane, w, qt, h, b) = device_call("wait", {0}, acc(lane, w, qt, h, b));
    const Expr ended = end(lane, w, qt, h, b);
    const std::vector<Halide::Var> vars = {q2, mt, lane, w, qt, h, b};
    const std::vector<Expr> row(vars.begin(), vars.end());
    reference(vars) = device_call("get", {registers.reference + mt * 2 + q2}, ended);
    after = {{end, {}, {}}, {reference, {{q2, 2}, {mt, k.tiles}}, {}}};
    Expr all;
    if (sums_exactly) {
        exact(vars) = formulas.numerics().sum_over_lanes(device_call("get", {sum_slot(q2, mt, true)}, ended), 4, 1);
        after.push_back({exact, {{q2, 2}, {mt, k.tiles}}, {}});
        all = exact(row);
    }
    sum(vars) = sums_by_product() ? device_call("get", {sum_slot(q2, mt, false)}, ended) : all;
    after.push_back({sum, {{q2, 2}, {mt, k.tiles}}, {}});
    factor(vars) = formulas.softmax().out_factor(reference(row), sum(row), h, all);
    after.push_back({factor, {{q2, 2}, {mt, k.tiles}}, {}});
    const Expr count = (seq_len_q + tile - 1) / tile;
    written = RDom({{0, 2}, {0, 2}, {0, eights}, {0, k.tiles}, {0, k.lanes}, {0, k.warps}, {0, count}}, "written");
    const Expr j = written[0], half = written[1], eight = written[2], mt_ = written[3], lane_ = written[4], w_ = written[5],
               qt_ = last_tile_first ? count - 1 - written[6] : Expr(written[6]);
    // Rows behind the last query repeat it, columns behind the last one repeat that: with the same bits. A condition would keep threads
    // from the barriers of their block.
    const Expr column = min(eight * WarpTilesBuilder::eight + lane_ % 4 * 2 + j, o.columns - 1);
    const Expr q = min(qt_ * tile + (w_ * k.tiles + mt_) * k.product->m + lane_ / 4 + half * 8, seq_len_q - 1);
    const std::vector<Expr> own = {half, mt_, lane_, w_, qt_, o.h, o.b};
    const int slot = registers.acc;
    Expr value =
        device_call("get", {slot + (mt_ * columns_of_acc() + min(eight, head_dim_v / WarpTilesBuilder::eight - 1)) * sums + half * 2 + j},
                    end(lane_, w_, qt_, o.h, o.b)) *
        factor(own);
    value = formulas.softmax().gated(value, sum(own), min(column, head_dim_v - 1), q, o.h, o.b);
    for (size_t i = 0; i < o.statistics.size(); i++) {
        value =
            select(column < head_dim_v + int(i), value,
                   formulas.softmax().statistic(o.statistics[i], reference(own), sums_exactly ? Expr(exact(own)) : Expr(sum(own)), o.h));
    }
    value = store(value);
    Func out = o.func;
    out(at(o.d, o.q)) = Halide::undef(value.type());
    out(at(column, q)) = value;
}

std::vector<Func> WarpTilesStages::funcs() const {
    std::vector<Func> all = row_bounds.funcs();
    all.insert(all.end(), of_tile.begin(), of_tile.end());
    for (const ThreadStage &s : before) {
        all.push_back(s.func);
    }
    for (const WarpChunk &c : chunks) {
        for (const ThreadStage &s : c.stages) {
            all.push_back(s.func);
        }
        for (const Func &fragments : {c.key_fragments, c.value_fragments}) {
            if (fragments.defined()) { // a product of four warps has none
                all.push_back(fragments);
            }
        }
    }
    if (query_signed.defined()) {
        all.push_back(query_signed);
    }
    all.push_back(acc);
    for (const ThreadStage &s : after) {
        all.push_back(s.func);
    }
    return all;
}

} // namespace polyhead::gen

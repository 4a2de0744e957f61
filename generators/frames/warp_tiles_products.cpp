// Warp tiles: scores, softmax and products of a chunk.
#include <limits>

#include "warp_tiles_builder.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;
using Halide::min;
using Halide::RDom;

void WarpTilesBuilder::define_scores(const std::string &kind, const Expr &keys, const Expr &is_sent, WarpChunk *chunk) {
    const WarpTilesStages::Registers &r = s_.registers;
    const int sums = k_.product->sums_of_lane(), words_a = k_.product->words_of_a(), words_b = k_.product->words_of_b();
    const RDom d({{0, k_.tiles}, {0, 2}, {0, score_columns()}, {0, (steps() + 1) / 2}},
                 kind + "rk"); // tile, step of two, 8 keys, two steps
    const Expr step = d[3] * 2 + d[1];
    RDom domain = d;
    if (steps() % 2 != 0) {
        domain.where(step < steps());
    }
    chunk->key_fragments = func(kind, "key_fragments");
    const Expr loaded = device_call("load_matrices", {splits() ? r.stored : r.key, key_at_(at({n_ % 2}, false)) + keys,
                                                      nt_ * (eight * row_bytes) + n_ / 2 * (k_.keys * row_bytes)});
    chunk->key_fragments(vars({n_, nt_}, true)) = splits() ? split_pair(r.key, loaded) : loaded;
    Expr token = chunk->key_fragments(at({d[3], d[2]}, true)), query = r.query + (d[0] * steps() + step) * words_a;
    if (!s_.keeps_query) {
        chunk->query_fragments = func(kind, "query_fragments");
        chunk->query_fragments(vars({kt_, mt_}, true)) = load_query(kt_, mt_, mt_ * 2 + kt_ % 2, is_sent);
        query = r.query + (d[0] * 2 + d[1]) * words_a;
        token = token + chunk->query_fragments(at({step, d[0]}, true));
    }
    chunk->scores = func(kind, "scores");
    chunk->scores(vars({}, true)) = 0;
    chunk->scores(vars({}, true)) +=
        warp_product(*k_.product, r.scores + (d[0] * score_columns() + d[2]) * sums, query, r.key + d[1] * words_b, step == 0, token);
    chunk->stages.push_back({chunk->scores, {}, {d[0], d[1], d[2], d[3]}});
    chunk->scores_of_pair = d[2];
    chunk->scores_of_steps = d[3];
}

// The logit of register i of 8 keys nt, from the scores in natural registers. Where scores keep their order it is not in its unit yet: that
// is part of the difference to the reference, one instruction of whole and of masked chunks. So a row has the same bits in any tile.
void WarpTilesBuilder::define_logits(Func logits, const Expr &number, const Func &scores, const Func &unit, bool masked) {
    const Expr key = score_key(number), existing_key = min(key, f_.inputs().seq_len_kv - 1), q = query_of(half_row(i_ / 2, mt_));
    Exprs pairs;
    for (const PairTensor &tensor : f_.logits().pair_tensors()) {
        pairs.push_back(tensor.at(existing_key, q, s_.h, s_.b));
    }
    const Row row = s_.row_bounds.at({i_ / 2, mt_, s_.lane, s_.w, s_.qt, s_.b}, q);
    const auto logit = [&](const Expr &score) { return f_.logits().logit(score, row, key, s_.h, s_.b, pairs, masked); };
    const Expr score = scores(at({i_, nt_, mt_}, true));
    logits(vars({i_, nt_, mt_}, true)) = scores_keep_order()
                                             ? Halide::select(Logits::excluded(logit(0.0f)), -std::numeric_limits<float>::infinity(), score)
                                             : logit(score * unit(at({}, true)));
}

// References, probs and what acc is multiplied by. Returns what says that all of it is in registers.
Func WarpTilesBuilder::define_softmax(const std::string &kind, const Expr &number, Func logits, WarpChunk *chunk) {
    const WarpTilesStages::Registers &r = s_.registers;
    const int tiles = k_.tiles, columns = score_columns();
    const std::vector<std::pair<Var, int>> of_rows = {{q2_, 2}, {mt_, tiles}}, of_scores = {{i_, 4}, {nt_, columns}, {mt_, tiles}};
    Func scores = func(kind, "scores_read"), unit = func(kind, "unit"), row_max = func(kind, "row_max"), largest = func(kind, "largest"),
         reference = func(kind, "row_reference"), probs = func(kind, "probs");
    const Expr after = chunk->scored(at({}, true));
    unit(vars({}, true)) = device_call("get", {r.unit}, after);
    add_stage(&chunk->stages, unit);
    scores(vars({i_, nt_, mt_}, true)) = device_call("get", {r.scores + (mt_ * columns + nt_) * k_.product->sums_of_lane() + i_}, after);
    define_logits(logits, number, scores, unit, chunk->masked());
    const Func compared = scores_keep_order() && !chunk->masked() ? scores : logits;
    add_stage(&chunk->stages, compared, of_scores);
    const Exprs row = at({q2_, mt_}, true);
    const RDom keys(1, 2 * columns - 1, kind + "keys");
    const auto of_row = [&](const Expr &key) { return compared(at({q2_ * 2 + key % 2, key / 2, mt_}, true)); };
    row_max(vars({q2_, mt_}, true)) = of_row(0);
    row_max(vars({q2_, mt_}, true)) = f_.numerics().larger(row_max(row), of_row(keys.x));
    chunk->stages.push_back({row_max, of_rows, {keys.x}});
    largest(vars({q2_, mt_}, true)) = scores_keep_order() ? row_max(row) * unit(at({}, true)) : row_max(row);
    add_stage(&chunk->stages, largest, of_rows);
    define_raised(kind, largest, chunk);
    reference(vars({q2_, mt_}, true)) = device_call("get", {r.reference + mt_ * 2 + q2_}, chunk->raised(at({}, true)));
    add_stage(&chunk->stages, reference, of_rows);
    const Expr compared_here = compared(at({i_, nt_, mt_}, true)),
               logit = scores_keep_order() ? compared_here * unit(at({}, true)) : compared_here;
    probs(vars({i_, nt_, mt_}, true)) = f_.softmax().power(logit - reference(at({i_ / 2, mt_}, true)));
    add_stage(&chunk->stages, probs, of_scores);
    return define_probs(kind, probs, chunk);
}

// The references of rows that a logit of a lane exceeds move up: then acc and the sums are multiplied, and the lanes exchange maxima. Most
// chunks have none. Which rows move does not depend on the other rows of the warp.
void WarpTilesBuilder::define_raised(const std::string &kind, const Func &largest, WarpChunk *chunk) {
    const int first = s_.registers.reference, count = s_.columns_of_acc() * k_.product->sums_of_lane();
    const char *const call = f_.softmax().has_integer_references() ? "raise" : "raise_natural";
    Expr token = 0;
    for (int mt = 0; mt < k_.tiles; mt++) {
        token = token + device_call(call, {acc_slot(mt, 0), count, first + mt * 2, first + mt * 2 + 1, largest(at({0, mt}, true)),
                                           largest(at({1, mt}, true))});
    }
    chunk->raised = func(kind, "raised");
    chunk->raised(vars({}, true)) = token;
    add_stage(&chunk->stages, chunk->raised);
}

// Probs as words, and the sums of rows before they are rounded. The columns of floats in parts are keys in the order in which a lane has
// them: it has two neighbours, which are 4 apart for the product. Sums over keys have any order, and value's rows have the same.
Func WarpTilesBuilder::define_probs(const std::string &kind, const Func &probs, WarpChunk *chunk) {
    const WarpTilesStages::Registers &r = s_.registers;
    const int tiles = k_.tiles, words = k_.product->stored_words_of_a();
    Func packs = func(kind, "probs_packed"), ready = func(kind, "probs_ready"), exact = func(kind, "exact_sum"),
         exact_kept = func(kind, "exact_sum_kept");
    const Expr free = registers_free(kind, probs, chunk);
    const auto prob = [&](int j) { return probs(at({word_ % 2 * 2 + j, kt_ * 2 + word_ / 2, mt_}, true)); };
    const Expr word = r.probs + (mt_ * key_steps() + kt_) * k_.product->words_of_a() + word_;
    packs(vars({word_, kt_, mt_}, true)) =
        splits() ? device_call("split", {word, word + words, probs(at({word_ % 2 * 2 + word_ / 2, kt_, mt_}, true))}, free)
                 : device_call("set_word", {word, packed(*k_.product, prob(0), prob(1))}, free);
    add_stage(&chunk->stages, packs, {{word_, words}, {kt_, key_steps()}, {mt_, tiles}});
    Expr token = 0;
    for (int i = 0; i < words * key_steps() * tiles; i++) {
        token = token + packs(at({i % words, i / words % key_steps(), i / (words * key_steps())}, true));
    }
    if (s_.sums_exactly) {
        const RDom keys(0, 2, 0, score_columns(), kind + "summed");
        exact(vars({q2_, mt_}, true)) = device_call("get", {s_.sum_slot(q2_, mt_, true)}, chunk->raised(at({}, true)) + free);
        exact(vars({q2_, mt_}, true)) += probs(at({q2_ * 2 + keys.x, keys.y, mt_}, true));
        chunk->stages.push_back({exact, {{q2_, 2}, {mt_, tiles}}, {keys.x, keys.y}});
        exact_kept(vars({q2_, mt_}, true)) = device_call("set", {s_.sum_slot(q2_, mt_, true), exact(at({q2_, mt_}, true))});
        add_stage(&chunk->stages, exact_kept, {{q2_, 2}, {mt_, tiles}});
        for (int row_of_lane = 0; row_of_lane < 2 * tiles; row_of_lane++) {
            token = token + exact_kept(at({row_of_lane % 2, row_of_lane / 2}, true));
        }
    }
    ready(vars({}, true)) = token;
    add_stage(&chunk->stages, ready);
    return ready;
}

// The sums of rows += probs . ones: so they are those of the rounded probs.
Func WarpTilesBuilder::define_row_sums(const std::string &kind, const Expr &after, WarpChunk *chunk) {
    const WarpTilesStages::Registers &r = s_.registers;
    Func row_sums = func(kind, "row_sum");
    const RDom k(0, k_.tiles, 0, key_steps(), kind + "ro");
    row_sums(vars({}, true)) = after;
    row_sums(vars({}, true)) +=
        warp_product(*k_.product, r.acc + (k.x * s_.columns_of_acc() + s_.sum_column()) * k_.product->sums_of_lane(),
                     r.probs + (k.x * key_steps() + k.y) * k_.product->words_of_a(), r.ones, 0, c_ * 0);
    chunk->stages.push_back({row_sums, {}, {k.x, k.y}});
    return row_sums;
}

// acc += probs . value. A product may cut off what it adds to a sum, and adds parts that are too small for a long one: so products of
// floats in parts are added up within a chunk, and then to acc.
void WarpTilesBuilder::define_acc(const std::string &kind, const Expr &values, const Expr &after, WarpChunk *chunk) {
    const WarpTilesStages::Registers &r = s_.registers;
    const int sums = k_.product->sums_of_lane(), words_a = k_.product->words_of_a(), words_b = k_.product->words_of_b();
    const int columns = s_.columns_of_acc();
    const Expr summed = s_.sums_by_product() ? define_row_sums(kind, after, chunk)(at({}, true)) : after;
    const RDom d({{0, k_.tiles}, {0, 2}, {0, dv_ / (2 * eight)}, {0, key_steps()}},
                 kind + "rv"); // tile, 8 of 16 columns, 16 columns, keys
    chunk->value_fragments = func(kind, "value_fragments");
    const int panel = sixteens_of_panel();
    const Expr loaded = device_call(splits() ? "load_columns" : "load_transposed",
                                    {splits() ? r.stored : r.value, value_at_(at({n_ % panel}, false)) + values,
                                     kt_ * (depth() * row_bytes) + n_ / panel * (k_.keys * row_bytes)});
    chunk->value_fragments(vars({n_, kt_}, true)) = splits() ? split_pair(r.value, loaded) : loaded;
    chunk->acc = func(kind, "acc");
    chunk->acc(vars({}, true)) = summed;
    const Expr slot = r.acc + (d[0] * columns + d[2] * 2 + d[1]) * sums;
    const auto multiplied = [&](const Expr &to, const Expr &from_zero) {
        return warp_product(*k_.product, to, r.probs + (d[0] * key_steps() + d[3]) * words_a, r.value + d[1] * words_b, from_zero,
                            chunk->value_fragments(at({d[2], d[3]}, true)));
    };
    if (splits()) {
        const Expr of_chunk = r.product + (d[0] * 2 + d[1]) * sums, done = multiplied(of_chunk, d[3] == 0);
        chunk->acc(vars({}, true)) += Halide::select(d[3] == key_steps() - 1, device_call("add", {slot, of_chunk}, done), done);
        chunk->stages.push_back({chunk->acc, {}, {d[0], d[1], d[3], d[2]}});
        chunk->acc_of_load = d[3];
    } else {
        chunk->acc(vars({}, true)) += multiplied(slot, 0);
        chunk->stages.push_back({chunk->acc, {}, {d[0], d[1], d[2], d[3]}});
        chunk->acc_of_load = d[2];
    }
}

} // namespace polyhead::gen

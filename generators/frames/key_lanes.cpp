// Frame "key lanes": gradients of query, key and value in one pass over parts of keys, five products, no matrix of all pairs.
#include "key_lanes_coordinates.h"

#include <algorithm>

#include "../../plan/frames/key_lanes.h"
#include "../formulas/infinity.h"
#include "../written_order.h"

namespace polyhead::gen {

using Halide::cast;
using Halide::clamp;
using Halide::Expr;
using Halide::Func;
using Halide::max;
using Halide::min;
using Halide::RDom;
using Halide::select;
using Halide::undef;
using Halide::unsafe_promise_clamped;
using Halide::Var;

namespace {

// Of the elements of a word, as an integer.
Expr largest_magnitude(const Expr &word, const KeyLanesStages &s) {
    Expr largest;
    for (const Expr &element : s.operands.product.floats(word)) {
        const Expr bits = magnitude_bits(element);
        largest = largest.defined() ? max(largest, bits) : bits;
    }
    return largest;
}

} // namespace

// delta = sum over entries of grad_out * out, and the largest magnitude of what a row brings into products. delta is added up entry by
// entry, as grad_weights of floats are: where one key has all the weight, out is its value, and their difference is exactly 0.
void define_rows(KeyLanesStages &s, const KeyLanesCoordinates &at) {
    const AttentionInputs &in = at.in();
    const int side = rows_of_delta(at.formulas.problem(), s.blocking.lanes);
    const auto squares = [&](const char *name, const auto &tensor) {
        return transpose_squares(name, side, s.head_dim_v, {s.vector, s.h, s.b}, [&](const Expr &column, const Expr &row) {
            return tensor(column, min(s.vector * side + row, in.seq_len_q - 1), s.h, s.b);
        });
    };
    s.grad_out_squares = squares("grad_out_of_delta", in.given_grad_out);
    s.out_squares = squares("out_of_delta", in.out);
    s.delta_entries = RDom(0, side, 0, s.head_dim_v / side, "delta_entries");
    const std::vector<Expr> entry = {s.delta_entries.x * side + s.lane, s.delta_entries.y, s.vector, s.h, s.b};
    s.delta_rows(s.lane, s.vector, s.h, s.b) = 0.0f;
    const Expr sum = s.delta_rows(s.lane, s.vector, s.h, s.b),
               term = s.grad_out_squares->transposed()(entry) * s.out_squares->transposed()(entry);
    // Where sums are instructions of their own, LLVM would add up the terms of a square before it adds them to the sum.
    s.delta_rows(s.lane, s.vector, s.h, s.b) = s.blocking.fused ? sum + term : rounded_sum(sum, term);
    s.delta(s.q, s.h, s.b) = s.delta_rows(s.q % side, s.q / side, s.h, s.b);
    if (at.excludes()) {
        const int words = at.words(s.head_dim), words_v = at.words(s.head_dim_v), most = std::max(words, words_v);
        s.magnitude_words = RDom(0, most, "magnitude_words");
        const auto word = [&](int count) { return count == most ? Expr(s.magnitude_words) : min(s.magnitude_words, count - 1); };
        const Expr of_query = largest_magnitude(s.operands.query(word(words), s.q, s.h, s.b), s),
                   of_gradient = largest_magnitude(s.operands.grad_out(word(words_v), s.q, s.h, s.b), s);
        s.row_magnitude(s.q, s.h, s.b) = 0;
        s.row_magnitude(s.q, s.h, s.b) = max(s.row_magnitude(s.q, s.h, s.b), max(of_query, of_gradient));
    }
    define_numbers_of_rows(s, at);
}

void define_numbers_of_rows(KeyLanesStages &s, const KeyLanesCoordinates &at) {
    const AttentionInputs &in = at.in();
    s.bounds.define(at.formulas, {s.qi, s.qt, s.b}, at.query(s.qi), s.b);
    s.row_reference(s.qi, s.qt, s.g, s.h, s.b) = at.formulas.softmax().reference_of(in.lse(at.query(s.qi), at.head(), s.b));
    s.row_delta(s.qi, s.qt, s.g, s.h, s.b) = s.delta(at.query(s.qi), at.head(), s.b);
}

// key_panels, value_panels = key and value of a part, transposed in squares in registers.
void define_panels(KeyLanesStages &s, const KeyLanesCoordinates &at) {
    const KeyLanesBlocking &blocking = s.blocking;
    const int lanes = blocking.lanes, vectors = blocking.key_panel / lanes;
    const KeyLanesOperands &operands = s.operands;
    const Expr factor = at.formulas.operands().query_factor();
    const auto row_of = [&](const Expr &row) { return at.clamped_key(s.panel * blocking.key_panel + s.vector * lanes + row); };
    if (at.k() > 1) {
        s.score_factor() = factor; // a Func, or Halide 21 multiplies every score by each of its factors
    }
    s.key_squares =
        transpose_squares("key", lanes, blocking.words, at.vars_in_part({s.vector, s.panel}), [&](const Expr &word, const Expr &row) {
            const Expr key = operands.key(word, row_of(row), s.h, s.b);
            return at.k() > 1 ? key : key * factor;
        });
    s.value_squares = transpose_squares("value", lanes, blocking.words, at.vars_in_part({s.vector, s.panel}),
                                        [&](const Expr &word, const Expr &row) { return operands.value(word, row_of(row), s.h, s.b); });
    s.squares = RDom(0, lanes, 0, lanes, 0, blocking.words / lanes, 0, vectors, 0, blocking.panels(), "squares");
    const Expr lane = s.squares[0], column = s.squares[1], block = s.squares[2], vector = s.squares[3], panel = s.squares[4];
    const auto define = [&](Func panels, const TransposedSquares &squares) {
        panels(at.vars_in_part({s.lane, s.d, s.panel})) = undef(operands.product.type);
        panels(at.in_part({vector * lanes + lane, block * lanes + column, panel})) =
            squares.transposed()(at.in_part({column * lanes + lane, block, vector, panel}));
    };
    define(s.key_panels, *s.key_squares);
    define(s.value_panels, *s.value_squares);
    if (at.excludes()) {
        s.key_words = RDom(0, blocking.key_panel, 0, at.words(s.head_dim), 0, blocking.panels(), "key_words");
        const Expr word = s.key_panels(at.in_part({s.key_words.x, s.key_words.y, s.key_words.z}));
        s.key_magnitude(s.p, s.sp, s.h, s.b) = 0;
        s.key_magnitude(s.p, s.sp, s.h, s.b) = max(s.key_magnitude(s.p, s.sp, s.h, s.b), largest_magnitude(word, s));
    }
}

namespace {

// Tensors over pairs, read along the keys. Blocks that end behind the last key are loaded by themselves.
std::vector<Expr> define_pairs(KeyLanesStages &s, const KeyLanesCoordinates &at, const Expr &kk, const Expr &qi) {
    const int lanes = s.blocking.lanes;
    std::vector<Expr> elements;
    for (const PairTensor &tensor : at.formulas.logits().pair_tensors()) {
        Func rows(tensor.name + "_rows");
        rows(at.vars_in_tile({s.kk, s.qi})) = undef(tensor.at(0, 0, 0, 0).type());
        for (const bool clamped : {false, true}) {
            const RDom r(0, lanes, 0, s.blocking.kv_tile / lanes, clamped ? "last_pairs" : "pairs");
            RDom domain = r;
            const Expr first = at.first_key() + r.y * lanes, in_part = r.y * lanes + r.x;
            at.tile_range().limit(&domain, first, first + lanes);
            const Expr inside = first + lanes <= at.in().seq_len_kv;
            domain.where(clamped ? !inside : inside);
            const Expr key = at.key(in_part);
            rows(at.in_tile({domain.y * lanes + domain.x, s.qi})) = tensor.at(
                clamped ? clamp(key, 0, at.last_key()) : unsafe_promise_clamped(key, 0, at.last_key()), at.query(s.qi), at.head(), s.b);
            s.pair_blocks.push_back(domain);
        }
        s.pairs.push_back(rows);
        elements.push_back(rows(at.in_tile({kk, qi})));
    }
    return elements;
}

// The pairs of a part and a tile, in panels and groups of rows of which some row sees some key: (key in panel, row, group, panel). Also
// those beside them where a register tile of gradients may lie in both: it reads all of its rows, or keys.
// k: rows that share a word.
RDom pairs_of_tile(const KeyLanesStages &s, const KeyLanesCoordinates &at, const std::string &name, int k = 1) {
    const KeyLanesBlocking &blocking = s.blocking;
    RDom r(0, blocking.key_panel, 0, blocking.score_rows / k, 0, blocking.q_tile / blocking.score_rows, 0, blocking.panels(), name);
    const Expr first_row = r.z * blocking.score_rows, first = at.first_key() + r.w * blocking.key_panel;
    const int more_rows = blocking.score_rows % blocking.grad_rows == 0 ? 0 : blocking.grad_rows - 1,
              more_keys = blocking.key_panel % blocking.grad_rows == 0 ? 0 : blocking.grad_rows - 1;
    const Expr last_row = first_row + (blocking.score_rows - 1 + more_rows);
    at.range(at.query(more_rows == 0 ? first_row : max(first_row - more_rows, 0)), at.query(last_row))
        .limit(&r, first - more_keys, first + (blocking.key_panel + more_keys));
    r.where(s.qt * blocking.q_tile + first_row < at.in().seq_len_q);
    return r;
}

// dropout: in groups of keys whose decisions are made together.
void define_dropout(KeyLanesStages &s, const KeyLanesCoordinates &at) {
    const Dropout &dropout = at.formulas.dropout();
    const int groups = s.blocking.kv_tile / Dropout::group;
    s.dropout_words(at.vars_in_tile({s.lane, s.group, s.qi})) =
        Halide::Tuple(dropout.words(at.part(s.p, s.sp) * groups + s.group, s.lane, s.qt * s.blocking.q_tile + s.qi, at.head(), s.b));
    s.dropout_groups = RDom(0, Dropout::lanes, 0, Dropout::places, 0, groups, 0, s.blocking.q_tile, "dropout_groups");
    const Expr lane = s.dropout_groups.x, place = s.dropout_groups.y, group = s.dropout_groups.z, row = s.dropout_groups.w;
    const Expr first = at.first_key() + group * Dropout::group;
    at.tile_range().limit(&s.dropout_groups, first, first + Dropout::group);
    std::vector<Expr> words;
    for (int i = 0; i < 4; i++) {
        words.push_back(s.dropout_words(at.in_tile({lane, group, row}))[i]);
    }
    s.dropout(at.vars_in_tile({s.kk, s.qi})) = undef<float>();
    s.dropout(at.in_tile({group * Dropout::group + place * Dropout::lanes + lane, row})) = dropout.factor(words, place);
}

} // namespace

// weights = exp(logit - lse); grad_scores = weights * (grad_weights - delta), times the slope of the logit
void define_weights(KeyLanesStages &s, const KeyLanesCoordinates &at, bool of_logits) {
    const KeyLanesBlocking &blocking = s.blocking;
    const AttentionFormulas &formulas = at.formulas;
    const auto product = [&](Func result, RDom *domain, const char *name, int width, const Func &panels, auto &&element) {
        *domain = RDom(0, at.words(width), name);
        const std::vector<Var> place = at.vars_in_tile({s.lane, s.row, s.panel, s.group});
        const Expr word = *domain, qi = s.group * blocking.score_rows + s.row;
        result(place) = 0.0f;
        result(place) = s.operands.product.add_products(result(place), panels(at.in_part({s.lane, word, s.panel})),
                                                        element(word, at.query(qi), at.head(), s.b));
    };
    product(s.scores, &s.score_words, "score_words", s.head_dim, s.key_panels, s.operands.query);
    product(s.grad_weights, &s.grad_words, "grad_words", s.head_dim_v, s.value_panels, s.operands.grad_out);
    const auto place = [&](const RDom &r) { return at.in_tile({r.w * blocking.key_panel + r.x, r.z * blocking.score_rows + r.y}); };
    const auto in_registers = [&](const RDom &r) { return at.in_tile({r.x, r.y, r.w, r.z}); };
    const auto row_of = [&](const RDom &r) { return r.z * blocking.score_rows + r.y; };

    s.weight_rows = pairs_of_tile(s, at, "weight_rows");
    const Expr kk = s.weight_rows.w * blocking.key_panel + s.weight_rows.x, qi = row_of(s.weight_rows);
    const Expr product_of_row = s.scores(in_registers(s.weight_rows)),
               score = at.k() > 1 ? product_of_row * s.score_factor() : product_of_row;
    const Row row = s.bounds.at({qi, s.qt, s.b}, s.qt * blocking.q_tile + qi);
    const Expr logit = formulas.logits().logit(score, row, at.key(kk), at.head(), s.b, define_pairs(s, at, kk, qi), true);
    const Expr weight = formulas.softmax().weight(logit, s.row_reference(qi, s.qt, s.g, s.h, s.b));
    const Expr slope = of_logits ? Expr() : formulas.logits().slope(score, row, at.key(kk), at.head(), s.b);
    s.has_slopes = slope.defined() && (s.tables.empty() || !Halide::Internal::is_const_one(Halide::Internal::simplify(slope)));
    const std::vector<Var> pair = at.vars_in_tile({s.kk, s.qi});
    // Rows of a tile of gradients may see, as far as ranges tell, keys that an expression leaves out: those weights are read, and 0. Sums
    // for tables read whole tiles.
    const bool read_beyond = of_logits || formulas.visibility().bounded_by_expression() || !s.tables.empty();
    const Expr nothing = read_beyond ? Expr(0.0f) : undef<float>();
    std::vector<Expr> of_weights = s.has_slopes ? std::vector<Expr>{weight, slope} : std::vector<Expr>{weight};
    add_table_factors(
        s, [&](const TableLine &line) { return formulas.logits().by_read(line.read, score, row, at.key(kk), at.head(), s.b); },
        &of_weights);
    define_values(s.weights, pair, std::vector<Expr>(of_weights.size(), nothing));
    define_values(s.weights, place(s.weight_rows), of_weights);

    s.logit_rows = pairs_of_tile(s, at, "logit_rows");
    const Expr prob = value_at(s.weights, place(s.logit_rows));
    Expr by_weight = s.grad_weights(in_registers(s.logit_rows));
    if (formulas.dropout().active()) {
        define_dropout(s, at);
        by_weight = rounded_product(by_weight, s.dropout(place(s.logit_rows)));
        s.kept_rows = RDom(0, blocking.kv_tile, 0, blocking.q_tile, "kept_rows");
        const std::vector<Expr> of_tile = at.in_tile({s.kept_rows.x, s.kept_rows.y});
        s.kept_weights(pair) = undef<float>();
        s.kept_weights(of_tile) = value_at(s.weights, of_tile) * s.dropout(of_tile);
    }
    const Expr of_logit = prob * (by_weight - s.row_delta(row_of(s.logit_rows), s.qt, s.g, s.h, s.b));
    std::vector<Expr> gradients = {s.has_slopes ? rounded_product(of_logit, value_at(s.weights, place(s.logit_rows), 1)) : of_logit};
    add_table_gradients(s, of_logit, place(s.logit_rows), &gradients);
    for (Expr &gradient : gradients) { // the other keys of a word may not exist
        gradient = at.excludes() || at.k() > 1 || !s.tables.empty() ? select(is_zero(prob), 0.0f, gradient) : gradient;
    }
    define_values(s.grad_scores, pair, std::vector<Expr>(gradients.size(), nothing));
    define_values(s.grad_scores, place(s.logit_rows), gradients);
}

namespace {

// Which products a tile of gradients has, and of which queries or keys.
void define_turns(KeyLanesStages &s, const KeyLanesCoordinates &at) {
    const KeyLanesBlocking &blocking = s.blocking;
    const Visibility &visibility = at.formulas.visibility();
    const int key_tiles = blocking.key_tiles(), rows = blocking.grad_rows;
    const Expr seq_len_q = at.in().seq_len_q, length = visibility.kv_length(s.b), first_query = s.qt * blocking.q_tile;
    const Expr of_keys = s.t < 2 * key_tiles, key = at.first_key() + s.t % key_tiles * rows,
               query = first_query + (s.t - 2 * key_tiles) * rows;
    const auto in_tile = [&](const Expr &q) { return clamp(q - first_query, 0, blocking.q_tile); };
    const auto in_part = [&](const Expr &kv) { return clamp(kv - at.first_key(), 0, blocking.kv_tile); };
    const Expr row = clamp(query, 0, seq_len_q - 1), last_row = clamp(query + (rows - 1), 0, seq_len_q - 1);
    const Expr begin = visibility.keys_begin(row, s.b), last_key = min(key + (rows - 1), length - 1);
    Expr first = select(of_keys, in_tile(visibility.queries_begin(key, s.b)), begin.defined() ? in_part(begin) : Expr(0));
    Expr end = select(of_keys, select(key < length, in_tile(min(visibility.queries_end(last_key, s.b), seq_len_q)), 0),
                      select(query < seq_len_q, in_part(visibility.keys_end(last_row, s.b)), 0));
    const Expr of_table = s.t >= blocking.tiles() - blocking.table_tiles;
    Expr wanted = s.kind % 3 == min(s.t / key_tiles, 2);
    if (at.excludes()) {
        RDom rows_of_tile(0, blocking.q_tile, "rows_of_tile");
        s.tile_magnitude(s.qt, s.g, s.p, s.sp, s.h, s.b) = s.key_magnitude(s.p, s.sp, s.h, s.b);
        s.tile_magnitude(s.qt, s.g, s.p, s.sp, s.h, s.b) =
            max(s.tile_magnitude(s.qt, s.g, s.p, s.sp, s.h, s.b), s.row_magnitude(at.query(rows_of_tile), at.head(), s.b));
        wanted = wanted && (s.kind < 3) == (s.tile_magnitude(s.qt, s.g, s.p, s.sp, s.h, s.b) < infinity_bits);
    }
    // Where there are none, the word in which they would begin has pairs that were not computed.
    wanted = at.k() > 1 ? wanted && first < end : wanted;
    if (blocking.table_tiles > 0) { // one turn, of a kind of its own
        const int kind_of_tables = at.excludes() ? 6 : 3;
        wanted = select(of_table, s.kind == kind_of_tables, s.kind < kind_of_tables && wanted);
        first = select(of_table, 0, first);
        end = select(of_table, 1, end);
    }
    s.first_turn(s.t, s.qt, s.p, s.sp, s.b) = first / at.k();
    s.turns_end(at.vars_in_tile({s.kind, s.t})) = select(wanted, at.words(end), 0);
}

// Weights and gradients of scores as words of neighbouring rows and, of gradients, as elements along the keys. A word may have a row beyond
// those that see the key: its element is 0, or the row does not exist.
void define_words(KeyLanesStages &s, const KeyLanesCoordinates &at) {
    if (at.k() == 1) {
        return;
    }
    const KeyLanesBlocking &blocking = s.blocking;
    const LaneProduct &product = s.operands.product;
    const int k = product.k;
    const bool reads_all = at.formulas.visibility().bounded_by_expression();
    const auto define = [&](Func words, RDom *domain, const char *name, const std::function<Expr(Expr kk, Expr qi)> &element) {
        *domain = pairs_of_tile(s, at, name, k);
        const Expr kk = domain->w * blocking.key_panel + domain->x, row = domain->z * (blocking.score_rows / k) + domain->y;
        std::vector<Expr> elements;
        for (int i = 0; i < k; i++) {
            elements.push_back(element(kk, row * k + i));
        }
        words(at.vars_in_tile({s.kk, s.qi})) = reads_all ? cast(product.type, 0) : undef(product.type);
        words(at.in_tile({kk, row})) = product.round(elements);
    };
    define(s.weight_words, &s.weight_pairs, "weight_pairs", [&](auto... i) { return at.kept_weight(at.in_tile({i...})); });
    define(s.grad_score_words, &s.score_pairs, "score_pairs", [&](auto... i) { return value_at(s.grad_scores, at.in_tile({i...})); });
    s.row_pairs = pairs_of_tile(s, at, "row_pairs");
    const RDom &r = s.row_pairs;
    const Expr kk = r.w * blocking.key_panel + r.x, row = r.z * blocking.score_rows + r.y, bits = 32 / k;
    const Expr both = s.grad_score_words(at.in_tile({kk, row / k}));
    s.grad_score_rows(at.vars_in_tile({s.kk, s.qi})) = reads_all ? cast<uint16_t>(0) : undef<uint16_t>();
    s.grad_score_rows(at.in_tile({kk, row})) = cast<uint16_t>(both >> cast<uint32_t>(row % k * bits));
}

// tile_sums = the products of a register tile: one Func with updates of which all but one have no turns, so that one loop nest can add
// every gradient to sums.
void define_products(KeyLanesStages &s, const KeyLanesCoordinates &at) {
    const KeyLanesBlocking &blocking = s.blocking;
    const KeyLanesOperands &operands = s.operands;
    const LaneProduct &product = operands.product;
    const int key_tiles = blocking.key_tiles(), rows = blocking.grad_rows;
    const std::vector<Var> place = at.vars_in_tile({s.x, s.row, s.block, s.t});
    const Expr column = s.block * blocking.grad_columns + s.x;
    const auto row_of_tile = [&](int first, int count) { return unsafe_promise_clamped((s.t - first) * rows + s.row, 0, count - 1); };
    s.tile_sums(place) = 0.0f;
    for (int kind = 0; kind < (at.excludes() ? 6 : 3); kind++) {
        const bool of_query = kind % 3 == 2;
        RDom turns(0, (of_query ? blocking.kv_tile : blocking.q_tile) / product.k, "products");
        turns.where(turns < s.turns_end(at.in_tile({kind, s.t})));
        turns.where(turns >= s.first_turn(s.t, s.qt, s.p, s.sp, s.b));
        const int width = kind % 3 == 0 ? s.head_dim_v : s.head_dim;
        if (width <= blocking.width - blocking.grad_columns) {
            turns.where(s.block * blocking.grad_columns < width);
        }
        const Expr turn = turns, head = at.head();
        const Expr row = of_query ? row_of_tile(2 * key_tiles, blocking.q_tile) : row_of_tile(kind % 3 * key_tiles, blocking.kv_tile);
        const Expr factor = kind % 3 == 0   ? at.weight_word(row, turn)
                            : kind % 3 == 1 ? at.grad_score_word(row, turn)
                                            : at.grad_score_word_of_row(turn, row);
        Expr read = kind % 3 == 0   ? operands.grad_out_rows(column, at.existing_queries(turn), head, s.b)
                    : kind % 3 == 1 ? operands.query_rows(column, at.existing_queries(turn), head, s.b)
                                    : operands.key_rows(column, at.existing_keys(turn), s.h, s.b);
        if (kind >= 3) { // the value is dropped and not the product, so that every loop has one fused multiply-add, and the same bits
            std::vector<Expr> dropped;
            for (const Expr &element : product.floats(factor)) {
                dropped.push_back(is_zero(element));
            }
            read = product.drop(read, dropped);
        }
        s.tile_sums(place) = product.add_products(s.tile_sums(place), factor, read);
        s.products.push_back(turns);
    }
    if (blocking.table_tiles > 0) {
        const int first = blocking.tiles() - blocking.table_tiles, kind = int(s.products.size());
        RDom turn(0, 1, "table_turn");
        turn.where(turn < s.turns_end(at.in_tile({kind, s.t})));
        s.tile_sums(place) += s.table_rows(at.in_tile({column, row_of_tile(first, blocking.table_tiles * rows) + turn}));
        s.products.push_back(turn);
    }
}

void define_sums(KeyLanesStages &s, const KeyLanesCoordinates &at) {
    const KeyLanesBlocking &blocking = s.blocking;
    const int key_tiles = blocking.key_tiles(), rows = blocking.grad_rows, part = blocking.kv_tile;
    const Expr parts = (at.in().seq_len_kv + part - 1) / part, of_split = (parts + blocking.splits - 1) / blocking.splits;
    const Expr tiles = (s.seq_len_q + blocking.q_tile - 1) / blocking.q_tile, key_rows = of_split * part,
               query_rows = tiles * blocking.q_tile;
    const Expr table_rows = 2 * key_rows + s.group_size * query_rows;
    s.rows = s.tables.empty() ? table_rows : table_rows + s.group_size * s.table_rows_of_head;
    s.merge = RDom(0, blocking.grad_columns, 0, rows, 0, blocking.column_blocks(), 0, blocking.tiles(), 0, tiles, 0, s.group_size, 0,
                   of_split, "merge");
    const Expr x = s.merge[0], row = s.merge[1], block = s.merge[2], tile = s.merge[3], qt = s.merge[4], g = s.merge[5], p = s.merge[6];
    const Expr first_row = min(qt * blocking.q_tile, s.seq_len_q - 1),
               last_row = min(qt * blocking.q_tile + (blocking.q_tile - 1), s.seq_len_q - 1);
    const Expr first_key = at.first_key(p, s.sp);
    TileRange(at.formulas, first_row, last_row, s.b).limit(&s.merge, first_key, first_key + part);
    Expr first_of_tile =
        select(tile < key_tiles, p * part + tile * rows, tile < 2 * key_tiles, key_rows + p * part + (tile - key_tiles) * rows,
               2 * key_rows + g * query_rows + qt * blocking.q_tile + (tile - 2 * key_tiles) * rows);
    if (!s.tables.empty()) {
        first_of_tile = select(tile < blocking.tiles() - blocking.table_tiles, first_of_tile,
                               table_rows + g * s.table_rows_of_head + place_in_tables(s, at, tile, qt, p));
    }
    const Expr place = first_of_tile + row;
    s.sums(s.x, s.row, s.sp, s.h, s.b) = 0.0f;
    s.sums(block * blocking.grad_columns + x, unsafe_promise_clamped(place, 0, s.rows - 1), s.sp, s.h, s.b) +=
        s.tile_sums(x, row, block, tile, qt, g, p, s.sp, s.h, s.b);

    const auto sum_at = [sums = s.sums, rows = s.rows](const Expr &d, const Expr &of_row, const Expr &split, const Expr &h,
                                                       const Expr &b) -> Expr {
        return sums(d, unsafe_promise_clamped(of_row, 0, rows - 1), split, h, b);
    };
    const Expr scale = at.in().number("softmax_scale");
    const int splits = blocking.splits;
    // Keys behind the valid ones share register tiles with them.
    const auto of_key = [=, formulas = at.formulas](const Expr &first, const Expr &d, const Expr &kv, const Expr &h, const Expr &b) {
        const Expr number = kv / part, split = splits == 1 ? Expr(0) : number % splits;
        const Expr value = sum_at(d, first + (splits == 1 ? Expr(kv) : number / splits * part + kv % part), split, h, b);
        return formulas.problem().kv_lengths != 0 ? select(kv < formulas.visibility().kv_length(b), value, 0.0f) : value;
    };
    if (!s.tables.empty()) {
        Expr sum;
        for (int i = 0; i < splits; i++) {
            const Expr of_split_ = sum_at(s.x, table_rows + s.row, i, s.h, s.b);
            sum = sum.defined() ? sum + of_split_ : of_split_;
        }
        s.table_sums(s.x, s.row, s.h, s.b) = sum;
    }
    s.query_sums = [=, group_size = s.group_size](const Expr &d, const Expr &q, const Expr &h, const Expr &b) {
        Expr sum;
        for (int i = 0; i < splits; i++) {
            const Expr of_split_ = sum_at(d, 2 * key_rows + h % group_size * query_rows + q, i, h / group_size, b);
            sum = sum.defined() ? sum + of_split_ : of_split_;
        }
        return sum * scale;
    };
    s.key_sums = [=](const Expr &d, const Expr &kv, const Expr &h, const Expr &b) { return of_key(key_rows, d, kv, h, b) * scale; };
    s.value_sums = [=](const Expr &d, const Expr &kv, const Expr &h, const Expr &b) { return of_key(0, d, kv, h, b); };
}

} // namespace

KeyLanesStages key_lanes(const AttentionFormulas &formulas, const KeyLanesBlocking &blocking, const KeyLanesOperands &operands) {
    const AttentionInputs &in = formulas.inputs();
    KeyLanesStages s;
    s.blocking = blocking;
    s.operands = operands;
    s.head_dim = formulas.problem().head_dim;
    s.head_dim_v = formulas.problem().head_dim_v;
    s.num_kv_heads = in.num_kv_heads;
    s.batch = in.batch;
    s.group_size = formulas.group_size();
    s.seq_len_q = in.seq_len_q;
    s.seq_len_kv = in.seq_len_kv;
    const KeyLanesCoordinates at{formulas, s, s.blocking};
    list_tables(s, at);
    define_rows(s, at);
    define_panels(s, at);
    define_weights(s, at, false);
    define_words(s, at);
    define_tables(s, at);
    define_turns(s, at);
    define_products(s, at);
    define_sums(s, at);
    return s;
}

std::vector<Func> KeyLanesStages::funcs() const {
    std::vector<Func> all = {delta_rows, delta, row_magnitude};
    for (const auto &squares : {grad_out_squares, out_squares}) {
        const std::vector<Func> steps = squares ? squares->funcs() : std::vector<Func>();
        all.insert(all.end(), steps.begin(), steps.end());
    }
    const std::vector<Func> of_rows = bounds.funcs();
    all.insert(all.end(), of_rows.begin(), of_rows.end());
    all.insert(all.end(), {row_reference, row_delta});
    for (const auto &squares : {key_squares, value_squares}) {
        const std::vector<Func> steps = squares->funcs();
        all.insert(all.end(), steps.begin(), steps.end());
    }
    all.insert(all.end(), {score_factor, key_panels, value_panels, key_magnitude});
    all.insert(all.end(), pairs.begin(), pairs.end());
    all.insert(all.end(), {scores, weights, grad_weights, dropout_words, dropout, kept_weights, grad_scores, weight_words, grad_score_words,
                           grad_score_rows, tile_magnitude, first_turn, turns_end, tile_sums, sums, shifted, table_rows, table_sums});
    if (read_on) {
        all.insert(all.end(), {grad_query, grad_key, grad_value});
    }
    for (const TableLine &line : tables) {
        all.insert(all.end(), {line.parts, line.sums});
    }
    for (const HeadGradient *gradient : {&of_query, &of_key, &of_value}) {
        const std::vector<Func> steps = gradient->funcs();
        all.insert(all.end(), steps.begin(), steps.end());
    }
    all.erase(std::remove_if(all.begin(), all.end(), [](const Func &f) { return !f.defined(); }), all.end());
    return all;
}

} // namespace polyhead::gen

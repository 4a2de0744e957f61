// Frame "key lanes": gradients of tensors that an expression reads. Every read has a line of sums for each head: one element for each key,
// query or diagonal, or for each element that the pairs of the head may read. The indices of an element are looked up once per head, when
// the lines of all heads are added to the gradient. So the tiles add vectors, but where queries and keys choose elements freely.
#include "key_lanes_coordinates.h"

#include <algorithm>

#include "../../plan/frames/key_lanes.h"
#include "../formulas/infinity.h"
#include "../written_order.h"

namespace polyhead::gen {

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
using language::Follows;

namespace {

Expr blocks(const Expr &length, int block) {
    return (length + block - 1) / block;
}

// Where the piece of a tile begins in the line of a head.
Expr first_element(const KeyLanesCoordinates &at, const TableLine &line, const Expr &qt, const Expr &p) {
    const int tile = at.blocking.q_tile;
    switch (line.read.follows) {
    case Follows::keys:
        return at.first_key(p, at.s.sp);
    case Follows::queries:
        return qt * tile;
    case Follows::diagonals: // the last tile begins at 0
        return at.first_key(p, at.s.sp) + (blocks(at.in().seq_len_q, tile) - 1 - qt) * tile;
    default:
        return 0;
    }
}

// The gradient of a pair of a tile, which is 0 where the pair takes no part.
Expr gradient_at(const KeyLanesStages &s, const KeyLanesCoordinates &at, const TableLine &line, const Expr &kk, const Expr &qi) {
    return value_at(s.grad_scores, at.in_tile({kk, qi}), line.gradient);
}

// Rows behind the last query repeat it.
void within_queries(RDom *domain, const Expr &qi, const KeyLanesCoordinates &at) {
    domain->where(qi < at.in().seq_len_q - at.s.qt * at.blocking.q_tile);
}

// The element that a pair reads, of those that the pairs of a head may read.
Expr element_of_pair(const KeyLanesCoordinates &at, const TableLine &line, const Expr &kk, const Expr &qi) {
    const std::vector<Expr> indices = at.formulas.logits().indices(line.read, at.existing_query(qi), at.key(kk), at.head(), at.s.b);
    Expr element = 0;
    for (size_t i = 0; i < indices.size(); i++) {
        const int extent = line.read.extents[i];
        element = extent == 1 ? element : element * extent + clamp(indices[i], 0, extent - 1);
    }
    return element;
}

// line.sums += what the pairs of a tile add.
void define_line(KeyLanesStages &s, const KeyLanesCoordinates &at, TableLine &line) {
    const int tile = at.blocking.q_tile, part = at.blocking.kv_tile, zeros = at.blocking.width, lanes = at.blocking.lanes;
    Func sums = line.sums;
    sums(at.vars_in_tile({s.element})) = 0.0f;
    const auto add = [&](const Expr &element, const Expr &gradient) { sums(at.in_tile({zeros + element})) += gradient; };
    switch (line.read.follows) {
    case Follows::queries:
        line.shares = RDom(0, lanes, 0, part / lanes, "shares");
        line.parts(at.vars_in_tile({s.lane, s.qi})) = 0.0f;
        line.parts(at.in_tile({line.shares.x, s.qi})) += gradient_at(s, at, line, line.shares.y * lanes + line.shares.x, s.qi);
        line.pairs = RDom(0, tile, 0, lanes, "table_pairs");
        add(line.pairs.x, line.parts(at.in_tile({line.pairs.y, line.pairs.x})));
        break;
    case Follows::diagonals:
        line.pairs = RDom(0, tile + part, 0, tile, "table_pairs");
        within_queries(&line.pairs, line.pairs.y, at);
        add(line.pairs.x, value_at(s.shifted, at.in_tile({line.pairs.x + line.pairs.y, line.pairs.y}), line.gradient));
        break;
    case Follows::pairs:
        line.pairs = RDom(0, part, 0, tile, "table_pairs");
        within_queries(&line.pairs, line.pairs.y, at);
        line.pairs.where(line.pairs.x < at.in().seq_len_kv - at.first_key());
        add(unsafe_promise_clamped(element_of_pair(at, line, line.pairs.x, line.pairs.y), 0, line.elements - 1),
            gradient_at(s, at, line, line.pairs.x, line.pairs.y));
        break;
    default:
        line.pairs = RDom(0, part, 0, tile, "table_pairs");
        within_queries(&line.pairs, line.pairs.y, at);
        add(line.pairs.x, gradient_at(s, at, line, line.pairs.x, line.pairs.y));
    }
}

bool sums_diagonals(const KeyLanesStages &s) {
    return std::any_of(s.tables.begin(), s.tables.end(), [](const TableLine &line) { return line.read.follows == Follows::diagonals; });
}

} // namespace

void define_values(Func f, const std::vector<Expr> &place, const std::vector<Expr> &values) {
    if (values.size() == 1) {
        f(place) = values[0];
    } else {
        f(place) = Halide::Tuple(values);
    }
}

void define_values(Func f, const std::vector<Var> &place, const std::vector<Expr> &values) {
    if (values.size() == 1) {
        f(place) = values[0];
    } else {
        f(place) = Halide::Tuple(values);
    }
}

Expr value_at(const Func &f, const std::vector<Expr> &place, int i) {
    return f.outputs() == 1 ? Expr(f(place)) : Expr(f(place)[i]);
}

void list_tables(KeyLanesStages &s, const KeyLanesCoordinates &at) {
    KeyLanesBlocking &blocking = s.blocking;
    const int width = blocking.width;
    const AttentionInputs &in = at.in();
    const Expr keys = blocks(in.seq_len_kv, blocking.kv_tile) * blocking.kv_tile,
               queries = blocks(in.seq_len_q, blocking.q_tile) * blocking.q_tile;
    Expr rows_of_head = 0;
    int rows = 0;
    for (const language::TableRead &read : at.formulas.logits().table_reads()) {
        TableLine line;
        line.read = read;
        const TableTile tile = table_tile(read.follows, read.elements(), blocking.q_tile, blocking.kv_tile, width, blocking.grad_rows);
        line.elements = tile.elements;
        line.rows = tile.rows;
        line.first_row = rows;
        line.first_row_of_head = rows_of_head;
        const Expr last = read.follows == Follows::keys        ? keys
                          : read.follows == Follows::queries   ? queries
                          : read.follows == Follows::diagonals ? keys + queries
                                                               : Expr(0);
        rows_of_head = rows_of_head + last / width + line.rows;
        rows += line.rows;
        s.tables.push_back(line);
    }
    s.table_rows_of_head = rows_of_head;
    blocking.table_tiles = rows / blocking.grad_rows;
}

void add_table_factors(KeyLanesStages &s, const std::function<Expr(const TableLine &)> &by_read, std::vector<Expr> *values) {
    for (TableLine &line : s.tables) {
        const Expr factor = Halide::Internal::simplify(by_read(line));
        if (!Halide::Internal::is_const_one(factor)) {
            line.factor = int(values->size());
            values->push_back(factor);
        }
    }
}

// In the branch of a select that was not taken nothing is read, whatever the gradient of the logit is.
void add_table_gradients(KeyLanesStages &s, const Expr &of_logit, const std::vector<Expr> &place, std::vector<Expr> *values) {
    for (TableLine &line : s.tables) {
        if (line.factor == 0 && !s.has_slopes) {
            continue;
        }
        line.gradient = int(values->size());
        const Expr factor = line.factor == 0 ? Expr() : value_at(s.weights, place, line.factor);
        values->push_back(factor.defined() ? select(is_zero(factor), 0.0f, rounded_product(of_logit, factor)) : of_logit);
    }
}

void define_tables(KeyLanesStages &s, const KeyLanesCoordinates &at) {
    if (s.tables.empty()) {
        return;
    }
    const KeyLanesBlocking &blocking = s.blocking;
    const int width = blocking.width;
    if (sums_diagonals(s)) {
        const RDom r(0, blocking.kv_tile, 0, blocking.q_tile, "shifted_pairs");
        std::vector<Expr> values;
        for (int i = 0; i < s.grad_scores.outputs(); i++) {
            values.push_back(value_at(s.grad_scores, at.in_tile({r.x, r.y}), i));
        }
        define_values(s.shifted, at.vars_in_tile({s.kk, s.qi}), std::vector<Expr>(values.size(), 0.0f));
        define_values(s.shifted, at.in_tile({r.x + blocking.q_tile, r.y}), values);
        s.shifted_pairs = r;
    }
    s.table_rows(at.vars_in_tile({s.x, s.row})) = undef<float>();
    for (TableLine &line : s.tables) {
        define_line(s, at, line);
        line.copied = RDom(0, width, 0, line.rows, "copied");
        const Expr shift = first_element(at, line, s.qt, s.p) % width, element = line.copied.y * width + line.copied.x - shift;
        s.table_rows(at.in_tile({line.copied.x, line.first_row + line.copied.y})) =
            line.sums(at.in_tile({unsafe_promise_clamped(element + width, 0, (line.rows + 1) * width - 1)}));
    }
}

Expr place_in_tables(const KeyLanesStages &s, const KeyLanesCoordinates &at, const Expr &tile, const Expr &qt, const Expr &p) {
    const int rows = s.blocking.grad_rows, first_tile = s.blocking.tiles() - s.blocking.table_tiles;
    Expr place;
    for (auto line = s.tables.rbegin(); line != s.tables.rend(); ++line) {
        const int begin = first_tile + line->first_row / rows;
        const Expr here = line->first_row_of_head + first_element(at, *line, qt, p) / s.blocking.width + (tile - begin) * rows;
        place = place.defined() ? select(tile < begin + line->rows / rows, here, place) : here;
    }
    return place;
}

Expr line_elements(const AttentionFormulas &formulas, const KeyLanesStages &s, const TableLine &line) {
    const AttentionInputs &in = formulas.inputs();
    return line.read.follows == Follows::keys        ? in.seq_len_kv
           : line.read.follows == Follows::queries   ? in.seq_len_q
           : line.read.follows == Follows::diagonals ? in.seq_len_kv + blocks(in.seq_len_q, s.blocking.q_tile) * s.blocking.q_tile
                                                     : Expr(line.elements);
}

Expr line_element(const KeyLanesStages &s, const TableLine &line, const Expr &element, const Expr &head, const Expr &b) {
    const int width = s.blocking.width;
    const Expr row = head % s.group_size * s.table_rows_of_head + line.first_row_of_head + element / width;
    return s.table_sums(element % width, unsafe_promise_clamped(row, 0, s.group_size * s.table_rows_of_head - 1), head / s.group_size, b);
}

// Of a diagonal, those of its first pair.
std::vector<Expr> line_indices(const AttentionFormulas &formulas, const KeyLanesStages &s, const TableLine &line, const Expr &element,
                               const Expr &head, const Expr &b) {
    const Follows follows = line.read.follows;
    const Expr diagonal = element - blocks(formulas.inputs().seq_len_q, s.blocking.q_tile) * s.blocking.q_tile;
    const Expr query = follows == Follows::queries ? element : follows == Follows::diagonals ? max(-diagonal, 0) : Expr(0);
    const Expr key = follows == Follows::keys ? element : follows == Follows::diagonals ? max(diagonal, 0) : Expr(0);
    std::vector<Expr> indices = formulas.logits().indices(line.read, query, key, head, b);
    int inner = follows == Follows::pairs ? line.elements : 1;
    for (size_t i = 0; i < indices.size() && inner > 1; i++) {
        const int extent = line.read.extents[i];
        if (extent > 1) {
            inner /= extent;
            indices[i] = element / inner % extent;
        }
    }
    return indices;
}

} // namespace polyhead::gen

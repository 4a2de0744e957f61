// Keys that only one half of a tile of queries sees, in the frame "query lanes".
#include "query_lanes_coordinates.h"

namespace polyhead::gen {

using Halide::Expr;

// What only one half of a tile sees, where that can be: keys behind first_end only the second, keys before second_begin only the first.
// As Funcs, or Halide 21 would solve the conditions for the tile, and conclude that Funcs of a tile have none of it or several.
std::vector<TilePart> define_halves(QueryLanesStages &s, const QueryLanesCoordinates &at) {
    const auto &[formulas, blocking] = at;
    const int lanes = blocking.lanes(), length = formulas.problem().seq_len_q, rest = length % blocking.q_tile;
    const bool always_whole = length > 0 && (rest == 0 || rest > lanes) && !formulas.visibility().rows_differ();
    if (blocking.tiles || blocking.q_tile != 2 * lanes || always_whole) {
        return {TilePart::whole};
    }
    const Expr in_second = s.qt * blocking.q_tile + lanes, begin = formulas.visibility().keys_begin(at.query(lanes, s.qt), s.b);
    constexpr int behind_all = 1 << 30;
    const Expr has_second = in_second < formulas.inputs().seq_len_q;
    s.second_begin(s.qt, s.b) = Halide::select(has_second, begin.defined() ? begin : Expr(0), behind_all);
    s.vectors_with_rows(s.qt, s.b) = Halide::select(has_second, 2, 1);
    if (!formulas.visibility().rows_differ()) {
        return {TilePart::first, TilePart::both};
    }
    s.first_end(s.qt, s.b) = formulas.visibility().keys_end(at.query(lanes - 1, s.qt), s.b);
    return {TilePart::first, TilePart::both, TilePart::second};
}

Expr in_part(const QueryLanesStages &s, TilePart part, const Expr &first, const Expr &last) {
    if (part == TilePart::whole) {
        return Halide::Internal::const_true();
    }
    const Expr second_sees = last >= s.second_begin(s.qt, s.b);
    const Expr first_sees = s.first_end.defined() ? first < s.first_end(s.qt, s.b) : Halide::Internal::const_true();
    return part == TilePart::first ? !second_sees : part == TilePart::second ? !first_sees : first_sees && second_sees;
}

Expr vector_of(const QueryLanesStages &s, TilePart part) {
    return part == TilePart::first ? Expr(0) : part == TilePart::second ? Expr(1) : Expr(s.vector);
}

} // namespace polyhead::gen

// Dropout in the frame "query lanes".
#include "query_lanes_coordinates.h"

namespace polyhead::gen {

using Halide::Expr;

// kept_probs = probs, or 0: in groups of keys whose decisions are made together.
void define_dropout(QueryLanesStages &s, const QueryLanesCoordinates &at) {
    const Dropout &dropout = at.formulas.dropout();
    const auto &[qi, kk, c, qt, h, b] = std::tie(s.qi, s.kk, s.c, s.qt, s.h, s.b);
    const int groups = at.blocking.kv_tile / Dropout::group;
    const Expr first_group = (at.first_chunk(qt, b) + c) * groups;
    s.dropout_words(qi, s.lane, s.panel, c, qt, h, b) =
        Halide::Tuple(dropout.words(first_group + s.panel, s.lane, qt * at.blocking.q_tile + qi, h, b));
    s.dropout_groups = Halide::RDom(0, Dropout::places, 0, Dropout::lanes, 0, groups, "dropout_groups");
    const Expr place = s.dropout_groups.x, lane = s.dropout_groups.y, group = s.dropout_groups.z;
    const Expr first = at.key_of_chunk(group * Dropout::group, c, qt, b);
    at.range(qt, b).limit(&s.dropout_groups, first, first + Dropout::group);
    std::vector<Expr> words;
    for (int i = 0; i < 4; i++) {
        words.push_back(s.dropout_words(qi, lane, group, c, qt, h, b)[i]);
    }
    const Expr key = group * Dropout::group + place * Dropout::lanes + lane;
    s.kept_probs(qi, kk, c, qt, h, b) = Halide::undef<float>();
    s.kept_probs(qi, key, c, qt, h, b) = s.probs(qi, key, c, qt, h, b) * dropout.factor(words, place);
}

} // namespace polyhead::gen

// Schedule of squares that are transposed in registers (generators/frames/transposed.h).
#include "../generators/frames/transposed.h"
#include "schedules.h"

namespace polyhead::gen {

using Halide::LoopLevel;
using Halide::Var;

void schedule_square(TransposedSquares &t, const LoopLevel &square, int row_words) {
    Var row("row"), column("column");
    t.rows.compute_at(square).bound_extent(t.f, t.side * t.side);
    t.rows.split(t.f, row, column, t.side).vectorize(column, row_words).unroll(row);
    if (row_words < t.side) {
        t.rows.unroll(column);
    }
    for (size_t i = 0; i < t.shuffles.size(); i++) {
        const Halide::RDom &r = t.domains[i];
        t.shuffles[i].compute_at(square).bound_extent(t.f, t.side * t.side);
        t.shuffles[i].update().reorder(r.x, r.y, r.z).allow_race_conditions().unroll(r.x).unroll(r.z).vectorize(r.y);
    }
}

} // namespace polyhead::gen

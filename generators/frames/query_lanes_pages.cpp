// The pages of a chunk in the frame "query lanes".
#include "query_lanes_coordinates.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::min;

KeySource keys_of_chunks(QueryLanesStages &s, const QueryLanesCoordinates &at) {
    const AttentionInputs &in = at.formulas.inputs();
    const auto &table = in.keys.page_table();
    if (!table || at.blocking.tiles || at.blocking.query_product.k > 1 || at.blocking.kv_tile % table->page_size != 0) {
        return in.keys;
    }
    const Expr first = at.key(0, s.c, s.qt, s.b), last = table->existing(in.seq_len_kv, s.b);
    const int slots = s.page_slots = at.blocking.kv_tile / table->page_size;
    Halide::RDom all(0, slots, "all_slots");
    s.pages(s.slot, s.c, s.qt, s.b) =
        Halide::undef<int32_t>(); // from a pure definition Halide 21 would clamp every page that is read from it
    s.pages(all, s.c, s.qt, s.b) = table->page(min(first / table->page_size + all, last / table->page_size), s.b);
    PageTable own = table->looked_up(s.pages, slots, {s.c, s.qt, s.b}, first);
    own.existing = [](const Expr &row, const Expr &) { return row; }; // of keys that exist, and no others
    return in.keys.in_pages(own);
}

} // namespace polyhead::gen

// Warp tiles: values that are not finite.
#include "warp_tiles_builder.h"

namespace polyhead::gen {

using Halide::cast;
using Halide::Expr;
using Halide::Func;
using Halide::min;
using Halide::RDom;
using Halide::reinterpret;

// 0 * NaN would reach the rows that do not see a value. So in chunks of which some rows do not see some keys, values that are not finite
// are made 0 in shared memory, and are added afterwards by the rows that see them. The bits of the other rows are those that they have with
// any other value.

// Whether the chunk has such values. All threads of the block meet here.
void WarpTilesBuilder::define_lost(const std::string &kind, const Expr &values, WarpChunk *chunk) {
    Func found = func(kind, "lost_found");
    const int count = copies_of(k_.keys, dv_), of_row = pieces_of(dv_), pieces = k_.keys * of_row;
    const Expr number = n_ * k_.threads() + s_.w * k_.lanes + s_.lane, own = min(number, pieces - 1);
    const Expr address = base_ + values + place_of(own / of_row, own % of_row, k_.keys);
    found(vars({n_}, true)) = made_finite(*k_.product, address, number < pieces, 0);
    add_stage(&chunk->stages, found, {{n_, count}});
    Expr any = 0;
    for (int n = 0; n < count; n++) {
        any = any | found(at({n}, true));
    }
    chunk->lost = func(kind, "lost");
    chunk->lost(vars({}, true)) = device_call("any_of_block", {made_all_finite(any)});
    add_stage(&chunk->stages, chunk->lost);
}

// Adds the values that were made 0, for the rows that see them.
void WarpTilesBuilder::define_mended(const std::string &kind, const Expr &number, const Func &logits, WarpChunk *chunk) {
    constexpr int bits = 32;
    const int sums = k_.product->sums_of_lane(), words = (k_.keys + bits - 1) / bits, together = keys_of_a_page(bits);
    Func own = func(kind, "seen_by_lane"), seen = func(kind, "seen"); // a bit for each key, in words
    const RDom keys(0, 2, 0, bits / eight, kind + "seen_keys");
    const Expr column = min(word_ * (bits / eight) + keys.y, score_columns() - 1), bit = keys.y * eight + s_.lane % 4 * 2 + keys.x;
    const Expr sees = !Logits::excluded(logits(at({q2_ * 2 + keys.x, column, mt_}, true)));
    own(vars({word_, q2_, mt_}, true)) = cast<uint32_t>(0);
    own(vars({word_, q2_, mt_}, true)) = own(at({word_, q2_, mt_}, true)) | cast<uint32_t>(sees) << cast<uint32_t>(bit);
    seen(vars({word_, q2_, mt_}, true)) = f_.numerics().bits_over_lanes(own(at({word_, q2_, mt_}, true)), 4, 1);
    const std::vector<std::pair<Var, int>> dims = {{word_, words}, {q2_, 2}, {mt_, k_.tiles}};
    chunk->stages.push_back({own, dims, {keys.x, keys.y}});
    add_stage(&chunk->stages, seen, dims);
    Expr token = chunk->acc(at({}, true));
    const int parts = (k_.keys + together - 1) / together;
    for (int i = 0; i < parts * k_.tiles; i++) {
        const int part = i % parts * together, mt = i / parts;
        const Expr first = number * k_.keys + part,
                   count = min(length_(s_.qt, s_.b) - first, std::min(together, k_.keys - part)) * chunk->lost(at({}, true));
        const auto of_row = [&](int q2) {
            const Expr word = seen(at({part / bits, q2, mt}, true));
            return reinterpret<int32_t>(part % bits == 0 ? word : word >> cast<uint32_t>(part % bits));
        };
        const auto value = [&](const Expr &key) { return f_.inputs().keys.stored_value(s_.lane % 4 * 2, row_of(key), kv_head(), s_.b); };
        token = token + mended(*k_.product, {acc_slot(mt, 0), s_.head_dim_v / eight * sums, value(first), value(first + 1), count,
                                             of_row(0), of_row(1)});
    }
    chunk->mended = func(kind, "mended");
    chunk->mended(vars({}, true)) = token;
    add_stage(&chunk->stages, chunk->mended);
}

} // namespace polyhead::gen

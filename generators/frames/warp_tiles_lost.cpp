// Warp tiles: values that are not finite.
#include "../formulas/infinity.h"
#include "warp_tiles_builder.h"

namespace polyhead::gen {

using Halide::cast;
using Halide::Expr;
using Halide::Func;
using Halide::min;
using Halide::RDom;
using Halide::select;

// 0 * NaN would reach the rows that do not see a value. So in chunks of which some rows do not see some keys, values that are not finite
// are made 0 in shared memory, and are added afterwards by the rows that see them. The bits of the other rows are those that they have with
// any other value.

// Whether the chunk has such values. All threads of the block meet here.
void WarpTilesBuilder::define_lost(const std::string &kind, const Expr &values, WarpChunk *chunk) {
    Func found = func(kind, "lost_found");
    const int count = copies_of(k_.keys, dv_), pieces = k_.keys * (dv_ / piece);
    const Expr number = n_ * k_.threads() + s_.w * k_.lanes + s_.lane, own = min(number, pieces - 1);
    const Expr address = base_ + values + place_of(own / (dv_ / piece), own % (dv_ / piece), k_.keys);
    found(vars({n_}, true)) = made_finite(*k_.product, address, number < pieces, 0);
    add(&chunk->stages, found, {{n_, count}});
    Expr any = 0;
    for (int n = 0; n < count; n++) {
        any = any | found(at({n}, true));
    }
    chunk->lost = func(kind, "lost");
    chunk->lost(vars({}, true)) = device_call("any_of_block", {made_all_finite(any)});
    add(&chunk->stages, chunk->lost);
}

// A bit for each key of the chunk that a row of the lane sees, in words of 32 keys.
void WarpTilesBuilder::define_seen(const std::string &kind, const Func &logits, WarpChunk *chunk) {
    constexpr int bits = 32;
    Func own = func(kind, "seen_by_lane");
    const RDom keys(0, 2, 0, bits / piece, kind + "seen_keys");
    const Expr eight = min(word_ * (bits / piece) + keys.y, score_columns() - 1), bit = keys.y * piece + s_.lane % 4 * 2 + keys.x;
    const Expr seen = !Logits::excluded(logits(at({q2_ * 2 + keys.x, eight, mt_}, true)));
    own(vars({word_, q2_, mt_}, true)) = cast<uint32_t>(0);
    own(vars({word_, q2_, mt_}, true)) =
        own(at({word_, q2_, mt_}, true)) | select(seen, cast<uint32_t>(1) << cast<uint32_t>(bit), cast<uint32_t>(0));
    chunk->seen = func(kind, "seen");
    chunk->seen(vars({word_, q2_, mt_}, true)) = f_.numerics().bits_over_lanes(own(at({word_, q2_, mt_}, true)), 4, 1);
    const int words = (k_.keys + bits - 1) / bits;
    const std::vector<std::pair<Var, int>> dims = {{word_, words}, {q2_, 2}, {mt_, k_.tiles}};
    chunk->stages.push_back({own, dims, {keys.x, keys.y}});
    add(&chunk->stages, chunk->seen, dims);
}

void WarpTilesBuilder::define_mended(const std::string &kind, const Expr &number, WarpChunk *chunk) {
    const int sums = k_.product->sums_of_lane(), columns = s_.columns_of_acc();
    const RDom d({{0, 2}, {0, 2}, {0, dv_ / piece}, {0, k_.tiles}, {0, k_.keys}, {0, 2}},
                 kind + "mend"); // column of two, row, 8 columns, tile, key
    RDom domain = d;
    domain.where(d[5] < chunk->lost(at({}, true)));
    // Nothing is staged inside of these loops: they would not be skipped as a whole.
    Func lost = func(kind, "lost_value"); // its bits; 0 of a finite one
    const Expr key = number * k_.keys + n_, column = nt_ * piece + s_.lane % 4 * 2 + i_;
    const Expr value = f_.inputs().keys.value(column, existing(key), kv_head(), s_.b);
    lost(vars({i_, nt_, n_}, true)) =
        select(magnitude_bits(value) >= infinity_bits && key < length_(s_.qt, s_.b), Halide::reinterpret<int32_t>(value), 0);
    Expr word = chunk->seen(at({0, d[1], d[3]}, true));
    for (int i = 1; i < (k_.keys + 31) / 32; i++) {
        word = select(d[4] >= 32 * i, chunk->seen(at({i, d[1], d[3]}, true)), word);
    }
    const Expr seen = ((word >> cast<uint32_t>(d[4] % 32)) & cast<uint32_t>(1)) != 0;
    const Expr added = Halide::reinterpret<float>(select(seen, lost(at({d[0], d[2], d[4]}, true)), 0));
    const Expr slot = s_.registers.acc + (d[3] * columns + d[2]) * sums + d[1] * 2 + d[0];
    chunk->mended = func(kind, "mended");
    chunk->mended(vars({}, true)) = chunk->acc(at({}, true));
    chunk->mended(vars({}, true)) += device_call("set", {slot, device_call("get", {slot}) + added});
    chunk->mends = {d[0], d[1], d[2], d[3]};
    chunk->mended_key = d[4];
    chunk->mended_once = d[5];
}

} // namespace polyhead::gen

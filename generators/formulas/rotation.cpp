// Rotation of query and key by position (RoPE).
#include "rotation.h"

namespace polyhead::gen {

using Halide::Expr;

Expr Rotation::entry(const Expr &part, const Expr &pair) const {
    const Expr entry = contract::rotates_neighbours(problem().rope) ? 2 * pair + part : part * (dim() / 2) + pair;
    return first() > 0 ? first() + entry : entry;
}

Expr Rotation::turns(const Expr &d) const {
    return first() > 0 ? d >= first() : d < dim();
}

std::pair<Expr, Expr> Rotation::place(const Expr &d) const {
    const Expr entry = first() > 0 ? Halide::max(d - first(), 0) : Halide::min(d, dim() - 1);
    if (contract::rotates_neighbours(problem().rope)) {
        return {entry % 2, entry / 2};
    }
    // A comparison and no division: Halide divides in 64 bits if the divisor is not a power of 2, and Vulkan has no 64 bits.
    const int half = dim() / 2;
    const Expr part = Halide::select(entry < half, 0, 1);
    return {part, Halide::unsafe_promise_clamped(entry - part * half, 0, half - 1)};
}

Expr Rotation::query_row(const Expr &q, const Expr &b) const {
    return in().element("positions_q", {q, b}) + in().number("position_step_q") * Halide::max(in().position(q, b), 0);
}

Expr Rotation::key_row(const Expr &kv, const Expr &b) const {
    // A layer with a cache rotates the keys of the call, behind those that were there.
    const Expr place = problem().cache != 0 ? in().inputs.cache_length(b) + kv : kv;
    return in().element("positions_kv", {kv, b}) + in().number("position_step_kv") * place;
}

Expr Rotation::table(const char *name, const Expr &pair, const Expr &row) const {
    return in().element(name, {pair, Halide::clamp(row, 0, in().inputs.extent("rope_cos", 1) - 1)});
}

Expr Rotation::rotated(const Expr &part, const Expr &pair, const Expr &row, const std::function<Expr(Expr)> &head) const {
    const Expr first = head(entry(0, pair)), second = head(entry(1, pair)), cos = table("rope_cos", pair, row),
               sin = table("rope_sin", pair, row);
    return Halide::select(part == 0, first * cos - second * sin, second * cos + first * sin);
}

} // namespace polyhead::gen

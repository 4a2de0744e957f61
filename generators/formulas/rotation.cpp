// Rotation of query and key by position (RoPE).
#include "rotation.h"

namespace polyhead::gen {

using Halide::Expr;

namespace {

// The value of the direction in which an index lies, where directions follow each other.
Expr by_end(const Expr &index, const std::vector<int> &ends, const std::vector<Expr> &values) {
    Expr found = values.back();
    for (size_t i = values.size() - 1; i-- > 0;) {
        found = Halide::select(index < ends[i], values[i], found);
    }
    return found;
}

} // namespace

Expr Rotation::of_direction(const Expr &pair, const std::vector<Expr> &values) const {
    const contract::RopeSections s = sections();
    if (values.size() == 1) {
        return values[0];
    }
    if (s.kind != POLYHEAD_SECTIONS_INTERLEAVED) {
        return by_end(pair, {s.before(1), s.before(2)}, values);
    }
    // A third by a product and a shift, right up to 2^15: Halide divides in 64 bits by 3, and Vulkan has no 64 bits.
    const Expr rest = pair - 3 * ((pair * 21846) >> 16);
    return Halide::select(rest == 1 && pair < 3 * s.pairs[1], values[1], rest == 2 && pair < 3 * s.pairs[2], values[2], values[0]);
}

Expr Rotation::entry(const Expr &part, const Expr &pair) const {
    Expr entry = contract::rotates_neighbours(problem().rope) ? 2 * pair + part : part * (dim() / 2) + pair;
    if (splits_parts()) { // promised: bounds inference takes the largest of each term
        const contract::RopeSections s = sections();
        std::vector<Expr> before, size;
        for (int direction = 0; direction < s.directions(); direction++) {
            before.emplace_back(s.before(direction));
            size.emplace_back(s.pairs[direction]);
        }
        entry = Halide::unsafe_promise_clamped(pair + of_direction(pair, before) + part * of_direction(pair, size), 0, dim() - 1);
    }
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
    if (splits_parts()) {
        const contract::RopeSections s = sections();
        std::vector<Expr> parts, pairs;
        for (int direction = 0; direction < s.directions(); direction++) {
            const int first_pair = s.before(direction), size = s.pairs[direction], middle = 2 * first_pair + size;
            parts.push_back(Halide::select(entry < middle, 0, 1));
            pairs.push_back(entry - Halide::select(entry < middle, first_pair, first_pair + size));
        }
        const std::vector<int> ends = {2 * s.before(1), 2 * s.before(2)};
        return {by_end(entry, ends, parts), Halide::unsafe_promise_clamped(by_end(entry, ends, pairs), 0, half - 1)};
    }
    const Expr part = Halide::select(entry < half, 0, 1);
    return {part, Halide::unsafe_promise_clamped(entry - part * half, 0, half - 1)};
}

Expr Rotation::position(const char *tensor, const Expr &token, int direction, const Expr &b) const {
    return sections().directions() > 1 ? in().element(tensor, {token, direction, b}) : in().element(tensor, {token, b});
}

std::vector<Expr> Rotation::query_rows(const Expr &q, const Expr &b) const {
    std::vector<Expr> rows;
    for (int direction = 0; direction < sections().directions(); direction++) {
        rows.push_back(position("positions_q", q, direction, b) + in().number("position_step_q") * Halide::max(in().position(q, b), 0));
    }
    return rows;
}

std::vector<Expr> Rotation::key_rows(const Expr &kv, const Expr &b) const {
    // A layer with a cache rotates the keys of the call, behind those that were there.
    const Expr place = problem().cache != 0 ? in().inputs.cache_length(b) + kv : kv;
    std::vector<Expr> rows;
    for (int direction = 0; direction < sections().directions(); direction++) {
        rows.push_back(position("positions_kv", kv, direction, b) + in().number("position_step_kv") * place);
    }
    return rows;
}

Expr Rotation::table(const char *name, const Expr &pair, const std::vector<Expr> &rows) const {
    std::vector<Expr> elements; // of each direction, so that neighbouring pairs are loaded together
    for (const Expr &row : rows) {
        elements.push_back(in().element(name, {pair, Halide::clamp(row, 0, in().inputs.extent("rope_cos", 1) - 1)}));
    }
    return of_direction(pair, elements);
}

Expr Rotation::rotated(const Expr &part, const Expr &pair, const std::vector<Expr> &rows, const std::function<Expr(Expr)> &head) const {
    const Expr first = head(entry(0, pair)), second = head(entry(1, pair)), cos = table("rope_cos", pair, rows),
               sin = table("rope_sin", pair, rows);
    return Halide::select(part == 0, first * cos - second * sin, second * cos + first * sin);
}

Expr Rotation::turned_back(const Expr &part, const Expr &pair, const std::vector<Expr> &rows, const std::function<Expr(Expr)> &head) const {
    const Expr first = head(entry(0, pair)), second = head(entry(1, pair)), cos = table("rope_cos", pair, rows),
               sin = table("rope_sin", pair, rows);
    return Halide::select(part == 0, first * cos + second * sin, second * cos - first * sin);
}

} // namespace polyhead::gen

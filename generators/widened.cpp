// 16-bit tensors as floats.
#include "widened.h"

#include <polyhead/c_api.h>

namespace polyhead::gen {

WidenedTensor widen(const std::string &name, const KeySource::Element &load, int width, const Halide::Expr &rows) {
    WidenedTensor s;
    const Halide::Expr element = load(s.d, s.row, s.outer, s.b);
    s.floats = Halide::Func(name + (element.type().is_float() ? "_floats" : "_words"));
    s.width = width;
    s.count = rows * width;
    s.floats(s.d, s.row, s.outer, s.b) = element;
    return s;
}

KeySource::Element widened_rows(const std::string &name, const KeySource::Element &load, int width, const Halide::Expr &rows,
                                std::vector<WidenedTensor> *widened) {
    widened->push_back(widen(name, load, width, rows));
    return [copy = widened->back().floats](const Halide::Expr &d, const Halide::Expr &row, const Halide::Expr &outer,
                                           const Halide::Expr &b) -> Halide::Expr { return copy(d, row, outer, b); };
}

KeySource widen_keys(const KeySource &keys, int head_dim, int head_dim_v, const Halide::Expr &heads, std::vector<WidenedTensor> *widened) {
    const Halide::Expr rows = keys.rows() * heads;
    const KeySource::Element key = widened_rows("key", [&](auto... at) { return keys.key(at...); }, head_dim, rows, widened);
    if (keys.value_in_key()) {
        return {storage_of(POLYHEAD_F32, false), key, nullptr, keys.rows()};
    }
    const KeySource::Element value = widened_rows("value", [&](auto... at) { return keys.value(at...); }, head_dim_v, rows, widened);
    return {storage_of(POLYHEAD_F32, false), key, value, keys.rows()};
}

} // namespace polyhead::gen

// 16-bit tensors as floats.
#include "staged.h"

#include <polyhead/c_api.h>

namespace polyhead::gen {

StagedTensor stage(const std::string &name, const KeySource::Element &load, int width, const Halide::Expr &rows) {
    StagedTensor s;
    s.floats = Halide::Func(name + "_floats");
    s.width = width;
    s.count = rows * width;
    s.floats(s.d, s.row, s.outer, s.b) = load(s.d, s.row, s.outer, s.b);
    return s;
}

KeySource stage_keys(const KeySource &keys, int head_dim, int head_dim_v, const Halide::Expr &heads, std::vector<StagedTensor> *staged) {
    const Halide::Expr rows = keys.rows() * heads;
    auto reader = [](const StagedTensor &s) {
        return [=](const Halide::Expr &d, const Halide::Expr &row, const Halide::Expr &hkv, const Halide::Expr &b) -> Halide::Expr {
            return s.floats(d, row, hkv, b);
        };
    };
    staged->push_back(stage("key", [&](auto... at) { return keys.key(at...); }, head_dim, rows));
    const KeySource::Element key = reader(staged->back());
    if (keys.value_in_key()) {
        return {storage_of(POLYHEAD_F32, false), key, nullptr, keys.rows()};
    }
    staged->push_back(stage("value", [&](auto... at) { return keys.value(at...); }, head_dim_v, rows));
    return {storage_of(POLYHEAD_F32, false), key, reader(staged->back()), keys.rows()};
}

} // namespace polyhead::gen

// 16-bit tensors as floats in memory, written once per call: where a machine multiplies floats only, and reads an element many times. Or as
// words, where it multiplies pairs that do not lie side by side.
#pragma once

#include "key_source.h"

namespace polyhead::gen {

struct WidenedTensor {
    Halide::Var d{"d"}, row{"row"}, outer{"outer"}, b{"b"};
    Halide::Func floats; // or words: (d, row, outer, b): outer is the head of a key or value, and 0 of an input of a layer
    int width = 0;
    Halide::Expr count; // of all elements
};

// Floats, or words, of `width` entries of so many rows, in all of `outer` and b.
WidenedTensor widen(const std::string &name, const KeySource::Element &load, int width, const Halide::Expr &rows);

// The same, appended to `widened`; returns what reads it.
KeySource::Element widened_rows(const std::string &name, const KeySource::Element &load, int width, const Halide::Expr &rows,
                                std::vector<WidenedTensor> *widened);

// Key and value of `heads` heads in all batch rows, read from floats. Appends what becomes floats: key, and value where it is not part of
// key.
KeySource widen_keys(const KeySource &keys, int head_dim, int head_dim_v, const Halide::Expr &heads, std::vector<WidenedTensor> *widened);

} // namespace polyhead::gen

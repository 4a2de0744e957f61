// Frame "plain": attention as a textbook writes it, one Func per step over whole rows. What Halide's autoschedulers are given.
#pragma once

#include "attention_stages.h"
#include "seen_keys.h"

namespace polyhead::gen {

// No blocking: choosing one is the scheduler's part.
struct PlainStages : MergedRowsStages {
    int head_dim_v;

    Halide::Var d{"d"}, q{"q"}, kv{"kv"}, h{"h"}, b{"b"};
    Halide::RDom entries, keys;

    Halide::Func query_rows{"query_rows"};       // (d, q, h, b): in the unit of scores
    Halide::Func key_columns{"key_columns"};     // (kv, d, hkv, b): transposed, because scores lie along the keys
    Halide::Func scores{"scores"};               // (kv, q, h, b)
    Halide::Func logits{"logits"};               // (kv, q, h, b)
    Halide::Func row_max{"row_max"};             // (q, h, b)
    Halide::Func row_reference{"row_reference"}; // (q, h, b)
    Halide::Func probs{"probs"};                 // (kv, q, h, b)
    Halide::Func row_sum{"row_sum"};             // (q, h, b)
    Halide::Func acc{"acc"};                     // (d, q, h, b)

    bool writes_one_output() const override { return false; }
    std::vector<Halide::Func> funcs() const override;

private:
    Expr out_of(const AttentionFormulas &formulas, const Expr &d, const Expr &q, const Expr &h, const Expr &b) const override;
    Expr reference_of(const Expr &q, const Expr &h, const Expr &b) const override { return row_reference(q, h, b); }
    Expr sum_of(const Expr &q, const Expr &h, const Expr &b) const override { return row_sum(q, h, b); }
};

PlainStages plain(const AttentionFormulas &formulas);

} // namespace polyhead::gen

// Lengths of keys, and the table of pages.
#include "inputs.h"

namespace polyhead::gen {

using Halide::Expr;

Expr AttentionInputs::cache_length(const Expr &b) const {
    return Halide::clamp(element("cache_lengths", {b}), 0, seq_len_kv - seq_len_q);
}

Expr AttentionInputs::kv_length(const Problem &problem, const Expr &b) const {
    if (problem.cache != 0) {
        return cache_length(b) + seq_len_q;
    }
    return problem.kv_lengths != 0 ? Halide::clamp(element("kv_lengths", {b}), 0, seq_len_kv) : seq_len_kv;
}

PageTable page_table(const Problem &problem, const AttentionInputs &inputs, const Expr &num_pages) {
    const auto existing = [=](const Expr &row, const Expr &b) {
        return Halide::min(row, Halide::max(inputs.kv_length(problem, b), 1) - 1);
    };
    // Clamped, because the table may change while the kernel runs.
    const auto page = [=](const Expr &index, const Expr &b) {
        return Halide::clamp(inputs.element("page_table", {index, b}), 0, num_pages - 1);
    };
    return {problem.page_size, num_pages, existing, page};
}

} // namespace polyhead::gen

// How out is made of the rows that a frame keeps.
#include "attention_stages.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Internal::Call;

Expr prefetch_call(const Expr &condition, const char *function, const std::vector<Expr> &arguments) {
    const Expr call = Call::make(Halide::Int(32), function, arguments, Call::Extern);
    return Call::make(Halide::Int(32), Call::if_then_else, {condition, call, 0}, Call::PureIntrinsic);
}

Expr prefetched(const Expr &address) {
    // Halide's runtime has the instruction under this name; its directive of a schedule knows only rows of the loop that it is in.
    return Call::make(Halide::Int(32), "_halide_prefetch", {Halide::reinterpret(Halide::type_of<void *>(), address)}, Call::Extern);
}

Expr exceeds_cache(const AttentionInputs &in, const Expr &rows, int row_bytes, int64_t least_bytes) {
    return Halide::cast<int64_t>(in.batch) * rows * row_bytes >= Halide::cast<int64_t>(Expr(least_bytes));
}

Expr AttentionStages::statistic(Statistic, const AttentionFormulas &, const Expr &, const Expr &, const Expr &) const {
    return Expr();
}

void MergedRowsStages::write(const AttentionOut &o, const AttentionFormulas &formulas, const Arguments &at, const Store &store) {
    const int head_dim_v = formulas.problem().head_dim_v;
    const Expr d = o.statistics.empty() ? Expr(o.d) : Halide::min(o.d, head_dim_v - 1);
    Expr value = formulas.softmax().gated(out_of(formulas, d, o.q, o.h, o.b), sum_of(o.q, o.h, o.b), d, o.q, o.h, o.b);
    for (size_t i = 0; i < o.statistics.size(); i++) {
        const Expr before = i == 0 ? Halide::likely(value) : value;
        value = Halide::select(o.d < head_dim_v + int(i), before, statistic(o.statistics[i], formulas, o.q, o.h, o.b));
    }
    Halide::Func out = o.func;
    out(at(o.d, o.q)) = store(value);
}

Expr MergedRowsStages::statistic(Statistic which, const AttentionFormulas &formulas, const Expr &q, const Expr &h, const Expr &b) const {
    return formulas.softmax().statistic(which, reference_of(q, h, b), sum_of(q, h, b), h);
}

} // namespace polyhead::gen

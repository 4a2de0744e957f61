// What a layer writes.
#include "layer_outputs.h"

#include "../generators/layer.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Var;

void write_linear(KernelStages *stages, const Halide::Func &out, int columns, bool batched, const std::optional<ThreadBlocking> &threads,
                  const Storage &storage) {
    LinearOut &o = stages->linear_out;
    o.func = out;
    o.n = Var("n");
    o.m = Var("m");
    o.columns = columns;
    o.outer = batched ? std::vector<Var>{Var("b")} : std::vector<Var>{};
    const Expr batch = batched ? Expr(o.outer[0]) : Expr(0);
    auto arguments = [&](const Expr &n, const Expr &m) { return batched ? std::vector<Expr>{n, m, batch} : std::vector<Expr>{n, m}; };
    if (!threads) {
        o.func(arguments(o.n, o.m)) = storage.store(stages->linear.out(o.n, o.m, batch));
        return;
    }
    std::vector<Var> vars = {o.n, o.m};
    vars.insert(vars.end(), o.outer.begin(), o.outer.end());
    auto at = [&](const Expr &column, const Expr &panel, const Expr &m) {
        if (stages->linear.warps) { // which write no others
            return arguments(Halide::unsafe_promise_clamped(panel * POLYHEAD_WEIGHT_PANEL + column, 0, columns - 1),
                             Halide::unsafe_promise_clamped(m, 0, stages->linear.num_rows - 1));
        }
        return arguments(Halide::min(panel * POLYHEAD_WEIGHT_PANEL + column, columns - 1), //
                         Halide::min(m, stages->linear.num_rows - 1));
    };
    stages->linear.write(out, vars, batch, columns, *threads, at, storage.store);
}

void write_joined(KernelStages *stages, const Halide::Func &out, int columns, const JoinedRows &joined,
                  const std::optional<ThreadBlocking> &threads, const Storage &storage) {
    const Halide::Func rows("out_rows");
    write_linear(stages, rows, columns, false, threads, storage);
    const Var n("n"), t("t"), b("b");
    stages->copied_out = out;
    stages->copied_out(n, t, b) = rows(n, joined.place(t, b).first);
}

void keep_heads(KernelStages *stages, const Problem &problem, const std::map<std::string, Halide::Func> &results,
                const Halide::Func &context, const Storage &heads, const Storage &storage) {
    const Var d("d"), t("t"), h("h"), b("b");
    const auto keep = [&](const char *name, const Expr &entry) {
        stages->kept_heads.push_back(results.at(name));
        stages->kept_heads.back()(d, t, h, b) = storage.store(heads.load(entry));
    };
    const std::vector<HeadProjection> &projections = stages->projections; // of query, key, value and gate
    keep("query_heads", projections[0].at(d, t, h, b));
    keep("key_heads", projections[1].at(d, t, h, b));
    keep("value_heads", projections[2].at(d, t, h, b));
    if (problem.gate != POLYHEAD_NO_GATE) {
        const bool entries = problem.gate == POLYHEAD_GATE_OF_ENTRIES; // otherwise all heads lie side by side
        keep("gate_heads", projections[3].at(entries ? d : h, t, entries ? Expr(h) : Expr(0), b));
    }
    keep("attended", context(d, h, t, b));
}

} // namespace polyhead::gen

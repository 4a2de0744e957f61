// A stage of code that is written in the coordinates of threads.
#pragma once

#include <utility>
#include <vector>

#include <Halide.h>

namespace polyhead::gen {

// A Func of a thread that is computed once where it stands: dimensions with their extents, and the domains of its update, innermost first.
struct ThreadStage {
    Halide::Func func;
    std::vector<std::pair<Halide::Var, int>> dims;
    std::vector<Halide::RVar> update;
};

inline void add_stage(std::vector<ThreadStage> *to, const Halide::Func &f, std::vector<std::pair<Halide::Var, int>> dims = {}) {
    to->push_back({f, std::move(dims), {}});
}

// The coordinates, and those of the thread behind them.
template <class T> std::vector<T> of_thread(std::vector<T> first, const std::vector<Halide::Var> &thread) {
    for (const Halide::Var &v : thread) {
        first.emplace_back(v);
    }
    return first;
}

// f(0, ...) + f(1, ...) + ...: what comes after all of them.
inline Halide::Expr sum_of(const Halide::Func &f, int count, std::vector<Halide::Expr> others) {
    Halide::Expr sum = 0;
    others.insert(others.begin(), sum);
    for (int n = 0; n < count; n++) {
        others[0] = n;
        sum = sum + f(others);
    }
    return sum;
}

} // namespace polyhead::gen

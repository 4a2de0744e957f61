// Which pairs take part, asked from both sides: the keys of a query, and the queries of a key, against the definition pair by pair.
#include <Halide.h>

#include "generators/formulas/visibility.h"

#include "instruments/calls/problems.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

using Halide::Expr;

struct Setting {
    int seq_len_q, seq_len_kv, length, from_end, offset, left, right;
};

// The ranges as functions of one number, compiled once for all settings.
struct Ranges {
    Halide::Param<int> seq_len_q, seq_len_kv, length, from_end, offset, left, right;
    Halide::Func keys{"keys"}, queries{"queries"};
    bool causal, window;

    Ranges(bool causal_, bool window_) : causal(causal_), window(window_) {
        Problem p = sdpa_problem(1, 4);
        p.kv_lengths = p.position_offsets = 1;
        p.causal = causal ? POLYHEAD_TOP_LEFT : POLYHEAD_NOT_CAUSAL;
        p.window = window;
        gen::AttentionInputs in;
        in.seq_len_q = seq_len_q;
        in.seq_len_kv = seq_len_kv;
        in.element = [this](const char *name, const std::vector<Expr> &) -> Expr {
            return std::string(name) == "kv_lengths" ? Expr(length) : Expr(offset);
        };
        in.number = [this](const char *name) -> Expr {
            const std::string text = name;
            return text == "from_end" ? Expr(from_end) : text == "window_left" ? Expr(left) : Expr(right);
        };
        const gen::Visibility visibility(
            std::make_shared<const gen::FormulaContext>(gen::FormulaContext{p, gen::Expression(), gen::portable_numerics(), in}));
        Halide::Var x("x");
        const Expr begin = visibility.keys_begin(x, 0);
        keys(x) = {begin.defined() ? begin : Expr(0), visibility.keys_end(x, 0)};
        queries(x) = {visibility.queries_begin(x, 0), visibility.queries_end(x, 0)};
        keys.compile_jit();
        queries.compile_jit();
    }

    void set(const Setting &s) {
        seq_len_q.set(s.seq_len_q);
        seq_len_kv.set(s.seq_len_kv);
        length.set(s.length);
        from_end.set(s.from_end);
        offset.set(s.offset);
        left.set(s.left);
        right.set(s.right);
    }

    // By the definition (requirements of causal, window, lengths and offsets).
    bool sees(const Setting &s, int q, int kv) const {
        const int valid = std::clamp(s.length, 0, s.seq_len_kv), position = q + s.offset + (s.from_end != 0 ? valid - s.seq_len_q : 0);
        const int last = position + (window ? s.right : 0);
        return kv < valid && (!(causal || window) || kv <= last) && (!window || kv >= position - s.left);
    }
};

// Pairs that a side of the ranges answers otherwise than the definition, or "".
std::string wrong_pair(Ranges &ranges, const Setting &s) {
    ranges.set(s);
    const Halide::Realization keys = ranges.keys.realize({s.seq_len_q}), queries = ranges.queries.realize({s.seq_len_kv});
    const Halide::Buffer<int> keys_begin = keys[0], keys_end = keys[1], queries_begin = queries[0], queries_end = queries[1];
    for (int q = 0; q < s.seq_len_q; q++) {
        for (int kv = 0; kv < s.seq_len_kv; kv++) {
            const bool sees = ranges.sees(s, q, kv), key = keys_begin(q) <= kv && kv < keys_end(q),
                       query = queries_begin(kv) <= q && q < queries_end(kv);
            if (key != sees || query != sees) {
                return "query " + std::to_string(q) + ", key " + std::to_string(kv) + ": " + std::to_string(sees) +
                       ", by keys of the query " + std::to_string(key) + ", by queries of the key " + std::to_string(query);
            }
        }
    }
    return "";
}

} // namespace

TEST_CASE("algorithm: keys of a query and queries of a key are the same pairs") {
    constexpr int unbounded = 1 << 28;
    for (const auto &[causal, window] : {std::pair(false, false), std::pair(true, false), std::pair(false, true), std::pair(true, true)}) {
        Ranges ranges(causal, window);
        for (const auto &[seq_len_q, seq_len_kv] : {std::pair(1, 1), std::pair(1, 9), std::pair(5, 9), std::pair(9, 5)}) {
            for (const int length : {0, 3, seq_len_kv, unbounded}) {
                for (const int from_end : {0, 1}) {
                    for (const int offset : {-7, 0, 4}) {
                        for (const auto &[left, right] :
                             {std::pair(0, 0), std::pair(2, 0), std::pair(1, 3), std::pair(unbounded, unbounded)}) {
                            const Setting s{seq_len_q, seq_len_kv, length, from_end, offset, left, causal ? 0 : right};
                            INFO("causal " << causal << ", window " << window << " " << s.left << "/" << s.right << ", " << seq_len_q
                                           << " x " << seq_len_kv << ", length " << length << ", from_end " << from_end << ", offset "
                                           << offset);
                            CHECK(wrong_pair(ranges, s) == "");
                        }
                    }
                }
            }
        }
    }
}

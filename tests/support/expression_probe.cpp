// Evaluates a user expression at every point of a small problem, by Halide, as kernels do.
#include "expression_probe.h"

#include <polyhead/c_api.h>

#include "generators/random_words.h"

namespace polyhead::test {
namespace {

using Halide::Expr;

struct Coordinates {
    Halide::Var kv{"kv"}, q{"q"}, h{"h"}, b{"b"};
};

int extent_of(int extent) {
    switch (extent) {
    case POLYHEAD_EXTENT_B:
        return probe_batch;
    case POLYHEAD_EXTENT_H:
        return probe_heads;
    case POLYHEAD_EXTENT_Q:
        return probe_seq_len_q;
    case POLYHEAD_EXTENT_KV:
        return probe_seq_len_kv;
    default:
        return extent == POLYHEAD_EXTENT_FREE ? 6 : extent;
    }
}

// Row-major, every index clamped, as the kernel's formulas do.
Expr element(const gen::ExpressionTensor &tensor, const std::vector<Expr> &index) {
    Expr flat = 0;
    for (size_t i = 0; i < index.size(); i++) {
        flat = flat * extent_of(tensor.extents[i]) + Halide::clamp(index[i], 0, extent_of(tensor.extents[i]) - 1);
    }
    const Expr integer = (flat * 7 + 3) % 11 - 4;
    return tensor.dtype == POLYHEAD_F32 ? Halide::cast<float>(integer) * 0.375f : tensor.dtype == POLYHEAD_I32 ? integer : integer % 2 == 0;
}

ProbePoint point_at(int b, int h, int q, int kv) {
    const int length = probe_seq_len_kv - b;
    const double score = (kv * 3 + q * 5 + h * 7 + b) % 13 * 0.25 - 1.5;
    return {score, b, h, q, kv, q + length - probe_seq_len_q, probe_seq_len_q, probe_seq_len_kv, length};
}

gen::ExpressionScope scope_of(const gen::Expression &expression, const Coordinates &at) {
    gen::ExpressionScope s;
    s.b = at.b;
    s.h = at.h;
    s.q = at.q;
    s.kv = at.kv;
    s.seq_len_q = probe_seq_len_q;
    s.seq_len_kv = probe_seq_len_kv;
    s.kv_length = probe_seq_len_kv - s.b;
    s.position = s.q + s.kv_length - s.seq_len_q;
    s.score = Halide::cast<float>((s.kv * 3 + s.q * 5 + s.h * 7 + s.b) % 13) * 0.25f - 1.5f;
    const std::vector<gen::ExpressionTensor> tensors = expression.tensors();
    s.element = [tensors](size_t tensor, const std::vector<Expr> &index) { return element(tensors.at(tensor), index); };
    s.exp = [](const Expr &x) { return Halide::exp(x); };
    s.tanh = [](const Expr &x) { return Halide::tanh(x); };
    s.uniform = [](const std::vector<Expr> &x) { return gen::uniform(gen::product_of_64_bits, x); };
    return s;
}

template <class T> Halide::Buffer<T> realized(const Expr &value, const Coordinates &at) {
    Halide::Func f("probe");
    f(at.kv, at.q, at.h, at.b) = Halide::cast<T>(value);
    return f.realize({probe_seq_len_kv, probe_seq_len_q, probe_heads, probe_batch});
}

// Bounds may not read the score, h or kv: they are left undefined.
Halide::Buffer<int32_t> realized_bound(const gen::Expression &expression, const Coordinates &at, bool begin) {
    gen::ExpressionScope s = scope_of(expression, at);
    s.score = s.h = s.kv = Expr();
    const Expr bound = begin ? key_bounds(expression, s).begin : key_bounds(expression, s).end;
    return bound.defined() ? realized<int32_t>(bound, at) : Halide::Buffer<int32_t>();
}

} // namespace

void probe(const gen::Expression &expression, const std::function<void(const ProbePoint &point, const ProbeResult &result)> &visit) {
    const Coordinates at;
    const gen::ExpressionScope scope = scope_of(expression, at);
    const auto scores = realized<float>(score_of(expression, scope), at);
    const Expr slope = score_slope(expression, scope);
    const auto slopes = realized<float>(slope.defined() ? slope : Expr(1.0f), at); // without a text for it, the score stays what it is
    const auto masks = realized<uint8_t>(mask_of(expression, scope), at);
    const auto begins = realized_bound(expression, at, true), ends = realized_bound(expression, at, false);
    for (int b = 0; b < probe_batch; b++) {
        for (int h = 0; h < probe_heads; h++) {
            for (int q = 0; q < probe_seq_len_q; q++) {
                for (int kv = 0; kv < probe_seq_len_kv; kv++) {
                    visit(point_at(b, h, q, kv),
                          {scores(kv, q, h, b), slopes(kv, q, h, b), masks(kv, q, h, b) != 0, begins.defined(), ends.defined(),
                           begins.defined() ? begins(kv, q, h, b) : 0, ends.defined() ? ends(kv, q, h, b) : 0});
                }
            }
        }
    }
}

} // namespace polyhead::test

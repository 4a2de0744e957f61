// User expressions: what they compute, against the same formula written in C++, and the order of operators.
#include <cmath>

#include <polyhead/c_api.h>

#include "contract/expression_text.h"
#include "generators/random_words.h"
#include "instruments/reference/random_words.h"
#include "support/catch.h"
#include "support/environment.h"
#include "support/expression_probe.h"
#include "support/expression_slope.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

gen::Expression parsed(const std::string &text) {
    gen::Expression expression;
    REQUIRE(gen::Expression::parse(text, "expression", &expression) == "");
    return expression;
}

// As the user writes it, and as headers and command lines carry it.
std::vector<gen::Expression> both_forms(const char *text) {
    return {parsed(text), parsed(contract::one_line(text))};
}

int rounded_down(int a, int b) {
    return static_cast<int>(std::floor(double(a) / b));
}

int clamped(int index, int extent) {
    return std::min(std::max(index, 0), extent - 1);
}

struct ScoreCase {
    const char *text;
    double (*expected)(const ProbePoint &);
};

const ScoreCase scores[] = {
    {"score = score", [](const ProbePoint &x) { return x.score; }},
    {"score = 3", [](const ProbePoint &) { return 3.0; }},
    {"score = .5 + 1. + 2e-1 + 1.5E+1", [](const ProbePoint &) { return 16.7; }},
    {"score = 1 + 2 * 3 - 4", [](const ProbePoint &) { return 3.0; }},
    {"score = (1 + 2) * 3", [](const ProbePoint &) { return 9.0; }},
    {"score = 20 - 5 - 3", [](const ProbePoint &) { return 12.0; }},
    {"score = 2 * 7 / 4 % 2", [](const ProbePoint &) { return 1.0; }},
    {"score = -2 * -3 + --1", [](const ProbePoint &) { return 7.0; }},
    {"score = 7 / 2", [](const ProbePoint &) { return 3.0; }},
    {"score = 7 / 2.0", [](const ProbePoint &) { return 3.5; }},
    {"score = (q - 2) / 3 + 10 * ((q - 2) % 3)",
     [](const ProbePoint &x) { return rounded_down(x.q - 2, 3) + 10.0 * (x.q - 2 - 3 * rounded_down(x.q - 2, 3)); }},
    {"score = (kv - 4) / (q - 7) + 100 * ((kv - 4) % (q - 7))", // a negative divisor at run time
     [](const ProbePoint &x) {
         const int a = x.kv - 4, b = x.q - 7, down = rounded_down(a, b);
         return down + 100.0 * (a - b * down);
     }},
    {"score = (kv - 4) / -2 + 100 * ((kv - 4) % -2)",
     [](const ProbePoint &x) { return rounded_down(x.kv - 4, -2) + 100.0 * (x.kv - 4 + 2 * rounded_down(x.kv - 4, -2)); }},
    {"score = kv / (q - q) + 7 * (kv % (q - q))", [](const ProbePoint &) { return 0.0; }},
    {"score = (score - 0.3) % 0.5", [](const ProbePoint &x) { return x.score - 0.3 - 0.5 * std::floor((x.score - 0.3) / 0.5); }},
    {"score = kv * 0.5", [](const ProbePoint &x) { return x.kv * 0.5; }},
    {"score = score + b * 1000 + h * 100 + q * 10 + kv",
     [](const ProbePoint &x) { return x.score + x.b * 1000 + x.h * 100 + x.q * 10 + x.kv; }},
    {"score = p + 100 * seq_len_q + 1000 * seq_len_kv + 10000 * kv_length",
     [](const ProbePoint &x) { return x.p + 100.0 * x.seq_len_q + 1000 * x.seq_len_kv + 10000 * x.kv_length; }},
    {"score = select(kv > q, score, -1)", [](const ProbePoint &x) { return x.kv > x.q ? x.score : -1; }},
    {"score = select(select(q == 1, kv < 2, kv > 5), 1, 0)",
     [](const ProbePoint &x) { return (x.q == 1 ? x.kv < 2 : x.kv > 5) ? 1.0 : 0.0; }},
    {"score = min(score, 0.5, q - 1) + max(kv, 3)",
     [](const ProbePoint &x) { return std::min({x.score, 0.5, x.q - 1.0}) + std::max(x.kv, 3); }},
    {"score = clamp(kv - q, -2, 3)", [](const ProbePoint &x) { return std::min(std::max(x.kv - x.q, -2), 3) * 1.0; }},
    {"score = abs(q - kv) + abs(score)", [](const ProbePoint &x) { return std::abs(x.q - x.kv) + std::fabs(x.score); }},
    {"score = exp(score) + tanh(score) + log(score * score + 1) + sqrt(kv)",
     [](const ProbePoint &x) { return std::exp(x.score) + std::tanh(x.score) + std::log(x.score * x.score + 1) + std::sqrt(x.kv); }},
    {"score = floor(score) / 2 + floor(kv)", [](const ProbePoint &x) { return rounded_down(int(std::floor(x.score)), 2) + 1.0 * x.kv; }},
    {"score = floor((score + 0.1) * 1e30) / 1000", // far beyond int32: the ends of what floor gives
     [](const ProbePoint &x) { return x.score + 0.1 > 0 ? 1073741.0 : -1073742.0; }},
    {"let twice = score + score\nlet four = twice * 2 # a comment; not a statement\nscore = four - twice",
     [](const ProbePoint &x) { return x.score * 2; }},
    {"tensor t: f32[h, 4]; score = score + t[h, clamp(kv - q, 0, 3)]",
     [](const ProbePoint &x) { return x.score + tensor_real(x.h * 4 + clamped(x.kv - x.q, 4)); }},
    {"tensor one: f32\ntensor two: i32\nscore = one + two", [](const ProbePoint &) { return tensor_real(0) + tensor_integer(0); }},
    {"tensor t: f32[b, h, q, kv]\nscore = score * t[b, h, q, kv]",
     [](const ProbePoint &x) {
         return x.score * tensor_real(((x.b * probe_heads + x.h) * probe_seq_len_q + x.q) * probe_seq_len_kv + x.kv);
     }},
    {"tensor t: i32[*]\ntensor u: i32[kv]\nscore = u[t[kv] + 4]",
     [](const ProbePoint &x) { return tensor_integer(clamped(tensor_integer(clamped(x.kv, 6)) + 4, probe_seq_len_kv)) * 1.0; }},
    {"score = (score +\n   1 ) * min(2,\n # still one statement\n 3)", [](const ProbePoint &x) { return (x.score + 1) * 2; }},
    {"mask = q < 3; score = score + 1\n\n;;", [](const ProbePoint &x) { return x.score + 1; }},
    {"mask = true", [](const ProbePoint &x) { return x.score; }},
};

// The derivative matters most where it is not 0 or 1.
const ScoreCase bent_scores[] = {
    {"score = 20 * tanh(score / 20)", [](const ProbePoint &x) { return 20 * std::tanh(x.score / 20); }},
    {"score = score * score * score", [](const ProbePoint &x) { return x.score * x.score * x.score; }},
    {"score = 1 / (2 + score)", [](const ProbePoint &x) { return 1 / (2 + x.score); }},
    {"score = (score - 1) / (score * score + 1)", [](const ProbePoint &x) { return (x.score - 1) / (x.score * x.score + 1); }},
    {"score = -exp(-score) - -score", [](const ProbePoint &x) { return -std::exp(-x.score) + x.score; }},
    {"score = log(1 + exp(score))", [](const ProbePoint &x) { return std::log(1 + std::exp(x.score)); }},
    {"score = score * uniform(-3, b, h, q, kv) + uniform(kv, 0, -2147483647, 1 - q, h)",
     [](const ProbePoint &x) { return x.score * uniform(-3, x.b, x.h, x.q, x.kv) + uniform(x.kv, 0, -2147483647, 1 - x.q, x.h); }},
    {"score = sqrt(score * score + 0.01) * select(kv > q, 1, -1)",
     [](const ProbePoint &x) { return std::sqrt(x.score * x.score + 0.01) * (x.kv > x.q ? 1 : -1); }},
    {"score = max(score, 0) + 0.1 * min(score, 0)",
     [](const ProbePoint &x) { return std::max(x.score, 0.0) + 0.1 * std::min(x.score, 0.0); }},
    {"score = max(score * 2, score * score, 0.1)", [](const ProbePoint &x) { return std::max({x.score * 2, x.score * x.score, 0.1}); }},
    {"score = clamp(3 * score, -1.1, 1.1)", [](const ProbePoint &x) { return std::min(std::max(3 * x.score, -1.1), 1.1); }},
    {"score = abs(score - 0.6) * abs(score + 0.6)", [](const ProbePoint &x) { return std::abs(x.score - 0.6) * std::abs(x.score + 0.6); }},
    {"score = select(score > 0.1, exp(score), select(score < -0.6, score * score, 2 * score))",
     [](const ProbePoint &x) { return x.score > 0.1f   ? std::exp(x.score)
                                      : x.score < -0.6 ? x.score * x.score
                                                       : 2 * x.score; }},
    {"let t = tanh(score); score = t * t + t / (2 + t)",
     [](const ProbePoint &x) { return std::tanh(x.score) * std::tanh(x.score) + std::tanh(x.score) / (2 + std::tanh(x.score)); }},
    {"let one = score + 1; let two = one * one; let three = two * one; score = three - two * score", // shared nodes
     [](const ProbePoint &x) { return std::pow(x.score + 1, 3) - (x.score + 1) * (x.score + 1) * x.score; }},
    {"score = score / (score * 0 + 4) + floor(score) * score",
     [](const ProbePoint &x) { return x.score / 4 + std::floor(x.score) * x.score; }},
    {"score = (score * 3) % (2 + score * 0.1)",
     [](const ProbePoint &x) { return x.score * 3 - (2 + x.score * 0.1) * std::floor(x.score * 3 / (2 + x.score * 0.1)); }},
    {"tensor t: f32[h]; score = exp(score * t[h] * 0.3) * t[h]",
     [](const ProbePoint &x) { return std::exp(x.score * tensor_real(x.h) * 0.3) * tensor_real(x.h); }},
    {"score = score * exp(-0.1 * abs(kv - p)) - 0.5 * abs(kv - p)",
     [](const ProbePoint &x) { return x.score * std::exp(-0.1 * std::abs(x.kv - x.p)) - 0.5 * std::abs(x.kv - x.p); }},
    {"score = sqrt(abs(score) + 1) * log(score * score + 2) / tanh(score + 3)",
     [](const ProbePoint &x) { return std::sqrt(std::abs(x.score) + 1) * std::log(x.score * x.score + 2) / std::tanh(x.score + 3); }},
    {"score = min(exp(score), select(score > kv * 0.1 - 0.33, score * score + 1, 3 - score))",
     [](const ProbePoint &x) { return std::min(std::exp(x.score), x.score > x.kv * 0.1 - 0.33 ? x.score * x.score + 1 : 3 - x.score); }},
};

struct MaskCase {
    const char *text;
    bool (*expected)(const ProbePoint &);
};

const MaskCase masks[] = {
    {"score = 1", [](const ProbePoint &) { return true; }},
    {"mask = false", [](const ProbePoint &) { return false; }},
    {"mask = q < 2 or q > 3 and kv == 1", [](const ProbePoint &x) { return x.q < 2 || (x.q > 3 && x.kv == 1); }},
    {"mask = (q < 2 or q > 3) and kv != 1", [](const ProbePoint &x) { return (x.q < 2 || x.q > 3) && x.kv != 1; }},
    {"mask = not q < 2 and kv >= 3", [](const ProbePoint &x) { return x.q >= 2 && x.kv >= 3; }},
    {"mask = not (q < 2 and kv >= 3)", [](const ProbePoint &x) { return !(x.q < 2 && x.kv >= 3); }},
    {"mask = not not q <= kv - 1", [](const ProbePoint &x) { return x.q <= x.kv - 1; }},
    {"mask = q + 1 < kv * 2 - 3", [](const ProbePoint &x) { return x.q + 1 < x.kv * 2 - 3; }},
    {"mask = score > 0.2", [](const ProbePoint &x) { return x.score > 0.2f; }},
    {"score = score + 100\nmask = score > 0.2", [](const ProbePoint &x) { return x.score > 0.2f; }}, // the score that came in
    {"tensor document: i32[b, kv]\nmask = document[b, q] == document[b, kv]",
     [](const ProbePoint &x) { return tensor_integer(x.b * probe_seq_len_kv + x.q) == tensor_integer(x.b * probe_seq_len_kv + x.kv); }},
    {"tensor keep: bool[kv]\nmask = keep[kv] and not keep[q]",
     [](const ProbePoint &x) { return tensor_truth(x.kv) && !tensor_truth(x.q); }},
    {"tensor seed: i32; mask = uniform(seed, b, h, q, kv) < 0.5",
     [](const ProbePoint &x) { return uniform(tensor_integer(0), x.b, x.h, x.q, x.kv) < 0.5; }},
    {"tensor keep: bool\nmask = keep or kv <= p", [](const ProbePoint &x) { return tensor_truth(0) || x.kv <= x.p; }},
};

struct Selects : Halide::Internal::IRGraphVisitor {
    int count = 0;
    using IRGraphVisitor::visit;
    void visit(const Halide::Internal::Select *op) override {
        count++;
        IRGraphVisitor::visit(op);
    }
};

} // namespace

TEST_CASE("expressions: scores and their slopes have the values of the same formula in C++") {
    std::vector<ScoreCase> all(std::begin(scores), std::end(scores));
    all.insert(all.end(), std::begin(bent_scores), std::end(bent_scores));
    for (size_t i = 0; i < all.size(); i++) {
        const ScoreCase &c = all[i];
        if (!in_sample(i, 2)) {
            continue;
        }
        INFO(c.text);
        int wrong = 0, wrong_slopes = 0;
        for (const gen::Expression &expression : both_forms(c.text)) {
            probe(expression, [&](const ProbePoint &point, const ProbeResult &result) {
                const double expected = c.expected(point);
                wrong += !(std::fabs(result.score - expected) <= 2e-6 * std::max(1.0, std::fabs(expected)));
                wrong_slopes += !is_slope(result.slope, c.expected, point);
            });
        }
        CHECK(wrong == 0);
        CHECK(wrong_slopes == 0);
    }
}

TEST_CASE("expressions: masks have the value of the same formula in C++") {
    for (const MaskCase &c : masks) {
        INFO(c.text);
        int wrong = 0;
        for (const gen::Expression &expression : both_forms(c.text)) {
            probe(expression, [&](const ProbePoint &point, const ProbeResult &result) { wrong += result.mask != c.expected(point); });
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("expressions: both ways to multiply words give the same 64 bits") {
    Halide::Var i("i");
    const Halide::Expr x = Halide::cast<uint32_t>(i) * Halide::Internal::make_const(Halide::UInt(32), 0x9E3779B9) -
                           Halide::cast<uint32_t>(i % 3); // all ones at 0 or 1 less, far ones
    for (const uint32_t factor : {0xD2511F53u, 0xCD9E8D57u, 0xFFFFFFFFu, 0x10000u, 0xFFFFu, 1u}) {
        const gen::WideProduct a = gen::product_of_64_bits(x, factor), b = gen::product_of_halves(x, factor);
        Halide::Func words("words");
        words(i) = Halide::Tuple(x, a.high, a.low, b.high, b.low);
        const Halide::Realization r = words.realize({1000});
        const Halide::Buffer<uint32_t> value = r[0], a_high = r[1], a_low = r[2], b_high = r[3], b_low = r[4];
        int wrong = 0;
        for (int at = 0; at < 1000; at++) {
            const uint64_t product = uint64_t(value(at)) * factor;
            wrong += a_high(at) != product >> 32 || b_high(at) != product >> 32 || a_low(at) != uint32_t(product) ||
                     b_low(at) != uint32_t(product);
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("expressions: what a text says is told") {
    const gen::Expression both = parsed("tensor t: f32[b, *, 7]\ntensor u: bool\nmask = u\nscore = t[b, q, 3]"), copy = both;
    for (const gen::Expression &e : {both, copy}) {
        CHECK(e.changes_score());
        CHECK(e.masks());
        REQUIRE(e.tensors().size() == 2);
        CHECK(e.tensors()[0].name == "t");
        CHECK(e.tensors()[0].dtype == POLYHEAD_F32);
        CHECK(e.tensors()[0].rank == 3);
        CHECK(e.tensors()[0].extents[0] == POLYHEAD_EXTENT_B);
        CHECK(e.tensors()[0].extents[1] == POLYHEAD_EXTENT_FREE);
        CHECK(e.tensors()[0].extents[2] == 7);
        CHECK(e.tensors()[1].dtype == POLYHEAD_BOOL);
        CHECK(e.tensors()[1].rank == 0);
    }
    CHECK(!parsed("mask = kv < q").changes_score());
    CHECK(!parsed("score = 1").masks());
    CHECK(gen::Expression().tensors().empty());
    CHECK(!gen::Expression().masks());
}

// tanh and others mention their argument several times. Nested ones must not be copied for each of these.
TEST_CASE("expressions: a value that is used several times is one value") {
    constexpr int levels = 10;
    std::string text = "score = ";
    for (int i = 0; i < levels; i++) {
        text += "tanh(";
    }
    text += "score" + std::string(levels, ')');
    gen::ExpressionScope scope;
    scope.score = Halide::Internal::Variable::make(Halide::Float(32), "score");
    scope.tanh = [](const Halide::Expr &x) { return Halide::select(x < 0.0f, -x, x) * x + x; };
    Selects found;
    score_of(parsed(text), scope).accept(&found);
    CHECK(found.count == levels);
}

TEST_CASE("expressions: what they read of the call", "[expressions]") {
    const std::string declarations = "tensor doc: i32[b, kv]; tensor table: f32[*]\n";
    for (const char *text :
         {"mask = doc[b, kv] == doc[b, max(kv - 1, 0)]", "let bb = doc[b, kv]; mask = bb < 3 # b", "score = score + table[doc[b, q]]",
          "mask = doc[ b , kv] == 0 and doc[(b)\n, kv] != 1", "score = score * kv_length"}) {
        for (const gen::Expression &expression : both_forms((declarations + text).c_str())) {
            INFO(text);
            CHECK(expression.facts() == 0);
        }
    }
    for (const char *text : {"mask = b == 0", "mask = doc[b + 1, kv] == 0", "mask = doc[kv, b] == 0", "score = score * b",
                             "score = score + table[b]", "let c = b; mask = c == 0", "mask = doc[b, kv] == 0 and b < 3"}) {
        INFO(text);
        CHECK(parsed(declarations + text).facts() == POLYHEAD_EXPRESSION_BATCH_ROW);
    }
    CHECK(parsed("score = score * seq_len_kv").facts() == POLYHEAD_EXPRESSION_KEY_LENGTH);
    CHECK(parsed("mask = kv < seq_len_kv - b").facts() == (POLYHEAD_EXPRESSION_BATCH_ROW | POLYHEAD_EXPRESSION_KEY_LENGTH));
    CHECK(gen::Expression().facts() == 0);
}

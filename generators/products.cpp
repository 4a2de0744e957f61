// Products that lanes hold, as Exprs.
#include "products.h"

#include "bits.h"

namespace polyhead::gen {

using Halide::Expr;

namespace {

LaneProduct float_product() {
    return {1,
            Halide::Float(32),
            Expr(1.0f),
            nullptr,
            nullptr,
            [](const std::vector<Expr> &values) { return values[0]; },
            [](const std::vector<Expr> &values) { return values[0]; },
            [](const Expr &sum, const Expr &a, const Expr &b) { return sum + a * b; },
            [](const Expr &word, const std::vector<Expr> &dropped) { return Halide::select(dropped[0], 0.0f, word); },
            [](const Expr &word) { return std::vector<Expr>{word}; }};
}

std::vector<Expr> floats_of(const Expr &pair) {
    return {Halide::reinterpret<float>(pair << word(16)), Halide::reinterpret<float>(pair & word(0xffff0000))};
}

// bf16: the upper half of a float. Products and sums are rounded to nearest; subnormal elements and results count as 0.
void add_pairs_of_bf16(LaneProduct *p) {
    const Expr low = word(0xffff), high = word(0xffff0000);
    const auto cut = [=](const std::vector<Expr> &values) {
        return (Halide::reinterpret<uint32_t>(values[0]) >> word(16)) | (Halide::reinterpret<uint32_t>(values[1]) & high);
    };
    p->ones = p->repeated(0x3f80);
    p->cut = cut;
    p->round = [=](std::vector<Expr> values) {
        for (Expr &value : values) {
            const Expr bits = Halide::reinterpret<uint32_t>(value);
            value = Halide::reinterpret<float>(Halide::max(bits, bits + word(0x8000))); // NaN of all bits stays NaN
        }
        return cut(values);
    };
    p->drop = [=](const Expr &word_, const std::vector<Expr> &dropped) {
        return word_ & Halide::select(dropped[0], high, word(0xffffffff)) & Halide::select(dropped[1], low, word(0xffffffff));
    };
    p->floats = floats_of;
}

} // namespace

LaneProduct lane_product(const Product *product) {
    if (!product) {
        return float_product();
    }
    LaneProduct p;
    p.k = product->k;
    p.type = Halide::UInt(32);
    p.join = join_bits;
    p.repeated = [bits = 32 / p.k](uint32_t element) {
        uint32_t all = 0;
        for (int at = 0; at < 32; at += bits) {
            all |= element << at;
        }
        return word(all);
    };
    // Halide's runtime has the instruction under this name; a vector of calls becomes one.
    p.add_products = [product](const Expr &sum, const Expr &a, const Expr &b) {
        return product->sums_floats()
                   ? pure_call(product->function, {sum, a, b})
                   : pure_call(product->function, {sum, Halide::reinterpret<int32_t>(a), Halide::reinterpret<int32_t>(b)}, Halide::Int(32));
    };
    if (product->a == Number::bf16) {
        add_pairs_of_bf16(&p);
    }
    return p;
}

Expr LaneProduct::word(const std::function<Expr(int part)> &element) const {
    std::vector<Expr> elements;
    for (int part = 0; part < k; part++) {
        elements.push_back(element(part));
    }
    return join(elements);
}

std::vector<Expr> floats_of_bf16_pair(const Expr &low, const Expr &high) {
    return floats_of(join_bits({low, high}));
}

} // namespace polyhead::gen

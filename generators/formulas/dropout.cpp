// Dropout of weights: Philox4x32 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011).
#include "dropout.h"

#include "../bits.h"

namespace polyhead::gen {

using Halide::cast;
using Halide::Expr;

namespace {

constexpr int rounds = 7; // the fewest that pass the tests of the authors

struct Product {
    Expr high, low;
};

Product product(uint32_t factor, const Expr &x) {
    const Expr whole = cast<uint64_t>(x) * cast<uint64_t>(word(factor));
    return {cast<uint32_t>(whole >> 32), cast<uint32_t>(whole)};
}

std::vector<Expr> philox(std::vector<Expr> c, Expr key_0, Expr key_1) {
    for (int i = 0; i < rounds; i++) {
        const Product first = product(0xd2511f53, c[0]), second = product(0xcd9e8d57, c[2]);
        c = {second.high ^ c[1] ^ key_0, second.low, first.high ^ c[3] ^ key_1, first.low};
        key_0 = key_0 + word(0x9e3779b9);
        key_1 = key_1 + word(0xbb67ae85);
    }
    return c;
}

} // namespace

std::vector<Expr> Dropout::words(const Expr &group_number, const Expr &lane, const Expr &q, const Expr &h, const Expr &b) const {
    const auto bits = [](const Expr &x) { return cast<uint32_t>(x); };
    const auto number = [this](const char *name) { return cast<uint32_t>(in().number(name)); };
    return philox(
        {bits(group_number * lanes + lane), bits(q) + ((bits(b) >> 16) << 24), (bits(b) << 16) + bits(h), number("dropout_offset")},
        number("seed_low"), number("seed_high"));
}

Expr Dropout::threshold() const {
    constexpr float all = 65536.0f;
    return Halide::max(cast<int32_t>((1.0f - in().number("dropout_p")) * all + 0.5f), 1);
}

Expr Dropout::factor(const std::vector<Expr> &words, const Expr &place) const {
    const Expr of_pair = place / 2;
    const Expr both = Halide::select(of_pair == 0, words[0], of_pair == 1, words[1], of_pair == 2, words[2], words[3]);
    const Expr decision = cast<int32_t>((both >> cast<uint32_t>(place % 2 * 16)) & word(0xffff));
    return Halide::select(decision < threshold(), 65536.0f / cast<float>(threshold()), 0.0f);
}

} // namespace polyhead::gen

// Dropout of weights: eight decisions of 16 bits from one counter.
#include "dropout.h"

#include "../bits.h"
#include "../random_words.h"

namespace polyhead::gen {

using Halide::cast;
using Halide::Expr;

std::vector<Expr> Dropout::words(const Expr &group_number, const Expr &lane, const Expr &q, const Expr &h, const Expr &b) const {
    const auto bits = [](const Expr &x) { return cast<uint32_t>(x); };
    const auto number = [this](const char *name) { return cast<uint32_t>(in().number(name)); };
    return philox(
        in().numerics.multiply,
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

// What packed tokens cost an append: sequences of one token each, compared with a batch of them.
#include "commands.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include <polyhead/cache.h>

#include "../instruments/roof/roof.h"

namespace bench {
namespace {

constexpr int64_t sequences = 5, heads = 8, width = 128, capacity = 256, page_size = 16, columns = capacity / page_size;
constexpr double most_packed = 1.1; // of the batch

// One form of a cache, and the same new keys as a batch and packed.
class Case {
public:
    Case(polyhead::DType dtype, bool paged, bool changed) {
        const int64_t blocks = paged ? sequences * columns : sequences, rows = paged ? page_size : capacity;
        memory_.resize(static_cast<size_t>(2 * blocks * heads * rows * width));
        tokens_.resize(static_cast<size_t>(2 * sequences * heads * width), 0.5f);
        const auto half = [&](size_t i) { return memory_.data() + i * memory_.size() / 2; };
        cache_.key = polyhead::MutableTensorView(half(0), dtype, {blocks, heads, rows, width});
        cache_.value = polyhead::MutableTensorView(half(1), dtype, {blocks, heads, rows, width});
        for (int32_t i = 0; paged && i < sequences * columns; i++)
            table_.push_back(i);
        if (paged)
            cache_.page_table = polyhead::view(table_.data(), {sequences, columns});
        // Tokens as a projection gives them: [sequences,H,d], which is [B,H,1,d] and the packed [1,H,total,d].
        const auto tokens = [&](size_t i) { return tokens_.data() + i * tokens_.size() / 2; };
        batch_.key = polyhead::TensorView(tokens(0), polyhead::DType::f32, {sequences, heads, 1, width});
        batch_.value = polyhead::TensorView(tokens(1), polyhead::DType::f32, {sequences, heads, 1, width});
        batch_.lengths = polyhead::view(lengths_.data(), {sequences});
        if (changed) {
            batch_.rotation.cos = batch_.rotation.sin = polyhead::view(angles_.data(), {capacity, width / 2});
            batch_.key_norm = POLYHEAD_RMS_NORM;
            batch_.norm_epsilon = 1e-6f;
        }
        packed_ = batch_;
        const auto packed = [](const float *of) { return from_packed(polyhead::view(of, {sequences, heads, width})); };
        packed_.key = packed(tokens(0));
        packed_.value = packed(tokens(1));
        packed_.cu_seqlens = polyhead::view(begins_.data(), {sequences + 1});
    }
    Case(const Case &) = delete;
    Case &operator=(const Case &) = delete;
    std::string error() const { return std::string(append(cache_, batch_).message()) + append(cache_, packed_).message(); }
    // Of a batch and of packed tokens, in turns: the shortest of several, as what is looked for is the cost of instructions.
    std::array<double, 2> least_seconds() const {
        constexpr int turns = 100, calls = 100;
        std::array<double, 2> least = {1, 1};
        for (int turn = 0; turn < 2 * turns; turn++) {
            const bool packed = turn % 2 != 0;
            const double start = roof::now();
            for (int call = 0; call < calls; call++)
                (void)append(cache_, packed ? packed_ : batch_);
            least[packed] = std::min(least[packed], (roof::now() - start) / calls);
        }
        return least;
    }

private:
    std::vector<float> memory_, tokens_, angles_ = std::vector<float>(static_cast<size_t>(capacity * width / 2), 0.7f);
    std::vector<int32_t> lengths_ = {17, 200, 31, 0, 90}, begins_ = {0, 1, 2, 3, 4, 5}, table_;
    polyhead::Cache cache_;
    polyhead::NewKeys batch_, packed_;
};

bool measure(const char *name, const Case &measured, int rounds) {
    if (const std::string error = measured.error(); !error.empty()) {
        std::printf("%-28s  %s\n", name, error.c_str());
        return false;
    }
    std::vector<double> ratio, batch;
    for (int round = 0; round < rounds; round++) {
        const auto [together, packed] = measured.least_seconds();
        ratio.push_back(packed / together);
        batch.push_back(1e6 * together);
    }
    const roof::Spread spread = roof::spread(ratio);
    const bool within = spread.median <= most_packed;
    std::printf("%-28s  %5.2f (%4.2f)  %9.2f  %.2f%s\n", name, spread.median, spread.iqr(), roof::spread(batch).median, most_packed,
                within ? "" : "  ABOVE");
    std::fflush(stdout);
    return within;
}

} // namespace

int run_append(const Options &options) {
    polyhead::set_num_threads(1);
    std::printf("append of %lld sequences of one token, %lld heads of %lld: time of packed tokens / time of a batch, medians\n"
                "(interquartile range) of %d rounds, one thread\n%-28s  %12s  %9s  at most\n",
                static_cast<long long>(sequences), static_cast<long long>(heads), static_cast<long long>(width), options.rounds, "cache",
                "ratio", "batch, us");
    int broken = 0;
    for (const polyhead::DType dtype : {polyhead::DType::f32, polyhead::DType::bf16})
        for (const bool paged : {false, true})
            for (const bool changed : {false, true}) {
                const std::string name = std::string(dtype == polyhead::DType::f32 ? "f32" : "bf16") + (paged ? ", pages" : "") +
                                         (changed ? ", norm, rotation" : "");
                broken += measure(name.c_str(), Case(dtype, paged, changed), options.rounds) ? 0 : 1;
            }
    return broken ? 1 : 0;
}

} // namespace bench

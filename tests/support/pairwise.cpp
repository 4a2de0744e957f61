// The greedy choice: each row is the best of several candidates, each candidate takes feature by feature, in random order, the setting
// that covers the most pairs that have not occurred yet.
#include "pairwise.h"

#include <algorithm>
#include <numeric>

#include "instruments/calls/random.h"

namespace polyhead::test {

namespace {

constexpr int candidates = 30;

class Pairs {
public:
    explicit Pairs(const std::vector<int> &settings) : settings_(settings), first_(settings.size()) {
        std::partial_sum(settings.begin(), settings.end(), first_.begin());
        const int all = first_.back();
        for (size_t f = settings.size(); f-- > 0;) {
            first_[f] -= settings[f];
        }
        missing_.assign(static_cast<size_t>(all), std::vector<uint8_t>(static_cast<size_t>(all), 1));
        for (size_t f = 0; f < settings.size(); f++) {
            for (size_t g = 0; g < f; g++) {
                left_ += settings[f] * settings[g];
            }
        }
    }
    int left() const { return left_; }

    // Missing pairs that this setting makes with the features that are chosen already (those not -1).
    int gain(const std::vector<int> &row, size_t feature, int setting) const {
        int count = 0;
        for (size_t g = 0; g < row.size(); g++) {
            count += g != feature && row[g] >= 0 ? missing_[at(feature, setting)][at(g, row[g])] : 0;
        }
        return count;
    }
    // Missing pairs of this setting with any setting of the others.
    int potential(size_t feature, int setting) const {
        const std::vector<uint8_t> &pairs = missing_[at(feature, setting)];
        return std::accumulate(pairs.begin(), pairs.end(), 0);
    }
    void take(const std::vector<int> &row) {
        for (size_t f = 0; f < row.size(); f++) {
            for (size_t g = 0; g < row.size(); g++) {
                if (f != g) {
                    uint8_t &missing = missing_[at(f, row[f])][at(g, row[g])];
                    left_ -= f < g ? missing : 0;
                    missing = 0;
                }
            }
        }
    }
    int settings(size_t feature) const { return settings_[feature]; }

private:
    size_t at(size_t feature, int setting) const { return static_cast<size_t>(first_[feature] + setting); }

    std::vector<int> settings_, first_;
    std::vector<std::vector<uint8_t>> missing_;
    int left_ = 0;
};

std::vector<int> candidate(const Pairs &pairs, size_t features, Random &random, int *gain) {
    std::vector<size_t> order(features);
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = features; i-- > 1;) {
        std::swap(order[i], order[static_cast<size_t>(random.below(static_cast<int64_t>(i) + 1))]);
    }
    std::vector<int> row(features, -1);
    *gain = 0;
    for (size_t feature : order) {
        int best = -1, best_gain = -1, best_potential = -1;
        const int shift = static_cast<int>(random.below(pairs.settings(feature)));
        for (int i = 0; i < pairs.settings(feature); i++) {
            const int setting = (i + shift) % pairs.settings(feature);
            const int now = pairs.gain(row, feature, setting), later = pairs.potential(feature, setting);
            if (now > best_gain || (now == best_gain && later > best_potential)) {
                best = setting;
                best_gain = now;
                best_potential = later;
            }
        }
        row[feature] = best;
        *gain += best_gain;
    }
    return row;
}

} // namespace

std::vector<std::vector<int>> pairwise_rows(const std::vector<int> &settings, int min_rows, uint64_t seed) {
    Random random(seed);
    std::vector<std::vector<int>> rows;
    Pairs pairs(settings);
    int rounds = 0;
    while ((rounds == 0 && pairs.left() > 0) || static_cast<int>(rows.size()) < min_rows) {
        if (pairs.left() == 0) {
            pairs = Pairs(settings); // once more, in another order
            rounds++;
        }
        std::vector<int> best;
        int best_gain = -1;
        for (int i = 0; i < candidates; i++) {
            int gain = 0;
            std::vector<int> row = candidate(pairs, settings.size(), random, &gain);
            if (gain > best_gain) {
                best = std::move(row);
                best_gain = gain;
            }
        }
        pairs.take(best);
        rows.push_back(std::move(best));
    }
    return rows;
}

} // namespace polyhead::test

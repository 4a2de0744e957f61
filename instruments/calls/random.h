// Random numbers that are the same on every machine and standard library.
#ifndef POLYHEAD_INSTRUMENTS_RANDOM_H
#define POLYHEAD_INSTRUMENTS_RANDOM_H

#include <cstdint>
#include <vector>

namespace polyhead::test {

class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}
    // splitmix64
    uint64_t bits() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    int64_t below(int64_t limit) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(limit)); }
    int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
    bool chance(int percent) { return below(100) < percent; }
    // Mean 0, variance 1, |value| < 3.5: the sum of four uniform 16-bit numbers.
    float normal() {
        const uint64_t word = bits();
        const int64_t sum = static_cast<int64_t>((word & 0xffff) + ((word >> 16) & 0xffff) + ((word >> 32) & 0xffff) + (word >> 48));
        return static_cast<float>(sum - 2 * 65535) * (1.7320508f / 65536.0f);
    }
    template <class T> const T &pick(const std::vector<T> &choices) {
        return choices[static_cast<size_t>(below(static_cast<int64_t>(choices.size())))];
    }

private:
    uint64_t state_;
};

} // namespace polyhead::test
#endif

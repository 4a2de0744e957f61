// Philox4x32 and uniform() of expressions as loops over words, written apart from the generators.
#ifndef POLYHEAD_INSTRUMENTS_RANDOM_WORDS_H
#define POLYHEAD_INSTRUMENTS_RANDOM_WORDS_H

#include <array>
#include <cstdint>

namespace polyhead::test {

inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, uint32_t key_0, uint32_t key_1, int rounds) {
    for (int i = 0; i < rounds; i++, key_0 += 0x9E3779B9, key_1 += 0xBB67AE85) {
        const uint64_t first = uint64_t(0xD2511F53) * c[0], second = uint64_t(0xCD9E8D57) * c[2];
        c = {uint32_t(second >> 32) ^ c[1] ^ key_0, uint32_t(second), uint32_t(first >> 32) ^ c[3] ^ key_1, uint32_t(first)};
    }
    return c;
}

// A multiple of 2^-24 below 1.
inline double uniform(int64_t seed, int64_t b, int64_t h, int64_t q, int64_t kv) {
    const auto words = philox({uint32_t(kv), uint32_t(q), uint32_t(h), uint32_t(b)}, uint32_t(seed), 0x66696E75, 7);
    return double(words[0] >> 8) / (1 << 24);
}

} // namespace polyhead::test
#endif

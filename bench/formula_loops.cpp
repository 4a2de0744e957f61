#include "formula_loops.h"

#include <algorithm>
#include <cstddef>

#include <polyhead/c_api.h>

#include "../instruments/roof/workers.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace roof {

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized" // GCC 12's own intrinsics begin with a vector that has no value
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
namespace {

constexpr size_t l1_bytes = 16384;
alignas(64) char memory[l1_bytes];

// Passes over the memory. Two vectors at a time, each for four rows: eight sums are enough to hide the latency of a multiply-add.
#define KEEP(sum) asm volatile("" : "+v"(sum));
#define ROW(i, multiply_add)                                                                                                               \
    one##i = multiply_add(one##i, first, query##i);                                                                                        \
    two##i = multiply_add(two##i, second, query##i);                                                                                       \
    KEEP(one##i) KEEP(two##i)
#define DECLARE(i, Sum, zero, Word, load)                                                                                                  \
    const Word query##i = load(memory + 64 * i);                                                                                           \
    Sum one##i = zero(), two##i = zero();
#define LOOP(name, features, Sum, zero, Word, load, word_bytes, multiply_add)                                                              \
    __attribute__((target(features))) void name(int64_t passes) {                                                                          \
        DECLARE(0, Sum, zero, Word, load)                                                                                                  \
        DECLARE(1, Sum, zero, Word, load)                                                                                                  \
        DECLARE(2, Sum, zero, Word, load)                                                                                                  \
        DECLARE(3, Sum, zero, Word, load)                                                                                                  \
        for (int64_t pass = 0; pass < passes; pass++)                                                                                      \
            for (size_t at = 0; at < l1_bytes; at += 2 * word_bytes) {                                                                     \
                const Word first = load(memory + at), second = load(memory + at + word_bytes);                                             \
                ROW(0, multiply_add)                                                                                                       \
                ROW(1, multiply_add)                                                                                                       \
                ROW(2, multiply_add)                                                                                                       \
                ROW(3, multiply_add)                                                                                                       \
            }                                                                                                                              \
    }

#define AS_FLOATS_512(p) _mm512_loadu_ps(p)
#define F16_512(p) _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)))
#define BF16_512(p)                                                                                                                        \
    _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p))), 16))
#define PAIRS_512(p) __m512bh(_mm512_loadu_si512(p))
#define I8_512(p) _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))))
#define QUADS_512(p) _mm512_loadu_si512(p)
#define AS_FLOATS_256(p) _mm256_loadu_ps(reinterpret_cast<const float *>(p))
#define F16_256(p) _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)))
#define BF16_256(p) _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))), 16))
#define I8_256(p) _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))))
#define SHORTS_512(p) _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)))
#define SHORTS_256(p) _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)))
#define MADD_512(sum, x, y) _mm512_add_epi32(sum, _mm512_madd_epi16(x, y))
#define MADD_256(sum, x, y) _mm256_add_epi32(sum, _mm256_madd_epi16(x, y))
#define FMA_512(sum, x, y) _mm512_fmadd_ps(x, y, sum)
#define FMA_256(sum, x, y) _mm256_fmadd_ps(x, y, sum)
LOOP(f32_512, "avx512f", __m512, _mm512_setzero_ps, __m512, AS_FLOATS_512, 64, FMA_512)
LOOP(f16_512, "avx512f", __m512, _mm512_setzero_ps, __m512, F16_512, 32, FMA_512)
LOOP(bf16_512, "avx512f", __m512, _mm512_setzero_ps, __m512, BF16_512, 32, FMA_512)
LOOP(pairs_512, "avx512f,avx512bf16", __m512, _mm512_setzero_ps, __m512bh, PAIRS_512, 64, _mm512_dpbf16_ps)
LOOP(i8_512, "avx512f", __m512, _mm512_setzero_ps, __m512, I8_512, 16, FMA_512)
LOOP(quads_512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512, __m512i, QUADS_512, 64, _mm512_dpbusd_epi32)
LOOP(shorts_512, "avx512f,avx512bw", __m512i, _mm512_setzero_si512, __m512i, SHORTS_512, 32, MADD_512)
LOOP(f32_256, "avx2,fma", __m256, _mm256_setzero_ps, __m256, AS_FLOATS_256, 32, FMA_256)
LOOP(f16_256, "avx2,fma,f16c", __m256, _mm256_setzero_ps, __m256, F16_256, 16, FMA_256)
LOOP(bf16_256, "avx2,fma", __m256, _mm256_setzero_ps, __m256, BF16_256, 16, FMA_256)
LOOP(i8_256, "avx2,fma", __m256, _mm256_setzero_ps, __m256, I8_256, 8, FMA_256)
LOOP(shorts_256, "avx2", __m256i, _mm256_setzero_si256, __m256i, SHORTS_256, 16, MADD_256)
#undef LOOP
#undef DECLARE
#undef ROW
#undef KEEP

using Loop = void (*)(int64_t passes);
// Of keys, and of values.
struct Loops {
    Loop keys, values;
};
Loops loops_of(int32_t dtype) {
    const uint64_t features = polyhead_cpu_features();
    const auto has = [&](uint64_t wanted) { return (features & wanted) == wanted; };
    const auto both = [](Loop loop) { return Loops{loop, loop}; };
    const bool wide = has(POLYHEAD_CPU_AVX512), shorts = has(POLYHEAD_CPU_AVX512_SKYLAKE), dots = has(POLYHEAD_CPU_AVX512_BF16_VNNI),
               narrow = has(POLYHEAD_CPU_AVX2 | POLYHEAD_CPU_FMA);
    switch (dtype) {
    case POLYHEAD_I8:
        return wide ? Loops{dots ? quads_512 : shorts ? shorts_512 : shorts_256, i8_512} : narrow ? Loops{shorts_256, i8_256} : Loops{};
    case POLYHEAD_BF16:
        return both(dots ? pairs_512 : wide ? bf16_512 : narrow ? bf16_256 : nullptr);
    case POLYHEAD_F16:
        return both(wide ? f16_512 : narrow && has(POLYHEAD_CPU_F16C) ? f16_256 : nullptr);
    default:
        return both(wide ? f32_512 : narrow ? f32_256 : nullptr);
    }
}

// Of one pass.
double shortest_seconds(Loop loop, double seconds) {
    constexpr int64_t passes = 64;
    double shortest = 1e30;
    for (const double end = now() + seconds; now() < end;) {
        const double start = now();
        loop(passes);
        shortest = std::min(shortest, now() - start);
    }
    return shortest / passes;
}

} // namespace

double formula_gbs(int32_t dtype, double seconds) {
    const Loops loops = loops_of(dtype);
    return loops.keys ? 2 * l1_bytes / (shortest_seconds(loops.keys, seconds) + shortest_seconds(loops.values, seconds)) / 1e9 : 0;
}
#else
double formula_gbs(int32_t, double) {
    return 0;
}
#endif

} // namespace roof

// Names of CPU features, what each builds on, and the limit that POLYHEAD_CPU_FEATURES puts on a process. Header only: the runtime's
// dispatch and the generator's target `host` read the variable here and nowhere else.
#ifndef POLYHEAD_CONTRACT_CPU_FEATURES_H
#define POLYHEAD_CONTRACT_CPU_FEATURES_H

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <polyhead/c_api.h>

namespace polyhead::contract {

enum class Architecture : uint8_t { x86, arm, riscv, other };

// One feature; `level` is all that a processor with it has: the feature and those that it builds on.
struct CpuFeature {
    const char *name;
    uint64_t bit, level;
    Architecture architecture = Architecture::x86;
};

namespace cpu_level {

constexpr uint64_t sse41 = POLYHEAD_CPU_SSE41, avx = sse41 | POLYHEAD_CPU_AVX;
constexpr uint64_t avx2 = avx | POLYHEAD_CPU_F16C | POLYHEAD_CPU_FMA | POLYHEAD_CPU_AVX2, avx512 = avx2 | POLYHEAD_CPU_AVX512;
constexpr uint64_t skylake = avx512 | POLYHEAD_CPU_AVX512_SKYLAKE, cannonlake = skylake | POLYHEAD_CPU_AVX512_CANNONLAKE;
constexpr uint64_t bf16_vnni = cannonlake | POLYHEAD_CPU_AVX512_BF16_VNNI;
constexpr uint64_t fp16 = bf16_vnni | POLYHEAD_CPU_AVXVNNI | POLYHEAD_CPU_AVX512_FP16;

} // namespace cpu_level

// In the order of their bits.
inline constexpr CpuFeature cpu_feature_table[] = {
    {"sse41", POLYHEAD_CPU_SSE41, cpu_level::sse41},
    {"avx", POLYHEAD_CPU_AVX, cpu_level::avx},
    {"f16c", POLYHEAD_CPU_F16C, cpu_level::avx | POLYHEAD_CPU_F16C},
    {"fma", POLYHEAD_CPU_FMA, cpu_level::avx | POLYHEAD_CPU_FMA},
    {"avx2", POLYHEAD_CPU_AVX2, cpu_level::avx2},
    {"avx512", POLYHEAD_CPU_AVX512, cpu_level::avx512},
    {"avx512_skylake", POLYHEAD_CPU_AVX512_SKYLAKE, cpu_level::skylake},
    {"avx512_cannonlake", POLYHEAD_CPU_AVX512_CANNONLAKE, cpu_level::cannonlake},
    {"avx512_bf16_vnni", POLYHEAD_CPU_AVX512_BF16_VNNI, cpu_level::bf16_vnni},
    {"sse4a", POLYHEAD_CPU_SSE4A, POLYHEAD_CPU_SSE4A},
    {"avxvnni", POLYHEAD_CPU_AVXVNNI, cpu_level::avx2 | POLYHEAD_CPU_AVXVNNI},
    {"amx", POLYHEAD_CPU_AMX, cpu_level::fp16 | POLYHEAD_CPU_AMX},
    {"avx512_fp16", POLYHEAD_CPU_AVX512_FP16, cpu_level::fp16},
    {"arm_atomics", POLYHEAD_CPU_ARM_ATOMICS, POLYHEAD_CPU_ARM_ATOMICS, Architecture::arm},
    {"arm_dot_prod", POLYHEAD_CPU_ARM_DOT_PROD, POLYHEAD_CPU_ARM_DOT_PROD, Architecture::arm},
    {"arm_fp16", POLYHEAD_CPU_ARM_FP16, POLYHEAD_CPU_ARM_FP16, Architecture::arm},
    {"arm_sve", POLYHEAD_CPU_ARM_SVE, POLYHEAD_CPU_ARM_SVE, Architecture::arm},
    {"arm_sve2", POLYHEAD_CPU_ARM_SVE2, POLYHEAD_CPU_ARM_SVE | POLYHEAD_CPU_ARM_SVE2, Architecture::arm},
    {"riscv_vector", POLYHEAD_CPU_RISCV_VECTOR, POLYHEAD_CPU_RISCV_VECTOR, Architecture::riscv},
};

// What the features of these bits build on, without them.
constexpr uint64_t levels_below(uint64_t bits) noexcept {
    uint64_t below = 0;
    for (const CpuFeature &feature : cpu_feature_table) {
        below |= (feature.bit & bits) != 0 ? feature.level : 0;
    }
    return below & ~bits;
}

// The features that words such as "avx2", "avx512_skylake sse4a" or "none" allow: those named and what they build on. Words are separated
// by spaces or commas; no words mean no limit. Returns false for a word that is no feature.
inline bool parse_cpu_features(const char *text, uint64_t *mask) noexcept {
    constexpr const char *separators = " ,";
    uint64_t found = 0;
    bool any = false;
    for (text += std::strspn(text, separators); *text; text += std::strspn(text, separators)) {
        const size_t length = std::strcspn(text, separators);
        const auto is = [&](const char *name) { return std::strlen(name) == length && std::strncmp(name, text, length) == 0; };
        bool known = is("none");
        for (const CpuFeature &feature : cpu_feature_table) {
            known = known || is(feature.name);
            found |= is(feature.name) ? feature.level : 0;
        }
        if (!known) {
            return false;
        }
        any = true;
        text += length;
    }
    *mask = any ? found : ~UINT64_C(0);
    return true;
}

// What the environment allows this process, read at the first call. A value that is not understood allows nothing, and has a sentence.
struct CpuFeatureLimit {
    uint64_t mask = ~UINT64_C(0);
    const char *refusal = nullptr;
};

inline const CpuFeatureLimit &cpu_feature_limit() noexcept {
    static const CpuFeatureLimit limit = [] {
        CpuFeatureLimit read;
        const char *text = std::getenv("POLYHEAD_CPU_FEATURES");
        if (text && !parse_cpu_features(text, &read.mask)) {
            read = {0, "POLYHEAD_CPU_FEATURES: found a word that is no CPU feature, expected none or names such as sse41, avx2, "
                       "avx512_skylake"};
        }
        return read;
    }();
    return limit;
}

} // namespace polyhead::contract
#endif

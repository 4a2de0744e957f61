// What this CPU has: on x86 by CPUID and XCR0, elsewhere by what Linux tells. A bit is set only if everything that a compiler may emit for
// that target is there. Header only: dispatch asks it, and so does the planner for the target `host`.
#ifndef POLYHEAD_RUNTIME_CPU_DETECTION_H
#define POLYHEAD_RUNTIME_CPU_DETECTION_H

#include <cstdint>

#include <polyhead/c_api.h>

#include "helpers/amx.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if (defined(__aarch64__) || defined(__riscv)) && defined(__linux__)
#include <sys/auxv.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace polyhead::runtime {

#if defined(__x86_64__)

struct Registers {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

inline Registers cpuid(unsigned leaf, unsigned subleaf = 0) noexcept {
    Registers r;
    // __get_cpuid_count answers false, and leaves the zeros, for a leaf this CPU does not have.
    __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
    return r;
}

inline bool all(unsigned value, unsigned bits) noexcept {
    return (value & bits) == bits;
}

constexpr unsigned bit(int n) noexcept {
    return 1u << n;
}

// Register state that the operating system saves (XCR0): without it the instructions fault.
inline uint64_t enabled_state(const Registers &leaf1) noexcept {
    if (!all(leaf1.ecx, bit(27))) {
        return 0; // OSXSAVE
    }
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t(high) << 32) | low;
}

inline uint64_t avx512_features(const Registers &leaf7, const Registers &leaf7_1) noexcept {
    uint64_t found = 0;
    if (!all(leaf7.ebx, bit(16) | bit(28))) {
        return found; // F, CD
    }
    found |= POLYHEAD_CPU_AVX512;
    if (!all(leaf7.ebx, bit(17) | bit(30) | bit(31))) {
        return found; // DQ, BW, VL
    }
    found |= POLYHEAD_CPU_AVX512_SKYLAKE;
    if (!all(leaf7.ebx, bit(21)) || !all(leaf7.ecx, bit(1))) {
        return found; // IFMA, VBMI
    }
    found |= POLYHEAD_CPU_AVX512_CANNONLAKE;
    const bool small_types = all(leaf7.ecx, bit(6) | bit(11) | bit(12) | bit(14)); // VBMI2, VNNI, BITALG, VPOPCNTDQ
    if (small_types && all(leaf7_1.eax, bit(5))) {
        found |= POLYHEAD_CPU_AVX512_BF16_VNNI;
    }
    if ((found & POLYHEAD_CPU_AVX512_BF16_VNNI) != 0 && all(leaf7.edx, bit(23)) && all(leaf7.ecx, bit(8))) {
        found |= POLYHEAD_CPU_AVX512_FP16; // FP16, GFNI
    }
    return found;
}

// Everything but AMX.
inline uint64_t detect() noexcept {
    const Registers leaf1 = cpuid(1), leaf7 = cpuid(7), leaf7_1 = leaf7.eax >= 1 ? cpuid(7, 1) : Registers(), amd = cpuid(0x80000001u);
    const uint64_t state = enabled_state(leaf1);
    uint64_t found = 0;
    if (all(amd.ecx, bit(6))) {
        found |= POLYHEAD_CPU_SSE4A;
    }
    if (!all(leaf1.ecx, bit(0) | bit(9) | bit(19))) {
        return found; // SSE3, SSSE3, SSE4.1
    }
    found |= POLYHEAD_CPU_SSE41;
    const bool ymm_saved = (state & 6) == 6;
    if (!ymm_saved || !all(leaf1.ecx, bit(20) | bit(23) | bit(28))) {
        return found; // SSE4.2, POPCNT, AVX
    }
    found |= POLYHEAD_CPU_AVX;
    const bool f16c = all(leaf1.ecx, bit(29)), fma = all(leaf1.ecx, bit(12));
    if (f16c) {
        found |= POLYHEAD_CPU_F16C;
    }
    if (fma) {
        found |= POLYHEAD_CPU_FMA;
    }
    // Code for AVX2 is compiled for the first CPU that had it, which brought all of these along: AVX2, BMI1, BMI2, MOVBE, LZCNT.
    const bool haswell = all(leaf7.ebx, bit(5) | bit(3) | bit(8)) && all(leaf1.ecx, bit(22)) && all(amd.ecx, bit(5));
    if (!haswell || !f16c || !fma) {
        return found;
    }
    found |= POLYHEAD_CPU_AVX2;
    if (all(leaf7_1.eax, bit(4))) {
        found |= POLYHEAD_CPU_AVXVNNI;
    }
    const bool zmm_saved = (state & 0xe6) == 0xe6;
    return zmm_saved ? found | avx512_features(leaf7, leaf7_1) : found;
}

// AMX tiles, BF16 and INT8, saved state, and the operating system's permission.
inline uint64_t detect_amx() noexcept {
#if defined(__linux__) && defined(SYS_arch_prctl) && defined(POLYHEAD_HAS_AMX)
    constexpr int request_state_permission = 0x1023, tile_data = 18; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    const Registers leaf7 = cpuid(7);
    const bool present = all(leaf7.edx, bit(22) | bit(24) | bit(25)) && (enabled_state(cpuid(1)) & 0x60000) == 0x60000;
    if (present && syscall(SYS_arch_prctl, request_state_permission, tile_data) == 0) {
        return POLYHEAD_CPU_AMX;
    }
#endif
    return 0;
}

#elif defined(__aarch64__) && defined(__linux__)

inline uint64_t detect() noexcept {
    const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    const struct {
        unsigned long word;
        int bit; // of the words that Linux gives a program
        uint64_t feature;
    } known[] = {{first, 8, POLYHEAD_CPU_ARM_ATOMICS},
                 {first, 20, POLYHEAD_CPU_ARM_DOT_PROD},
                 {first, 10, POLYHEAD_CPU_ARM_FP16},
                 {first, 22, POLYHEAD_CPU_ARM_SVE},
                 {second, 1, POLYHEAD_CPU_ARM_SVE2}};
    uint64_t found = 0;
    for (const auto &row : known) {
        found |= (row.word >> row.bit & 1) != 0 ? row.feature : 0;
    }
    return found;
}
inline uint64_t detect_amx() noexcept {
    return 0;
}

#elif defined(__riscv) && defined(__linux__)

inline uint64_t detect() noexcept {
    return (getauxval(AT_HWCAP) >> ('v' - 'a') & 1) != 0 ? POLYHEAD_CPU_RISCV_VECTOR : 0;
}
inline uint64_t detect_amx() noexcept {
    return 0;
}

#else

// What the compiler of this library was allowed to use.
inline uint64_t detect() noexcept {
    uint64_t found = 0;
#if defined(__ARM_FEATURE_ATOMICS)
    found |= POLYHEAD_CPU_ARM_ATOMICS;
#endif
#if defined(__ARM_FEATURE_DOTPROD)
    found |= POLYHEAD_CPU_ARM_DOT_PROD;
#endif
#if defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
    found |= POLYHEAD_CPU_ARM_FP16;
#endif
    return found;
}
inline uint64_t detect_amx() noexcept {
    return 0;
}

#endif

} // namespace polyhead::runtime
#endif

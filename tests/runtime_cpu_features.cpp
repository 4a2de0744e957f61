// Names of CPU features, what each builds on, and the words of POLYHEAD_CPU_FEATURES.
#include "../contract/cpu_features.h"

#include "support/catch.h"

using polyhead::contract::cpu_feature_table;
using polyhead::contract::CpuFeature;
using polyhead::contract::parse_cpu_features;

namespace {

constexpr uint64_t refused = UINT64_C(1) << 63;

uint64_t parsed(const char *text) {
    uint64_t mask = 0;
    return parse_cpu_features(text, &mask) ? mask : refused;
}

} // namespace

TEST_CASE("CPU features: each has its bit and a level that holds the levels below it", "[runtime]") {
    uint64_t last = 0;
    for (const CpuFeature &feature : cpu_feature_table) {
        INFO(feature.name);
        CHECK((feature.bit & (feature.bit - 1)) == 0);
        CHECK(feature.bit > last);
        last = feature.bit;
        CHECK((feature.level & feature.bit) != 0);
        for (const CpuFeature &below : cpu_feature_table) {
            CHECK(((feature.level & below.bit) == 0 || (below.level & ~feature.level) == 0));
            CHECK(((feature.level & below.bit) == 0 || below.architecture == feature.architecture));
        }
    }
}

TEST_CASE("CPU features: the words of a limit", "[runtime]") {
    constexpr uint64_t avx2 =
        POLYHEAD_CPU_SSE41 | POLYHEAD_CPU_AVX | POLYHEAD_CPU_F16C | POLYHEAD_CPU_FMA | POLYHEAD_CPU_AVX2; // as c_api.h has it
    CHECK(parsed("sse41") == POLYHEAD_CPU_SSE41);
    CHECK(parsed("avx") == (POLYHEAD_CPU_SSE41 | POLYHEAD_CPU_AVX));
    CHECK(parsed("avx2") == avx2);
    CHECK(parsed("avx512_skylake sse4a") == (avx2 | POLYHEAD_CPU_AVX512 | POLYHEAD_CPU_AVX512_SKYLAKE | POLYHEAD_CPU_SSE4A));
    CHECK(parsed(" fma,,sse4a ") == (POLYHEAD_CPU_SSE41 | POLYHEAD_CPU_AVX | POLYHEAD_CPU_FMA | POLYHEAD_CPU_SSE4A));
    CHECK((parsed("amx") & POLYHEAD_CPU_SSE4A) == 0);
    CHECK(parsed("none") == 0);
    CHECK(parsed("none avx2") == avx2);
    CHECK(parsed("") == ~UINT64_C(0));
    CHECK(parsed(" , ") == ~UINT64_C(0));
    for (const char *text : {"avx3", "AVX2", "avx2 avx3", "avx2;sse4a", "sse4", "avx512_", "-avx2"}) {
        INFO(text);
        CHECK(parsed(text) == refused);
    }
}

// Machine facts per Halide target: AVX-512, AVX2, SSE and a generic 4-lane machine.
#include "machine.h"

namespace polyhead::gen {

using Halide::Target;

Machine machine_of(const Target &target) {
    if (target.arch == Target::X86) {
        // A flag stands alone in a target string: avx2 does not bring avx along.
        if (target.features_any_of({Target::AVX512, Target::AVX512_Skylake, Target::AVX512_Cannonlake, Target::AVX512_Zen4,
                                    Target::AVX512_Zen5, Target::AVX512_SapphireRapids})) {
            return {16, 32};
        }
        if (target.features_any_of({Target::AVX, Target::AVX2})) {
            return {8, 16};
        }
        return {4, 16};
    }
    if (target.arch == Target::ARM && target.bits == 64) {
        return {4, 32};
    }
    return {4, 16};
}

} // namespace polyhead::gen

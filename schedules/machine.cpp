// Machine facts per Halide target: AVX-512, AVX2, SSE and a generic 4-lane machine.
#include "machine.h"

namespace polyhead::gen {

using Halide::Target;

Machine machine_of(const Target &target) {
    if (target.arch == Target::X86) {
        if (target.features_any_of({Target::AVX512_Skylake, Target::AVX512_Cannonlake, Target::AVX512_Zen4, Target::AVX512_SapphireRapids})) {
            return {16, 32, true};
        }
        if (target.has_feature(Target::AVX)) {
            return {8, 16, true};
        }
        return {4, 16, false};
    }
    if (target.arch == Target::ARM && target.bits == 64) {
        return {4, 32, false};
    }
    return {4, 16, false};
}

} // namespace polyhead::gen

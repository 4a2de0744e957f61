// Counts sectors of global memory and passes over the banks of shared memory.
#include "traffic.h"
#include "program.h"

#include <algorithm>

namespace polyhead::cuda_driver {

namespace {

constexpr uint64_t sector_bytes = 32;
constexpr int banks = 32, bank_bytes = 4;

} // namespace

uint32_t sectors(const uint64_t *addresses, uint32_t active) {
    uint64_t touched[lanes];
    int count = 0;
    for (int lane = 0; lane < lanes; lane++) {
        if ((active >> lane) & 1u) {
            touched[count++] = addresses[lane] / sector_bytes; // at most 16 bytes and aligned: never in two
        }
    }
    std::sort(touched, touched + count);
    return static_cast<uint32_t>(std::unique(touched, touched + count) - touched);
}

// Lanes wait for each other when they read different words of one bank. Wide accesses are made in groups of at most 128 bytes. A GPU may
// serve several groups at once when all read the same word; this is not modelled.
uint32_t bank_passes(const uint64_t *addresses, uint32_t active, int bytes) {
    const int words = std::max(bytes / bank_bytes, 1), group = lanes / words;
    uint32_t passes = 0;
    for (int first = 0; first < lanes; first += group) {
        uint64_t wanted[lanes];
        int count = 0;
        for (int lane = first; lane < first + group; lane++) {
            for (int word = 0; ((active >> lane) & 1u) && word < words; word++) {
                wanted[count++] = addresses[lane] / bank_bytes + static_cast<uint64_t>(word);
            }
        }
        std::sort(wanted, wanted + count);
        const uint64_t *end = std::unique(wanted, wanted + count);
        uint32_t of_bank[banks] = {}, most = 0;
        for (const uint64_t *word = wanted; word != end; word++) {
            most = std::max(most, ++of_bank[*word % banks]);
        }
        passes += most;
    }
    return passes;
}

} // namespace polyhead::cuda_driver

// The shapes of AMX's tiles, and the instruction that sets them.
#ifndef POLYHEAD_RUNTIME_AMX_TILES_H
#define POLYHEAD_RUNTIME_AMX_TILES_H

#include "amx.h"

#ifdef POLYHEAD_HAS_AMX
#include <immintrin.h>

#define POLYHEAD_AMX __attribute__((target("amx-tile,amx-bf16")))

namespace polyhead::runtime {

// What ldtilecfg reads.
struct alignas(64) TileShapes {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64, "ldtilecfg reads 64 bytes");

POLYHEAD_AMX inline void use_tiles(const TileShapes &shapes) {
    asm volatile("" : : "r"(&shapes) : "memory"); // GCC 12 believes that the next line reads 8 bytes, and drops the other stores
    _tile_loadconfig(&shapes);
}

} // namespace polyhead::runtime
#endif

#endif

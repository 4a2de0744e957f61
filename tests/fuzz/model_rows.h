// Rows of a fuzzed cache call as a plain model has them: read as floats, rotated by position, written.
#ifndef POLYHEAD_TESTS_FUZZ_MODEL_ROWS_H
#define POLYHEAD_TESTS_FUZZ_MODEL_ROWS_H

#include <cstdint>
#include <vector>

#include <polyhead/c_cache.h>

#include "cache_memory.h"

namespace polyhead::fuzz {

int size_of(const polyhead_tensor &t);
bool is_absent(const polyhead_tensor &t);
float as_float(const char *from, int32_t dtype);

// Token t of batch row b, which stands at [outer,..,at] in tensors of tokens.
struct Token {
    int64_t b, t, outer, at;
};

struct Turn {
    polyhead_rotation rotation{};
    polyhead_sections sections{};

    // Whose position a pair takes.
    int64_t direction_of(int64_t pair) const;
    // Of a direction, for a token, which is at `first` + t without positions.
    int64_t position_of(int64_t direction, const Token &token, int64_t first) const;
};

// Of new keys: outer is the batch, and 1 where tokens are packed.
struct TurnExtents {
    int64_t batch, outer, tokens, d;
};
Turn make_turn(Bytes *bytes, CacheMemory *memory, const TurnExtents &extents);

// The entries of head h of a token, rotated as kernels rotate; first: the position of token 0 without positions.
std::vector<float> row_of(const polyhead_tensor &t, const Token &token, int64_t h, const Turn &turn, int64_t first);
// Writes a row as append does: as it is, converted, or as integers and their scales.
void model_row(CacheMemory::Snapshot *expected, const CacheMemory &memory, const polyhead_tensor &to, const polyhead_tensor &scales,
               int64_t block, int64_t h, int64_t row, const std::vector<float> &floats);

} // namespace polyhead::fuzz
#endif

// Products of bf16 matrices by the tiles of AMX.
#ifndef POLYHEAD_RUNTIME_AMX_H
#define POLYHEAD_RUNTIME_AMX_H

#include <cstdint>

#include <polyhead/c_api.h>

struct halide_buffer_t;

namespace polyhead::runtime {

// sums = rows x words, or added to sums. Pairs of a row lie side by side, and the 16 columns of a block.
struct Matrices {
    const uint8_t *rows;
    int64_t row_bytes; // from a row to the next, and so on
    const uint8_t *words;
    int64_t word_bytes, block_bytes;
    uint8_t *sums;
    int64_t sum_row_bytes, sum_block_bytes;
    int64_t num_rows, num_blocks, num_words;
    bool add;
};

// Does nothing where num_rows or num_blocks is 0. Only where the CPU has the feature amx.
void multiply(const Matrices &matrices);

} // namespace polyhead::runtime

// What kernels call. Halide's extern stages: with a buffer without memory they write the region of it that they read.
extern "C" int polyhead_amx_linear(halide_buffer_t *rows, halide_buffer_t *weight, int32_t inner, int32_t outer, int32_t num_rows,
                                   int32_t num_panels, halide_buffer_t *sums);

#endif

// Products of bf16 matrices by the tiles of AMX.
#ifndef POLYHEAD_RUNTIME_AMX_H
#define POLYHEAD_RUNTIME_AMX_H

#include <cstdint>

#include <polyhead/c_api.h>

// Older compilers do not know the instructions: then dispatch never finds the feature amx.
#if defined(__x86_64__) && ((defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11))
#define POLYHEAD_HAS_AMX 1
#endif

namespace polyhead::runtime {
struct KernelBuffer;
}

namespace polyhead::runtime {

// sums = rows x words. Pairs of a row lie side by side in groups of num_words; the words of all groups follow one another, and the 16
// columns of a block lie side by side.
struct Matrices {
    const uint8_t *rows;
    int64_t row_bytes, group_bytes; // from a row to the next, and so on
    const uint8_t *words;
    int64_t word_bytes, block_bytes;
    uint8_t *sums;
    int64_t sum_row_bytes, sum_block_bytes;
    int64_t num_rows, num_blocks, num_groups, num_words;
};

// Does nothing where num_rows or num_blocks is 0. Only where the CPU has the feature amx.
void multiply(const Matrices &matrices);

} // namespace polyhead::runtime

// What kernels call: Halide's extern stages.
extern "C" int polyhead_amx_linear(polyhead::runtime::KernelBuffer *rows, polyhead::runtime::KernelBuffer *weight, int32_t inner,
                                   int32_t outer, int32_t num_rows, int32_t num_panels, polyhead::runtime::KernelBuffer *sums);
extern "C" int polyhead_amx_scores(polyhead::runtime::KernelBuffer *keys, polyhead::runtime::KernelBuffer *query, int32_t kv_tile,
                                   int32_t group_size, int32_t num_keys, int32_t num_words, polyhead::runtime::KernelBuffer *scores);
extern "C" int polyhead_amx_values(polyhead::runtime::KernelBuffer *values, polyhead::runtime::KernelBuffer *probs, int32_t chunk_words,
                                   int32_t group_size, int32_t num_words, int32_t head_dim_v, polyhead::runtime::KernelBuffer *sums);

#endif

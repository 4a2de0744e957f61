// The tile of scores as an output: as many queries and keys as registers hold.
#include "score_output_tile.h"

namespace polyhead::gen {

namespace {

// Queries of a task, in blocks whose dot products share registers with vectors of keys: 6 x 4 accumulators of 32 registers, 4 x 2 of 16.
constexpr int query_blocks = 5, block_queries = 6, few_block_queries = 4, key_vectors = 4, few_key_vectors = 2;
// Threads that add up the probs of a row. Where keys are in splits there are few rows, and each has more threads: a multiple of a block.
constexpr int gpu_threads_of_a_row = gpu_score_threads, gpu_threads_of_few_rows = 4 * gpu_score_threads;

} // namespace

ScoreOutputTile score_output_tile(const Machine &machine, const Tiling &tiling) {
    if (machine.gpu()) {
        return {1, 1, tiling.split_len > 0 ? gpu_threads_of_few_rows : gpu_threads_of_a_row, 1};
    }
    const bool fits = machine.fits(block_queries * key_vectors, key_vectors + 1);
    const int keys = machine.lanes * (fits ? key_vectors : few_key_vectors);
    return {query_blocks * (fits ? block_queries : few_block_queries), keys, keys, query_blocks};
}

} // namespace polyhead::gen

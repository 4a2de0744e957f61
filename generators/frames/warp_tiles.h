// The frame "warp tiles" of GPUs: products of matrices by instructions that a warp makes together, with a running softmax over chunks of
// keys.
//
// A warp has tiles of 16 query rows. Query, and chunks of key and value, lie in shared memory as they are stored; fragments of them, scores
// and sums are registers that no Expr holds (generators/device_calls.h). A lane has of each tile of scores or of acc two rows, lane / 4 and
// 8 more, and of 8 neighbouring columns two, 2 * (lane % 4) and the next.
#pragma once

#include <vector>

#include "../device_calls.h"
#include "../thread_stage.h"
#include "attention_stages.h"
#include "seen_keys.h"

namespace polyhead::gen {

// The end of the name of a loop that computes a chunk too much, and then a wrong result, where it runs longer than its condition says.
constexpr const char *counted_chunks = "counted_chunks";

struct WarpTilesBlocking {
    int warps; // of a block
    int tiles; // of 16 rows, of a warp
    int keys;  // of a chunk
    const Product *product;
    int lanes;                              // of a warp
    int chunks;                             // in shared memory
    const Product *group_product = nullptr; // of four warps: makes scores and acc in the place of `product`

    int rows() const { return warps * tiles * product->m; }
    int threads() const { return warps * lanes; }
};

// What is made of one chunk: its stages, producers first, and those inside of the products of scores and of acc.
struct WarpChunk {
    Halide::RDom domain;
    // Chunks that all rows see as a whole; what is left of the last of them, where products are a chunk behind; chunks of which some rows
    // do not see some keys.
    enum class Part { whole, last, masked } part;
    std::vector<ThreadStage> stages;
    Halide::Func scores, key_fragments, query_fragments, acc, value_fragments; // query_fragments: undefined where they are kept
    Halide::Func scored;                                                       // what comes before scores are read
    Halide::Func raised;                                                       // references are those of the chunk
    Halide::Func lost, mended;                                 // of masked chunks: 1 where values are not finite; acc has them
    Halide::RVar scores_of_pair, scores_of_steps, acc_of_load; // the loops in which fragments are loaded
    bool masked() const { return part == Part::masked; }
};

struct WarpTilesStages : AttentionStages {
    WarpTilesBlocking blocking;
    int head_dim_v;
    Halide::Var lane{"lane"}, w{"w"}, qt{"qt"}, h{"h"}, b{"b"};
    RowBounds row_bounds;                   // (q2, mt, lane, w, qt, b)
    std::vector<ThreadStage> before, after; // the loops over chunks
    // Query with its sign changed, where the unit of scores is negative: its loops over pieces, and the one that runs once or not at all.
    Halide::Func query_signed;
    Halide::RVar signed_piece, signed_once;
    Halide::Func acc{"acc"}; // (lane, w, qt, h, b): 0; its updates are the loops
    std::vector<WarpChunk> chunks;
    Halide::RDom written; // (column of two, row of two, 8 columns, tile of the warp, lane, warp, tile)
    // Later rows see more keys: tiles are taken from the last one on, for all heads at once, so that the blocks that begin last are short.
    bool last_tile_first;
    std::vector<Halide::Func> of_tile; // (qt, b)

    // Statistics travel with out.
    void write(const AttentionOut &out, const AttentionFormulas &formulas, const Arguments &at, const Store &store) override;
    std::vector<Halide::Func> funcs() const override;

    // Registers of floats and of words, by their numbers: acc with the sums of rows, scores, references, the unit of scores, products of
    // a chunk; probs, fragments of key and value, ones, floats that become parts, query.
    struct Registers {
        int acc = 0, scores = 0, reference = 0, unit = 0, product = 0;
        int probs = 0, key = 0, value = 0, ones = 0, stored = 0, query = 0;
    } registers;
    bool keeps_query, sums_exactly; // the fragments of query; the sums of rows before probs are rounded
    // Rounded probs are added up by a product. Floats in parts are not rounded: their sums are exact ones.
    bool sums_by_product() const { return blocking.product->parts() == 1; }
    // Head dims in whole steps of products, two columns of them.
    static int padded(int head_dim) { return (head_dim + 15) / 16 * 16; }
    int padded_head_dim_v() const { return padded(head_dim_v); }
    int sum_column() const; // of acc, in eights: behind those of out
    int columns_of_acc() const { return sum_column() + (sums_exactly && sums_by_product() ? 2 : 1); }
    // Where the sum of a row is, of rounded probs, and of exact ones.
    Halide::Expr sum_slot(const Halide::Expr &q2, const Halide::Expr &mt, bool exactly) const;
};

WarpTilesStages warp_tiles_frame(const AttentionFormulas &formulas, const WarpTilesBlocking &blocking);

} // namespace polyhead::gen

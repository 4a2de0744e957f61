// Products of bf16 matrices by the tiles of AMX, for kernels whose tiling asks for them: Halide 21 reaches one accumulator at a time.
//
//   for 32 rows, for 32 columns: 2 x 2 accumulators of 16 x 16 floats
//     for 16 words: 2 tiles of rows, 2 tiles of words, 4 tdpbf16ps
//
// A word holds two neighbouring entries of a column. Only the last rows have smaller tiles; the last words are padded with zeros.
#include "../kernel_interface.h"
#include "amx_tiles.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>

namespace polyhead::runtime {

namespace {

constexpr int64_t tile = 16; // rows, columns and words of a tile
static_assert(tile == POLYHEAD_WEIGHT_PANEL, "a tile of words is a panel of weights");

} // namespace

#ifdef POLYHEAD_HAS_AMX

namespace {

constexpr int64_t tile_bytes = 64; // of a row of a tile

// Tiles: accumulators 0 and 1 of the first 16 rows, 2 and 3 of the second; 4 and 5 rows; 6 and 7 words.
POLYHEAD_AMX void set_shapes(int64_t first, int64_t second) {
    TileShapes shapes;
    for (int i = 0; i < 8; i++) {
        const int64_t rows = i >= 6 ? tile : i == 0 || i == 1 || i == 4 ? first : second;
        shapes.rows[i] = uint8_t(rows);
        shapes.row_bytes[i] = rows > 0 ? tile_bytes : 0;
    }
    use_tiles(shapes);
}

// 16 words of up to 32 rows and 32 columns.
template <bool two_rows, bool two_blocks>
POLYHEAD_AMX void add_step(const uint8_t *rows, int64_t row_bytes, const uint8_t *words, int64_t word_bytes, int64_t block_bytes) {
    _tile_loadd(4, rows, row_bytes);
    _tile_loadd(6, words, word_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (two_blocks) {
        _tile_loadd(7, words + block_bytes, word_bytes);
        _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (two_rows) {
        _tile_loadd(5, rows + tile * row_bytes, row_bytes);
        _tile_dpbf16ps(2, 5, 6);
        if constexpr (two_blocks) {
            _tile_dpbf16ps(3, 5, 7);
        }
    }
}

// The words behind the last full tile, padded with zeros.
struct PaddedTail {
    alignas(64) uint8_t rows[2 * tile * tile_bytes], words[2 * tile * tile_bytes];

    PaddedTail(const Matrices &m, const uint8_t *from_rows, int64_t num_rows, const uint8_t *from_words, int64_t num_blocks, int64_t left) {
        std::memset(rows, 0, sizeof rows);
        std::memset(words, 0, sizeof words);
        for (int64_t r = 0; r < num_rows; r++) {
            std::memcpy(rows + r * tile_bytes, from_rows + r * m.row_bytes, size_t(4 * left));
        }
        for (int64_t block = 0; block < num_blocks; block++) {
            for (int64_t w = 0; w < left; w++) {
                std::memcpy(words + (block * tile + w) * tile_bytes, from_words + block * m.block_bytes + w * m.word_bytes, tile_bytes);
            }
        }
    }
};

// num_rows: up to 32.
template <bool two_rows, bool two_blocks> POLYHEAD_AMX void square(const Matrices &m, int64_t row, int64_t num_rows, int64_t block) {
    const uint8_t *words = m.words + block * m.block_bytes;
    uint8_t *const sums = m.sums + row * m.sum_row_bytes + block * m.sum_block_bytes;
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (two_rows) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t group = 0; group < m.num_groups; group++) {
        const uint8_t *rows = m.rows + row * m.row_bytes + group * m.group_bytes;
        int64_t w = 0;
        for (; w + tile <= m.num_words; w += tile) {
            add_step<two_rows, two_blocks>(rows, m.row_bytes, words, m.word_bytes, m.block_bytes);
            rows += tile_bytes;
            words += tile * m.word_bytes;
        }
        if (w < m.num_words) {
            const PaddedTail last(m, rows, num_rows, words, two_blocks ? 2 : 1, m.num_words - w);
            add_step<two_rows, two_blocks>(last.rows, tile_bytes, last.words, tile_bytes, tile * tile_bytes);
            words += (m.num_words - w) * m.word_bytes;
        }
    }
    _tile_stored(0, sums, m.sum_row_bytes);
    if constexpr (two_blocks) {
        _tile_stored(1, sums + m.sum_block_bytes, m.sum_row_bytes);
    }
    if constexpr (two_rows) {
        _tile_stored(2, sums + tile * m.sum_row_bytes, m.sum_row_bytes);
    }
    if constexpr (two_rows && two_blocks) {
        _tile_stored(3, sums + tile * m.sum_row_bytes + m.sum_block_bytes, m.sum_row_bytes);
    }
}

} // namespace

POLYHEAD_AMX void multiply(const Matrices &m) {
    int64_t shaped_first = 0, shaped_second = 0;
    for (int64_t row = 0; row < m.num_rows; row += 2 * tile) {
        const int64_t rows = std::min(2 * tile, m.num_rows - row), first = std::min(rows, tile), second = rows - first;
        if (first != shaped_first || second != shaped_second) {
            set_shapes(first, second);
            shaped_first = first;
            shaped_second = second;
        }
        for (int64_t block = 0; block < m.num_blocks; block += 2) {
            const bool two_blocks = block + 1 < m.num_blocks;
            if (second > 0) {
                two_blocks ? square<true, true>(m, row, rows, block) : square<true, false>(m, row, rows, block);
            } else {
                two_blocks ? square<false, true>(m, row, rows, block) : square<false, false>(m, row, rows, block);
            }
        }
    }
    _tile_release();
}

#else

void multiply(const Matrices &) {}

#endif

namespace {

void set(KernelDimension *dim, int64_t min, int64_t extent) {
    dim->min = int32_t(min);
    dim->extent = int32_t(extent);
}

int64_t bytes_between(const KernelBuffer *buffer, int dimension) {
    return int64_t(buffer->dim[dimension].stride) * (buffer->type.bits / 8);
}

// The element at these coordinates.
uint8_t *element(const KernelBuffer *buffer, std::initializer_list<int64_t> at) {
    uint8_t *place = buffer->host;
    int dimension = 0;
    for (const int64_t coordinate : at) {
        place += (coordinate - buffer->dim[dimension].min) * bytes_between(buffer, dimension);
        dimension++;
    }
    return place;
}

// The same region as in another buffer.
void set_as(KernelDimension *dim, const KernelDimension &other) {
    set(dim, other.min, other.extent);
}

// Key/value heads of these heads.
void set_heads(KernelDimension *dim, const KernelDimension &heads, int32_t group_size) {
    const int64_t first = heads.min / group_size, last = (heads.min + heads.extent - 1) / group_size;
    set(dim, first, last - first + 1);
}

// Calls visit(c, qt, h, b) for every tile of queries and chunk of keys in (.., .., c, qt, h, b).
template <class Visit> void for_each_tile(const KernelBuffer *tiles, Visit visit) {
    const auto behind = [&](int dimension) { return tiles->dim[dimension].min + tiles->dim[dimension].extent; };
    for (int64_t b = tiles->dim[5].min; b < behind(5); b++) {
        for (int64_t h = tiles->dim[4].min; h < behind(4); h++) {
            for (int64_t qt = tiles->dim[3].min; qt < behind(3); qt++) {
                for (int64_t c = tiles->dim[2].min; c < behind(2); c++) {
                    visit(c, qt, h, b);
                }
            }
        }
    }
}

// Columns are the queries of a tile, side by side in words and sums.
Matrices of_queries(const KernelBuffer *rows, int row, const KernelBuffer *words, const KernelBuffer *sums) {
    Matrices product{};
    product.row_bytes = bytes_between(rows, row);
    product.word_bytes = bytes_between(words, 1);
    product.sum_row_bytes = bytes_between(sums, 1);
    product.block_bytes = product.sum_block_bytes = 4 * tile;
    product.num_blocks = sums->dim[0].extent / tile;
    product.num_groups = 1;
    return product;
}

} // namespace

} // namespace polyhead::runtime

// Extern stages of Halide: where a buffer has no memory the region is asked for that they read of it.

// rows: (k, [block of inner inputs,] m [, b]); weight: as packed; sums: (column in panel, panel, m, b), of which rows and panels that do
// not exist stay as they are.
extern "C" int polyhead_amx_linear(polyhead::runtime::KernelBuffer *rows, polyhead::runtime::KernelBuffer *weight, int32_t inner,
                                   int32_t outer, int32_t num_rows, int32_t num_panels, polyhead::runtime::KernelBuffer *sums) {
    using namespace polyhead::runtime;
    const int rank = rows->dimensions, m = rank == 4 ? 2 : 1, b = m + 1;
    const auto &out_rows = sums->dim[2];
    const int64_t row = std::max(0, std::min(out_rows.min, num_rows - 1)), behind = std::min(out_rows.min + out_rows.extent, num_rows);
    if (rows->is_bounds_query() || weight->is_bounds_query() || sums->is_bounds_query()) {
        if (rows->is_bounds_query()) {
            set(&rows->dim[0], 0, inner * (rank == 4 ? 1 : outer));
            if (rank == 4) {
                set(&rows->dim[1], 0, outer);
            }
            set(&rows->dim[m], row, behind - row);
            if (b < rank) {
                set(&rows->dim[b], sums->dim[3].min, sums->dim[3].extent);
            }
        }
        if (weight->is_bounds_query()) {
            set(&weight->dim[0], 0, 2 * POLYHEAD_WEIGHT_PANEL);
            set(&weight->dim[1], 0, int64_t(inner) * outer / 2);
            set(&weight->dim[2], 0, num_panels);
        }
        return 0;
    }
    const int64_t panel = sums->dim[1].min, panels = std::min<int64_t>(panel + sums->dim[1].extent, num_panels) - panel;
    // Blocks of inputs that lie one behind the other are one group of words.
    const bool apart = rank == 4 && rows->dim[1].stride != inner;
    Matrices product{};
    product.row_bytes = bytes_between(rows, m);
    product.group_bytes = apart ? bytes_between(rows, 1) : 0;
    product.word_bytes = bytes_between(weight, 1);
    product.block_bytes = bytes_between(weight, 2);
    product.sum_row_bytes = bytes_between(sums, 2);
    product.sum_block_bytes = bytes_between(sums, 1);
    product.num_rows = behind - row;
    product.num_blocks = panels;
    product.num_groups = apart ? outer : 1;
    product.num_words = int64_t(inner) * (apart ? 1 : outer) / 2;
    product.words = element(weight, {0, 0, panel});
    for (int64_t batch = sums->dim[3].min; batch < sums->dim[3].min + sums->dim[3].extent; batch++) {
        product.sums = element(sums, {0, panel, row, batch});
        product.rows = rank == 4 ? element(rows, {0, 0, row, batch}) : rank == 3 ? element(rows, {0, row, batch}) : element(rows, {0, row});
        multiply(product);
    }
    return 0;
}

// keys: (word, row, key/value head, b), words side by side; query: (qi, word, qt, h, b); scores: (qi, kk, c, qt, h, b), of which keys that
// do not exist stay as they are.
extern "C" int polyhead_amx_scores(polyhead::runtime::KernelBuffer *keys, polyhead::runtime::KernelBuffer *query, int32_t kv_tile,
                                   int32_t group_size, int32_t num_keys, int32_t num_words, polyhead::runtime::KernelBuffer *scores) {
    using namespace polyhead::runtime;
    const auto *const of = scores->dim;
    const int64_t first = of[2].min * int64_t(kv_tile) + of[1].min;
    const int64_t behind = (of[2].min + of[2].extent - 1) * int64_t(kv_tile) + of[1].min + of[1].extent;
    if (keys->is_bounds_query() || query->is_bounds_query() || scores->is_bounds_query()) {
        if (keys->is_bounds_query()) {
            const int64_t row = std::max<int64_t>(0, std::min<int64_t>(first, num_keys - 1));
            set(&keys->dim[0], 0, num_words);
            set(&keys->dim[1], row, std::min<int64_t>(behind, num_keys) - row);
            set_heads(&keys->dim[2], of[4], group_size);
            set_as(&keys->dim[3], of[5]);
        }
        if (query->is_bounds_query()) {
            set_as(&query->dim[0], of[0]);
            set(&query->dim[1], 0, num_words);
            for (int i = 2; i < 5; i++) {
                set_as(&query->dim[i], of[i + 1]);
            }
        }
        return 0;
    }
    Matrices product = of_queries(keys, 1, query, scores);
    product.num_words = num_words;
    for_each_tile(scores, [&](int64_t c, int64_t qt, int64_t h, int64_t b) {
        const int64_t kk = of[1].min, row = c * kv_tile + kk;
        product.num_rows = std::min<int64_t>(of[1].extent, num_keys - row);
        product.rows = element(keys, {0, row, h / group_size, b});
        product.words = element(query, {of[0].min, 0, qt, h, b});
        product.sums = element(scores, {of[0].min, kk, c, qt, h, b});
        multiply(product);
    });
    return 0;
}

// values: (d, word of keys, key/value head, b), words side by side; probs: (qi, word of a chunk, c, qt, h, b); sums: (qi, d, c, qt, h, b),
// of which columns that do not exist stay as they are.
extern "C" int polyhead_amx_values(polyhead::runtime::KernelBuffer *values, polyhead::runtime::KernelBuffer *probs, int32_t chunk_words,
                                   int32_t group_size, int32_t num_words, int32_t head_dim_v, polyhead::runtime::KernelBuffer *sums) {
    using namespace polyhead::runtime;
    const auto *const of = sums->dim;
    if (values->is_bounds_query() || probs->is_bounds_query() || sums->is_bounds_query()) {
        if (values->is_bounds_query()) {
            const int64_t word = std::max<int64_t>(0, std::min(of[2].min * int64_t(chunk_words), int64_t(num_words) - 1));
            set(&values->dim[0], 0, head_dim_v);
            set(&values->dim[1], word, std::min((of[2].min + of[2].extent) * int64_t(chunk_words), int64_t(num_words)) - word);
            set_heads(&values->dim[2], of[4], group_size);
            set_as(&values->dim[3], of[5]);
        }
        if (probs->is_bounds_query()) {
            set_as(&probs->dim[0], of[0]);
            set(&probs->dim[1], 0, chunk_words);
            for (int i = 2; i < 6; i++) {
                set_as(&probs->dim[i], of[i]);
            }
        }
        return 0;
    }
    Matrices product = of_queries(values, 0, probs, sums);
    const int64_t d = of[1].min;
    product.num_rows = std::min<int64_t>(of[1].extent, head_dim_v - d);
    for_each_tile(sums, [&](int64_t c, int64_t qt, int64_t h, int64_t b) {
        product.num_words = std::min<int64_t>(chunk_words, num_words - c * chunk_words);
        product.rows = element(values, {d, c * chunk_words, h / group_size, b});
        product.words = element(probs, {of[0].min, 0, c, qt, h, b});
        product.sums = element(sums, {of[0].min, d, c, qt, h, b});
        multiply(product);
    });
    return 0;
}

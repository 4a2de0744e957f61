// Rows of a call's tensors that are asked from memory before they are needed.
#ifndef POLYHEAD_RUNTIME_FETCH_H
#define POLYHEAD_RUNTIME_FETCH_H

#include <cstdint>

namespace polyhead::runtime {
struct KernelBuffer;
}

// What kernels call while they compute the scores of one panel of keys: asks for a few rows of query (of the next tile), of out (of this
// tile) and of the next head's keys and values. Always returns 0. Asking for many rows at once takes as long as waiting for them: a
// processor keeps only some tens of requests. out may be null, and key and value together, where keys lie in pages.
extern "C" int polyhead_fetch(polyhead::runtime::KernelBuffer *query, polyhead::runtime::KernelBuffer *key,
                              polyhead::runtime::KernelBuffer *value, polyhead::runtime::KernelBuffer *out, int32_t head, int32_t batch_row,
                              int32_t group_size, int32_t tile, int32_t tiles, int32_t q_tile, int32_t panel, int32_t panels);

// What kernels call before they read a panel of keys: asks for piece `piece` of `pieces` of a part of a tensor over pairs (mask or bias),
// which is read later: rows first_query.. of `queries`, columns first_key.. of `keys`, of a head. Always returns 0.
extern "C" int polyhead_fetch_pairs(polyhead::runtime::KernelBuffer *pairs, int32_t head, int32_t batch_row, int32_t first_query,
                                    int32_t queries, int32_t first_key, int32_t keys, int32_t piece, int32_t pieces);

namespace polyhead::runtime {

// A call, and a panel of keys that a tile of it reads. A head has `tiles` tiles, a tile `panels` panels.
struct FetchPlace {
    int32_t queries, keys, heads, batch, group_size;
    int32_t q_tile, tiles, panels;
    int32_t batch_row, head, tile, panel;
};

struct FetchRows {
    int32_t batch_row = 0, head = 0, first = 0, end = 0; // no rows where first is end
};

constexpr int32_t most_fetched_keys = 256; // of a head: what its first tile reads first. More would push the present head out of the cache

// False where a panel surely asks for nothing, so that it need not call. Of numbers, or of expressions of Halide.
template <class Number> auto may_ask(const Number &tile, const Number &tiles, const Number &panel, const Number &panels, int32_t q_tile) {
    return panel < q_tile || (tiles - tile) * panels - panel <= most_fetched_keys;
}

// The rows that this panel asks for; the head of keys counts key/value heads.
struct FetchPart {
    FetchRows out, query, keys;
};
FetchPart fetch_part(const FetchPlace &place) noexcept;

// Rows that piece `piece` of `pieces` of a part of a tensor over pairs asks for: of first..first + count - 1 those that exist.
FetchRows pairs_part(int32_t first, int32_t count, int32_t existing, int32_t piece, int32_t pieces) noexcept;

} // namespace polyhead::runtime

#endif

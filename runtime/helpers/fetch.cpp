// Asks memory for rows ahead of their use: with each panel of keys as many as the next tile and the next head need in the end.
//
// The rows that come next are in no order that a processor's own prefetchers find: panels read a few rows of keys side by side, line by
// line, and a head begins at another place than the one before it ends.
#include "fetch.h"
#include "../kernel_interface.h"

#include <algorithm>

namespace polyhead::runtime {
namespace {

constexpr int64_t line = 64; // bytes

// The part of `count` rows that piece `at` of `pieces` asks for; pieces behind the last row ask for none.
FetchRows part_of(int32_t count, int64_t pieces, int64_t at) noexcept {
    const int64_t each = count <= pieces ? 1 : (count + pieces - 1) / pieces;
    FetchRows rows;
    rows.first = static_cast<int32_t>(std::min<int64_t>(at * each, count));
    rows.end = static_cast<int32_t>(std::min<int64_t>(rows.first + each, count));
    return rows;
}

// Rows of a tile's part that exist.
FetchRows in_tile(FetchRows rows, int32_t batch_row, int32_t head, int32_t begin, int32_t queries) noexcept {
    return {batch_row, head, std::min(begin + rows.first, queries), std::min(begin + rows.end, queries)};
}

template <int written, int level> void fetch_bytes(const char *start, int64_t bytes) noexcept {
    asm volatile(""); // GCC takes a function that does no more than this for one without effect, and drops its calls
    for (int64_t at = 0; at < bytes; at += line) {
        __builtin_prefetch(start + at, written, level);
    }
}

template <int written> void fetch(const KernelBuffer &tensor, const FetchRows &rows) noexcept {
    if (rows.first >= rows.end) {
        return;
    }
    const int64_t element = tensor.type.bytes(), bytes = element * tensor.dim[0].extent;
    const char *const head = reinterpret_cast<const char *>(tensor.host) +
                             element * (int64_t(rows.head) * tensor.dim[2].stride + int64_t(rows.batch_row) * tensor.dim[3].stride);
    for (int32_t row = rows.first; row < rows.end; ++row) {
        fetch_bytes<written, 3>(head + element * row * tensor.dim[1].stride, bytes);
    }
}

} // namespace

// Most panels ask for nothing, or for a row or two, and that takes no division.
FetchPart fetch_part(const FetchPlace &p) noexcept {
    FetchPart part;
    const bool last_tile = p.tile + 1 >= p.tiles, last_head = p.head + 1 == p.heads;
    const int32_t head = last_head ? 0 : p.head + 1, batch_row = p.batch_row + (last_head ? 1 : 0);
    const FetchRows rows = part_of(p.q_tile, p.panels, p.panel);
    if (rows.first < rows.end) {
        part.out = in_tile(rows, p.batch_row, p.head, p.tile * p.q_tile, p.queries);
        if (!last_tile) {
            part.query = in_tile(rows, p.batch_row, p.head, (p.tile + 1) * p.q_tile, p.queries);
        } else if (batch_row < p.batch) {
            part.query = in_tile(rows, batch_row, head, 0, p.queries);
        }
    }
    // The last panels of a head ask for keys, so that little is pushed out before it is read. The heads of a group share theirs.
    const int32_t wanted = std::min(p.keys, most_fetched_keys);
    const int64_t all = int64_t(p.tiles) * p.panels, pieces = std::min<int64_t>(all, wanted);
    const int64_t piece = int64_t(p.tile) * p.panels + p.panel - (all - pieces);
    if (wanted > 0 && piece >= 0 && batch_row < p.batch && head % p.group_size == 0) {
        part.keys = part_of(wanted, pieces, piece);
        part.keys.batch_row = batch_row;
        part.keys.head = head / p.group_size;
    }
    return part;
}

FetchRows pairs_part(int32_t first, int32_t count, int32_t existing, int32_t piece, int32_t pieces) noexcept {
    return in_tile(part_of(count, pieces, piece), 0, 0, first, existing);
}

} // namespace polyhead::runtime

int polyhead_fetch(polyhead::runtime::KernelBuffer *query, polyhead::runtime::KernelBuffer *key, polyhead::runtime::KernelBuffer *value,
                   polyhead::runtime::KernelBuffer *out, int32_t head, int32_t batch_row, int32_t group_size, int32_t tile, int32_t tiles,
                   int32_t q_tile, int32_t panel, int32_t panels) {
    using namespace polyhead::runtime;
    const FetchPart part = fetch_part({query->dim[1].extent, key ? key->dim[1].extent : 0, query->dim[2].extent, query->dim[3].extent,
                                       group_size, q_tile, tiles, panels, batch_row, head, tile, panel});
    if (out) {
        fetch<1>(*out, part.out);
    }
    fetch<0>(*query, part.query);
    if (key) {
        fetch<0>(*key, part.keys);
    }
    if (value && value != key) {
        fetch<0>(*value, part.keys);
    }
    return 0;
}

int polyhead_fetch_pairs(polyhead::runtime::KernelBuffer *pairs, int32_t head, int32_t batch_row, int32_t first_query, int32_t queries,
                         int32_t first_key, int32_t keys, int32_t piece, int32_t pieces) {
    using namespace polyhead::runtime;
    const KernelDimension *const dim = pairs->dim;
    const int64_t element = pairs->type.bytes(), row_bytes = element * dim[1].stride;
    const int32_t end = std::min(first_key + keys, dim[0].extent);
    const FetchRows rows = pairs_part(first_query, queries, dim[1].extent, piece, pieces);
    const char *const start = reinterpret_cast<const char *>(pairs->host) +
                              element * (int64_t(head) * dim[2].stride + int64_t(batch_row) * dim[3].stride + first_key);
    for (int32_t row = rows.first; row < rows.end; ++row) {
        fetch_bytes<0, 2>(start + row * row_bytes, element * (end - first_key));
    }
    return 0;
}

// The rules of writing new keys into a cache, for append and for layers with a cache: lengths, and pages.
#ifndef POLYHEAD_RUNTIME_CACHE_RULES_H
#define POLYHEAD_RUNTIME_CACHE_RULES_H

#include <algorithm>
#include <cstdint>

#include <polyhead/c_api.h>

#include "../memory/call_memory.h"
#include "token_rows.h"

namespace polyhead::runtime {

// New keys of each batch row, and where they go: behind the valid ones. Tensors are on the host, their shapes checked.
struct CacheWrite {
    const char *lengths_name;
    const polyhead_tensor *lengths;    // int32 [B]: valid keys before
    TokenRows rows;                    // the tokens that are written
    const polyhead_tensor *page_table; // null: no pages
    const char *pool;                  // "the cache": whose pages the table names
    int64_t pages, page_size, capacity;
    int64_t window_left; // keys before the first new one that queries still see; -1: all

    // From 0 to the capacity, from 0 to the tokens, from 0 to pages - 1: also when another thread changes the tensors.
    int64_t length(int64_t b) const noexcept;
    int64_t count(int64_t b) const noexcept;
    int64_t page(int64_t b, int64_t column) const noexcept;
    // Keys behind the new ones: at most the capacity.
    int64_t end(int64_t length, int64_t count) const noexcept { return std::min(length + count, capacity); }
    int64_t page_count(int64_t keys) const noexcept { return (keys + page_size - 1) / page_size; }
};

// Every batch row has room for its new keys.
bool check_room(const CacheWrite &write, polyhead_status *status) noexcept;
// The table names a page for every key, old or new.
bool check_entries(const CacheWrite &write, polyhead_status *status) noexcept;
// After that: a page that is written belongs to one row, once. Such a write would change what a neighbour sees.
bool check_single_use(const CacheWrite &write, CallMemory *memory, polyhead_status *status) noexcept;

} // namespace polyhead::runtime

#endif

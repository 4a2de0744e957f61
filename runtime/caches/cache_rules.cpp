// The rules of writing new keys into a cache, for append and for layers with a cache.
#include "cache_rules.h"

#include <algorithm>
#include <cstring>

#include "../rules/tensor_rules.h"
#include "../status.h"

namespace polyhead::runtime {
namespace {

// Column of the first page with keys that queries still see.
int64_t first_in_use(const CacheWrite &write, int64_t length) noexcept {
    return write.window_left >= 0 ? std::max<int64_t>(length - write.window_left, 0) / write.page_size : 0;
}

bool refuse_shared_page(int64_t page, int64_t b, int64_t i, polyhead_status *status) noexcept {
    return refuse(status, POLYHEAD_ALIASED, "page_table: page %lld at index %lld, %lld is written, and used a second time: copy it first",
                  static_cast<long long>(page), static_cast<long long>(b), static_cast<long long>(i));
}

bool is_written(const uint8_t *written, int64_t page) noexcept {
    return (written[page / 8] >> page % 8 & 1) != 0;
}

bool check_use(const CacheWrite &write, uint8_t *written, polyhead_status *status) noexcept {
    for (int64_t b = 0; b < write.rows.batch; ++b) {
        const int64_t length = write.length(b), count = write.count(b), end = write.page_count(write.end(length, count));
        for (int64_t i = count > 0 ? length / write.page_size : end; i < end; ++i) {
            const int64_t page = write.page(b, i);
            if (is_written(written, page)) {
                return refuse_shared_page(page, b, i, status);
            }
            written[page / 8] = static_cast<uint8_t>(written[page / 8] | 1 << page % 8);
        }
    }
    for (int64_t b = 0; b < write.rows.batch; ++b) { // those that are only read
        const int64_t length = write.length(b), end = write.count(b) > 0 ? length / write.page_size : write.page_count(length);
        for (int64_t i = first_in_use(write, length); i < end; ++i) {
            const int64_t page = write.page(b, i);
            if (is_written(written, page)) {
                return refuse_shared_page(page, b, i, status);
            }
        }
    }
    return true;
}

} // namespace

int64_t CacheWrite::length(int64_t b) const noexcept {
    return index_at(*lengths, capacity, b);
}

int64_t CacheWrite::count(int64_t b) const noexcept {
    return rows.of(b).count;
}

int64_t CacheWrite::page(int64_t b, int64_t column) const noexcept {
    return index_at(*page_table, pages - 1, b, column);
}

bool check_room(const CacheWrite &write, polyhead_status *status) noexcept {
    for (int64_t b = 0; b < write.rows.batch; ++b) {
        const int64_t length = integer_at(*write.lengths, b),
                      count = write.rows.counts ? integer_at(*write.rows.counts, b) : write.count(b);
        if (count < 0 || count > write.rows.tokens) {
            return refuse(status, POLYHEAD_BAD_VALUE, "counts: value %lld at index %lld of dimension 0, expected 0 to %lld (tokens of key)",
                          static_cast<long long>(count), static_cast<long long>(b), static_cast<long long>(write.rows.tokens));
        }
        if (length < 0 || length > write.capacity - count) {
            return refuse(status, POLYHEAD_BAD_VALUE,
                          "%s: value %lld at index %lld of dimension 0, expected 0 to %lld (capacity %lld, %lld new keys)",
                          write.lengths_name, static_cast<long long>(length), static_cast<long long>(b),
                          static_cast<long long>(write.capacity - count), static_cast<long long>(write.capacity),
                          static_cast<long long>(count));
        }
    }
    return true;
}

bool check_entries(const CacheWrite &write, polyhead_status *status) noexcept {
    for (int64_t b = 0; b < write.rows.batch; ++b) {
        const int64_t count = write.page_count(write.end(write.length(b), write.count(b)));
        if (!check_page_row(*write.page_table, b, count, write.pages, write.pool, status)) {
            return false;
        }
    }
    return true;
}

bool check_single_use(const CacheWrite &write, CallMemory *memory, polyhead_status *status) noexcept {
    if (write.pages == 0) { // then no row has keys
        return true;
    }
    const int64_t bytes = write.pages / 8 + 1;
    CallBlock block;
    if (!block.take(memory, bytes)) {
        return refuse(status, POLYHEAD_OUT_OF_MEMORY, "%lld bytes for a bit per page could not be allocated",
                      static_cast<long long>(bytes));
    }
    auto *const written = reinterpret_cast<uint8_t *>(block.get());
    std::memset(written, 0, static_cast<size_t>(bytes));
    return check_use(write, written, status);
}

} // namespace polyhead::runtime

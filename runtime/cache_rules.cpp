// The rules of writing new keys into a cache, for append and for layers with a cache.
#include "cache_rules.h"

#include <algorithm>
#include <cstring>

#include "memory.h"
#include "status.h"
#include "tensor_rules.h"

namespace polyhead::runtime {
namespace {

int32_t page_of(const CacheWrite &write, int64_t b, int64_t column) noexcept {
    return integer_at(*write.page_table, b, column);
}

// Column of the first page with keys that queries still see.
int64_t first_in_use(const CacheWrite &write, int64_t length) noexcept {
    return write.window_left >= 0 ? std::max<int64_t>(length - write.window_left, 0) / write.page_size : 0;
}

bool refuse_shared(const CacheWrite &write, int64_t b, int64_t i, polyhead_status *status) noexcept {
    return refuse(status, POLYHEAD_ALIASED, "page_table: page %d at index %lld, %lld is written, and used a second time: copy it first",
                  page_of(write, b, i), static_cast<long long>(b), static_cast<long long>(i));
}

bool check_entries(const CacheWrite &write, polyhead_status *status) noexcept {
    for (int64_t b = 0; b < write.batch; ++b) {
        const int64_t count = write.page_count(write.length(b) + write.count(b));
        if (!check_page_row(*write.page_table, b, count, write.pages, write.pool, status)) {
            return false;
        }
    }
    return true;
}

bool is_written(const uint8_t *written, int32_t page) noexcept {
    return (written[page / 8] >> page % 8 & 1) != 0;
}

bool check_single_use(const CacheWrite &write, uint8_t *written, polyhead_status *status) noexcept {
    for (int64_t b = 0; b < write.batch; ++b) {
        const int64_t length = write.length(b), end = write.page_count(length + write.count(b));
        for (int64_t i = write.count(b) > 0 ? length / write.page_size : end; i < end; ++i) {
            const int32_t page = page_of(write, b, i);
            if (is_written(written, page)) {
                return refuse_shared(write, b, i, status);
            }
            written[page / 8] = static_cast<uint8_t>(written[page / 8] | 1 << page % 8);
        }
    }
    for (int64_t b = 0; b < write.batch; ++b) { // those that are only read
        const int64_t length = write.length(b), end = write.count(b) > 0 ? length / write.page_size : write.page_count(length);
        for (int64_t i = first_in_use(write, length); i < end; ++i) {
            if (is_written(written, page_of(write, b, i))) {
                return refuse_shared(write, b, i, status);
            }
        }
    }
    return true;
}

} // namespace

int64_t CacheWrite::length(int64_t b) const noexcept {
    return integer_at(*lengths, b);
}

int64_t CacheWrite::count(int64_t b) const noexcept {
    return counts ? integer_at(*counts, b) : tokens;
}

bool check_room(const CacheWrite &write, polyhead_status *status) noexcept {
    for (int64_t b = 0; b < write.batch; ++b) {
        const int64_t length = write.length(b), count = write.count(b);
        if (count < 0 || count > write.tokens) {
            return refuse(status, POLYHEAD_BAD_VALUE, "counts: value %lld at index %lld of dimension 0, expected 0 to %lld (tokens of key)",
                          static_cast<long long>(count), static_cast<long long>(b), static_cast<long long>(write.tokens));
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

bool check_written_pages(const CacheWrite &write, polyhead_status *status) noexcept {
    if (!check_entries(write, status)) {
        return false;
    }
    const size_t bytes = static_cast<size_t>(write.pages / 8 + 1);
    auto *const written = static_cast<uint8_t *>(take_memory(bytes));
    if (!written) {
        return refuse(status, POLYHEAD_OUT_OF_MEMORY, "%zu bytes for a bit per page could not be allocated", bytes);
    }
    std::memset(written, 0, bytes);
    const bool good = check_single_use(write, written, status);
    give_memory(written);
    return good;
}

} // namespace polyhead::runtime

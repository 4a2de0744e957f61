// Appends keys and values to a cache: first every check, then the writes.
#include <cstring>

#include "cache_rules.h"
#include "floating_point.h"
#include "head_rows.h"

namespace polyhead::runtime {
namespace {

// A cache and what is appended to it.
class Append {
public:
    Append(const polyhead_cache &cache, const polyhead_new_keys &keys) noexcept
        : cache_(cache), keys_(keys), paged_(!absent(cache.page_table)), has_value_(!absent(cache.value)) {}

    bool check(polyhead_status *status) noexcept {
        return check_cache(status) && check_new(status) && check_room(written(), status) &&
               Rotation::check(keys_.rotation, batch_, tokens_, keys_.key.shape[3], &keys_.lengths, counts(), status) &&
               check_aliases(status) && (!paged_ || check_written_pages(written(), status));
    }

    void run() const noexcept {
        const Rotation rotation(keys_.rotation, &keys_.lengths);
        const int64_t heads = keys_.key.shape[1];
        const int64_t bytes = tokens_ * heads * batch_ * (keys_.key.shape[3] + (has_value_ ? keys_.value.shape[3] : 0)) * 4;
        for_each_row(batch_ * heads, bytes, [&](int64_t i) {
            const int64_t b = i / heads, h = i % heads, length = integer_at(keys_.lengths, b);
            for (int64_t t = 0; t < count_of(b); ++t) {
                write(keys_.key, cache_.key, b, h, t, length + t, rotation.rotates() ? &rotation : nullptr);
                if (has_value_) {
                    write(keys_.value, cache_.value, b, h, t, length + t, nullptr);
                }
            }
        });
    }

private:
    const polyhead_tensor *counts() const noexcept { return absent(keys_.counts) ? nullptr : &keys_.counts; }
    int64_t count_of(int64_t b) const noexcept { return counts() ? integer_at(*counts(), b) : tokens_; }
    int32_t page_of(int64_t b, int64_t column) const noexcept { return integer_at(cache_.page_table, b, column); }

    void write(const polyhead_tensor &from, const polyhead_tensor &to, int64_t b, int64_t h, int64_t t, int64_t position,
               const Rotation *rotation) const noexcept {
        const int64_t count = from.shape[3];
        const char *source = head_row(from, b, h, t);
        char *target = paged_ ? head_row(to, page_of(b, position / page_size_), h, position % page_size_) : head_row(to, b, h, position);
        if (!rotation && from.dtype == to.dtype) {
            std::memcpy(target, source, static_cast<size_t>(count * dtype_bytes(to.dtype)));
            return;
        }
        float floats[most_head_dim];
        load_floats(source, from.dtype, count, floats);
        if (rotation) {
            rotation->apply(floats, b, t);
        }
        store_floats(floats, count, to.dtype, target);
    }

    bool check_cache(polyhead_status *status) noexcept {
        const polyhead_tensor &key = cache_.key, &value = cache_.value, &table = cache_.page_table;
        if (!check_struct("cache", cache_.size, sizeof cache_, status) || !check_struct("new keys", keys_.size, sizeof keys_, status) ||
            !check_storage("cache key", key, status) || !check_host_tensor({"cache key", &key, key.dtype, Role::output, 4, {}}, status) ||
            (has_value_ && !check_host_tensor({"cache value",
                                               &value,
                                               key.dtype,
                                               Role::output,
                                               4,
                                               {{key.shape[0], "cache key"}, {key.shape[1], "cache key"}, {key.shape[2], "cache key"}, {}}},
                                              status)) ||
            (paged_ && !check_host_tensor({"page_table", &table, POLYHEAD_I32, Role::lengths, 2, {}}, status))) {
            return false;
        }
        for (const polyhead_tensor *t : {&key, &value}) {
            if (!absent(*t) && t->shape[3] > most_head_dim) {
                return refuse(status, POLYHEAD_WRONG_SHAPE, "cache %s: extent %lld of dimension 3, expected at most %lld",
                              t == &key ? "key" : "value", static_cast<long long>(t->shape[3]), static_cast<long long>(most_head_dim));
            }
        }
        page_size_ = paged_ ? key.shape[2] : 1;
        if (paged_ && page_size_ == 0) {
            return refuse(status, POLYHEAD_WRONG_SHAPE, "cache key: extent 0 of dimension 2, expected at least 1 key in a page");
        }
        capacity_ = paged_ ? table.shape[1] * page_size_ : key.shape[2];
        return true;
    }

    bool check_new(polyhead_status *status) noexcept {
        const polyhead_tensor &key = cache_.key;
        const char *rows = paged_ ? "page_table" : "cache key";
        const Extent batch{paged_ ? cache_.page_table.shape[0] : key.shape[0], rows}, heads{key.shape[1], "cache key"};
        TensorRule rule{"key", &keys_.key, key.dtype, Role::input, 4, {batch, heads, {}, {key.shape[3], "cache key"}}, true};
        if (!check_host_tensor(rule, status)) {
            return false;
        }
        batch_ = batch.extent;
        tokens_ = keys_.key.shape[2];
        if (!has_value_ && !absent(keys_.value)) {
            return refuse(status, POLYHEAD_WRONG_OPERATION, "value: given, expected none, because the cache has no value");
        }
        if (keys_.has_window && keys_.window_left < 0) {
            return refuse(status, POLYHEAD_BAD_VALUE, "window_left: value %d, expected at least 0", keys_.window_left);
        }
        rule = {"value", &keys_.value, key.dtype, Role::input, 4, {batch, heads, {tokens_, "key"}, {cache_.value.shape[3], "cache value"}},
                true};
        return (!has_value_ || check_host_tensor(rule, status)) &&
               check_host_tensor({"lengths", &keys_.lengths, POLYHEAD_I32, Role::lengths, 1, {batch}}, status) &&
               (absent(keys_.counts) || check_host_tensor({"counts", &keys_.counts, POLYHEAD_I32, Role::lengths, 1, {batch}}, status));
    }

    bool check_aliases(polyhead_status *status) const noexcept {
        const polyhead_rotation &r = keys_.rotation;
        const struct {
            const char *name;
            const polyhead_tensor &tensor;
        } inputs[] = {{"key", keys_.key},  {"value", keys_.value}, {"lengths", keys_.lengths}, {"counts", keys_.counts},
                      {"rope_cos", r.cos}, {"rope_sin", r.sin},    {"positions", r.positions}, {"page_table", cache_.page_table}};
        for (const polyhead_tensor *output : {&cache_.key, &cache_.value}) {
            const char *name = output == &cache_.key ? "cache key" : "cache value";
            const MemoryRange written = memory_of(*output);
            for (const auto &input : inputs) { // key and value of a cache may be interleaved
                if (!check_apart(name, written, input.name, memory_of(input.tensor), status)) {
                    return false;
                }
            }
        }
        return true;
    }

    CacheWrite written() const noexcept {
        return {"lengths",
                &keys_.lengths,
                counts(),
                paged_ ? &cache_.page_table : nullptr,
                "the cache",
                batch_,
                tokens_,
                cache_.key.shape[0],
                page_size_,
                capacity_,
                keys_.has_window ? keys_.window_left : int64_t(-1)};
    }

    const polyhead_cache &cache_;
    const polyhead_new_keys &keys_;
    const bool paged_, has_value_;
    int64_t page_size_ = 1, capacity_ = 0, batch_ = 0, tokens_ = 0;
};

bool check_page(const char *name, int32_t page, int64_t pages, polyhead_status *status) noexcept {
    return (page >= 0 && page < pages) || refuse(status, POLYHEAD_BAD_VALUE, "%s: page %d, expected 0 to %lld (pages of the cache)", name,
                                                 page, static_cast<long long>(pages - 1));
}

} // namespace
} // namespace polyhead::runtime

polyhead_status polyhead_append(const polyhead_cache *cache, const polyhead_new_keys *keys) {
    using namespace polyhead::runtime;
    const DefinedArithmetic arithmetic;
    polyhead_status status = success();
    if (!cache || !keys) {
        refuse(&status, POLYHEAD_NULL_POINTER, "%s: null pointer, expected a struct", cache ? "keys" : "cache");
        return status;
    }
    Append append(*cache, *keys);
    if (append.check(&status)) {
        append.run();
    }
    return status;
}

polyhead_status polyhead_copy_page(const polyhead_cache *cache, int32_t from, int32_t to) {
    using namespace polyhead::runtime;
    polyhead_status status = success();
    if (!cache) {
        refuse(&status, POLYHEAD_NULL_POINTER, "cache: null pointer, expected a struct");
        return status;
    }
    if (!check_struct("cache", cache->size, sizeof *cache, &status)) {
        return status;
    }
    const polyhead_tensor &key = cache->key, &value = cache->value;
    for (const polyhead_tensor *t : {&key, &value}) {
        const char *name = t == &key ? "cache key" : "cache value";
        const Extent pages{t == &key ? any_extent : key.shape[0], "cache key"};
        if ((t == &value && absent(*t)) ||
            (check_storage(name, *t, &status) && check_host_tensor({name, t, t->dtype, Role::output, 4, {pages}}, &status) &&
             check_page("from", from, t->shape[0], &status) && check_page("to", to, t->shape[0], &status))) {
            continue;
        }
        return status;
    }
    for (const polyhead_tensor *t : {&key, &value}) {
        for (int64_t row = 0; !absent(*t) && from != to && row < t->shape[1] * t->shape[2]; ++row) {
            const int64_t h = row / t->shape[2], n = row % t->shape[2];
            std::memcpy(head_row(*t, to, h, n), head_row(*t, from, h, n), static_cast<size_t>(t->shape[3] * dtype_bytes(t->dtype)));
        }
    }
    return status;
}

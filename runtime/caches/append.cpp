// Appends keys and values to a cache: first every check, then the writes.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "../call/call_guard.h"
#include "../call/resources.h"
#include "../rules/served.h"
#include "../rules/shared_elements.h"
#include "../rules/validate_parts.h"
#include "../threads/floating_point.h"
#include "../threads/for_each_row.h"
#include "cache_rules.h"
#include "cache_tensors.h"
#include "head_norm.h"
#include "head_rows.h"

namespace polyhead::runtime {
namespace {

// What becomes of a new row before it is stored.
struct Change {
    HeadNorm norm;
    const Rotation *rotation; // null: none
    bool none() const noexcept { return !norm.normalizes() && !rotation; }
    const char *after() const noexcept {
        return none() ? "" : !rotation ? " after its norm" : norm.normalizes() ? " after its norm and its rotation" : " after its rotation";
    }
};

// A cache and what is appended to it.
class Append {
public:
    Append(const polyhead_cache &cache, const polyhead_new_keys &keys) noexcept
        : cache_(cache), keys_(keys), paged_(!absent(cache.page_table)), has_value_(!absent(cache.value)),
          packed_(!absent(keys.cu_seqlens)) {}

    // First the shapes. What the tensors hold is of no account where there is nothing to write.
    bool check(const polyhead_tensor &scratch, CallMemory *memory, polyhead_status *status) noexcept {
        return check_cache(status) && check_new(status) && check_norms(status) &&
               Rotation::check(keys_.rotation, sections(), rows(), keys_.key.shape[3], status) && check_aliases(scratch, status) &&
               (no_new_entries() || check_contents(memory, status));
    }

    // Integers may change since they were checked: they are read once for some tokens, and stay inside of the tensors.
    void run(Workers *workers) const noexcept {
        const CacheWrite write = written();
        if (no_new_entries() || write.capacity == 0 || write.pages == 0) {
            return;
        }
        const Rotation rotation = this->rotation();
        const Writing writing{write, of_key(rotation), of_value()};
        const int64_t heads = keys_.key.shape[1];
        const int64_t token_bytes = heads * (keys_.key.shape[3] + (has_value_ ? keys_.value.shape[3] : 0)) * 4;
        if (packed_) { // sequences have any lengths: a piece of the work is some tokens of all heads
            const int64_t piece = std::max<int64_t>(piece_bytes / token_bytes, 1);
            for_each_row((tokens_ + piece - 1) / piece, tokens_ * token_bytes, workers,
                         [&](int64_t i) { put_piece(writing, i * piece, std::min((i + 1) * piece, tokens_)); });
            return;
        }
        for_each_row(batch_ * heads, batch_ * tokens_ * token_bytes, workers, [&](int64_t i) {
            const TokenRow row = write.rows.of(i / heads);
            put_tokens(writing, i / heads, {i % heads, i % heads + 1}, row, {0, row.count});
        });
    }

private:
    static constexpr int64_t piece_bytes = 1 << 16; // several tokens of most models
    // A token of head h goes to row `row` of a page, or of a batch row of the cache.
    struct NewRow {
        Token token;
        int64_t h, block, row;
    };
    // first .. end - 1
    struct Range {
        int64_t first, end;
    };
    struct Writing {
        const CacheWrite &to;
        const Change key, value;
    };

    bool is_int8() const noexcept { return cache_.key.dtype == POLYHEAD_I8; }
    TokenRows rows() const noexcept {
        return {batch_, tokens_, absent(keys_.counts) ? nullptr : &keys_.counts, packed_ ? &keys_.cu_seqlens : nullptr};
    }
    contract::RopeSections sections() const noexcept { return sections_of(keys_.sections); }
    Rotation rotation() const noexcept { return Rotation(keys_.rotation, sections(), &keys_.lengths); }
    bool no_new_entries() const noexcept { return empty(keys_.key) && (!has_value_ || empty(keys_.value)); }
    int64_t page_rows() const noexcept { return paged_ ? page_size_ : capacity_; }

    HeadNorm key_norm() const noexcept { return {keys_.key_norm, keys_.key_norm_weight, keys_.key_norm_bias, keys_.norm_epsilon}; }
    Change of_key(const Rotation &rotation) const noexcept { return {key_norm(), rotation.rotates() ? &rotation : nullptr}; }
    Change of_value() const noexcept {
        static constexpr polyhead_tensor none{};
        return {{keys_.value_norm ? POLYHEAD_RMS_NORM : POLYHEAD_NO_NORM, none, none, keys_.norm_epsilon}, nullptr};
    }

    // What the tensors hold.
    bool check_contents(CallMemory *memory, polyhead_status *status) const noexcept {
        return (!packed_ || check_begins("cu_seqlens", keys_.cu_seqlens, "key", tokens_, status)) && check_room(written(), status) &&
               rotation().check_positions(rows(), status) && (!is_int8() || check_finite(status)) &&
               (!paged_ || (check_entries(written(), status) && check_single_use(written(), memory, status)));
    }

    // A new row as floats, changed.
    static void load(const polyhead_tensor &from, const Token &token, int64_t h, const Change &change, float *floats) noexcept {
        load_floats(head_row(from, token.outer, h, token.at), from.dtype, from.shape[3], floats);
        if (change.norm.normalizes()) {
            change.norm.apply(floats, from.shape[3]);
        }
        if (change.rotation) {
            change.rotation->apply(floats, from.shape[3], token);
        }
    }

    // Packed tokens first .. end - 1 of all heads, which belong to one batch row or to several.
    void put_piece(const Writing &writing, int64_t first, int64_t end) const noexcept {
        for (int64_t b = writing.to.rows.row_at(first); b < batch_; ++b) {
            const TokenRow row = writing.to.rows.of(b);
            if (row.first >= end) {
                break;
            }
            put_tokens(writing, b, {0, keys_.key.shape[1]}, row,
                       {std::max<int64_t>(first - row.first, 0), std::min(end - row.first, row.count)});
        }
    }

    // Some of the tokens of batch row b, of some heads.
    void put_tokens(const Writing &writing, int64_t b, const Range &heads, const TokenRow &tokens, const Range &range) const noexcept {
        const CacheWrite &to = writing.to;
        const int64_t length = to.length(b), end = to.end(length, range.end);
        for (int64_t h = heads.first; h < heads.end; ++h) { // the rows of a head lie side by side
            for (int64_t position = length + range.first; position < end; ++position) {
                const NewRow row{to.rows.token(b, tokens, position - length), h, paged_ ? to.page(b, position / page_size_) : b,
                                 position % page_rows()};
                put(row, keys_.key, cache_.key, cache_.key_scales, writing.key);
                if (has_value_) {
                    put(row, keys_.value, cache_.value, cache_.value_scales, writing.value);
                }
            }
        }
    }

    void put(const NewRow &row, const polyhead_tensor &from, const polyhead_tensor &to, const polyhead_tensor &scales,
             const Change &change) const noexcept {
        const int64_t count = from.shape[3];
        if (count == 0) {
            return;
        }
        char *target = head_row(to, row.block, row.h, row.row);
        if (change.none() && from.dtype == to.dtype) {
            std::memcpy(target, head_row(from, row.token.outer, row.h, row.token.at), static_cast<size_t>(count * dtype_bytes(to.dtype)));
            return;
        }
        float floats[most_head_dim];
        load(from, row.token, row.h, change, floats);
        if (is_int8()) {
            store_scaled(floats, count, scales.shape[3], reinterpret_cast<int8_t *>(target),
                         reinterpret_cast<float *>(head_row(scales, row.block, row.h, row.row)));
        } else {
            store_floats(floats, count, to.dtype, target);
        }
    }

    // No scale makes NaN or infinity of an integer.
    bool check_finite(polyhead_status *status) const noexcept {
        const Rotation rotation = this->rotation();
        return check_finite("key", keys_.key, of_key(rotation), status) &&
               (!has_value_ || check_finite("value", keys_.value, of_value(), status));
    }
    bool check_finite(const char *name, const polyhead_tensor &from, const Change &change, polyhead_status *status) const noexcept {
        const int64_t heads = empty(from) ? 0 : from.shape[1];
        for (int64_t i = 0; i < batch_ * heads; ++i) {
            const int64_t b = i / heads, h = i % heads;
            const TokenRow row = rows().of(b);
            for (int64_t t = 0; t < row.count; ++t) {
                float floats[most_head_dim];
                load(from, rows().token(b, row, t), h, change, floats);
                const float *const end = floats + from.shape[3];
                const float *const found =
                    std::find_if_not(static_cast<const float *>(floats), end, [](float x) { return std::isfinite(x); });
                if (found != end) {
                    return refuse(status, POLYHEAD_BAD_VALUE,
                                  "%s: value %s of token %lld, head %lld, batch row %lld%s, expected finite numbers for a cache of int8",
                                  name, NumberText(*found).text, static_cast<long long>(t), static_cast<long long>(h),
                                  static_cast<long long>(b), change.after());
                }
            }
        }
        return true;
    }

    bool check_cache(polyhead_status *status) noexcept {
        const polyhead_tensor &key = cache_.key, &value = cache_.value, &table = cache_.page_table;
        if (!check_storage("cache key", key, status, true) ||
            !check_host_tensor({"cache key", &key, key.dtype, Role::output, 4, {}}, status) ||
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
        if (!check_scales_of("key", key, cache_.key_scales, status) || !check_scales_of("value", value, cache_.value_scales, status)) {
            return false;
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
        if (is_int8() && (!check_storage("key", keys_.key, status) || !check_storage("value", keys_.value, status))) {
            return false;
        }
        const char *rows = paged_ ? "page_table" : "cache key";
        const int32_t key_type = is_int8() ? keys_.key.dtype : key.dtype, value_type = is_int8() ? keys_.value.dtype : key.dtype;
        const Extent batch{paged_ ? cache_.page_table.shape[0] : key.shape[0], rows}, heads{key.shape[1], "cache key"};
        const Extent outer = packed_ ? Extent{1, "calls with packed tokens"} : batch;
        TensorRule rule{"key", &keys_.key, key_type, Role::input, 4, {outer, heads, {}, {key.shape[3], "cache key"}}, true};
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
        rule = {"value", &keys_.value, value_type, Role::input, 4, {outer, heads, {tokens_, "key"}, {cache_.value.shape[3], "cache value"}},
                true};
        return (!has_value_ || check_host_tensor(rule, status)) &&
               check_host_tensor({"lengths", &keys_.lengths, POLYHEAD_I32, Role::lengths, 1, {batch}}, status) &&
               (packed_ ? check_packed(status)
                        : absent(keys_.counts) ||
                              check_host_tensor({"counts", &keys_.counts, POLYHEAD_I32, Role::lengths, 1, {batch}}, status));
    }

    bool check_packed(polyhead_status *status) const noexcept {
        if (!absent(keys_.counts)) {
            return refuse(status, POLYHEAD_WRONG_OPERATION,
                          "counts: given, expected none, because cu_seqlens says how many tokens are appended");
        }
        return check_host_tensor({"cu_seqlens", &keys_.cu_seqlens, POLYHEAD_I32, Role::lengths, 1, {{batch_ + 1, nullptr}}}, status);
    }

    bool check_norms(polyhead_status *status) const noexcept {
        const int32_t value_norm = keys_.value_norm;
        if (value_norm != 0 && value_norm != 1) {
            return refuse(status, POLYHEAD_BAD_VALUE, "value_norm: value %d, expected 0 or 1", value_norm);
        }
        if (value_norm && !has_value_) {
            return refuse(status, POLYHEAD_WRONG_OPERATION, "value_norm: value 1, expected 0, because the cache has no value");
        }
        return key_norm().check({"key_norm", "key_norm_weight", "key_norm_bias"}, keys_.key.shape[3], status) &&
               check_epsilon("norm_epsilon", keys_.norm_epsilon, key_norm().normalizes() || value_norm, status);
    }

    bool check_aliases(const polyhead_tensor &scratch, polyhead_status *status) const noexcept {
        const polyhead_rotation &r = keys_.rotation;
        const struct {
            const char *name;
            const polyhead_tensor &tensor;
        } inputs[] = {{"key", keys_.key},
                      {"value", keys_.value},
                      {"lengths", keys_.lengths},
                      {"counts", keys_.counts},
                      {"cu_seqlens", keys_.cu_seqlens},
                      {"key_norm_weight", keys_.key_norm_weight},
                      {"key_norm_bias", keys_.key_norm_bias},
                      {"rope_cos", r.cos},
                      {"rope_sin", r.sin},
                      {"positions", r.positions},
                      {"page_table", cache_.page_table}};
        for (const auto &input : inputs) {
            if (!check_apart("scratch", scratch, input.name, input.tensor, Apart::ranges, status)) {
                return false;
            }
        }
        for (const CacheTensor &output : tensors_of(cache_)) {
            if (!check_apart("scratch", scratch, output.name, *output.tensor, Apart::ranges, status)) {
                return false;
            }
            for (const auto &input : inputs) {
                if (!check_apart(output.name, *output.tensor, input.name, input.tensor, Apart::elements, status)) {
                    return false;
                }
            }
        }
        return check_tensors_apart(cache_, status);
    }

    CacheWrite written() const noexcept {
        return {"lengths",
                &keys_.lengths,
                rows(),
                paged_ ? &cache_.page_table : nullptr,
                "the cache",
                cache_.key.shape[0],
                page_size_,
                capacity_,
                keys_.has_window ? keys_.window_left : int64_t(-1)};
    }

    const polyhead_cache &cache_;
    const polyhead_new_keys &keys_;
    const bool paged_, has_value_, packed_;
    int64_t page_size_ = 1, capacity_ = 0, batch_ = 0, tokens_ = 0;
};

// Room for the structs of an append, where they are of another version.
struct AppendRoom {
    polyhead_cache cache;
    polyhead_new_keys keys;
};

// The structs as this library knows them. False and a status when they are refused.
bool read_append(const polyhead_cache **cache, const polyhead_new_keys **keys, AppendRoom *room, polyhead_status *status) noexcept {
    if (!*cache || !*keys) {
        return refuse(status, POLYHEAD_NULL_POINTER, "%s: null pointer, expected a struct", *cache ? "keys" : "cache");
    }
    *cache = served(**cache, &room->cache, {"cache", of_struct, of_headers}, status);
    *keys = *cache ? served(**keys, &room->keys, {"new keys", of_struct, of_headers}, status) : nullptr;
    return *keys != nullptr;
}

} // namespace
} // namespace polyhead::runtime

polyhead_status polyhead_append(const polyhead_cache *cache, const polyhead_new_keys *keys) {
    return polyhead_append_in(nullptr, cache, keys);
}

polyhead_status polyhead_append_in(const polyhead_workspace *given_workspace, const polyhead_cache *cache, const polyhead_new_keys *keys) {
    using namespace polyhead::runtime;
    const CallGuard guard;
    const DefinedArithmetic arithmetic;
    polyhead_status status = success();
    AppendRoom room;
    GivenWorkspace workspace;
    if (!read_append(&cache, &keys, &room, &status) || !workspace.read(given_workspace, &status)) {
        return status;
    }
    Workers workers(workspace.executor);
    CallMemory memory(workspace.scratch, workspace.scratch_bytes);
    Append append(*cache, *keys);
    if (append.check(scratch_tensor(workspace.scratch, workspace.scratch_bytes), &memory, &status)) {
        append.run(&workers);
    }
    if (memory.too_small()) {
        say_expected_scratch(workspace.scratch_bytes, memory.most(), &status);
    }
    say_fault(workers, &status);
    return status;
}

int64_t polyhead_append_scratch_bytes(const polyhead_cache *cache, const polyhead_new_keys *keys, polyhead_status *status) {
    using namespace polyhead::runtime;
    const CallGuard guard;
    const DefinedArithmetic arithmetic;
    polyhead_status found = success();
    AppendRoom room;
    CallMemory memory;
    if (read_append(&cache, &keys, &room, &found)) {
        Append(*cache, *keys).check(scratch_tensor(nullptr, 0), &memory, &found);
    }
    if (status) {
        *status = found;
    }
    return found.code == POLYHEAD_OK ? memory.most() : 0;
}

// Functions around kernels in C++: appending to a cache of keys and values, rotation, norms, merging of partial results. c_cache.h
// says what they do and what they refuse. They run on the CPU, on tensors in host memory.
#ifndef POLYHEAD_CACHE_H
#define POLYHEAD_CACHE_H

#include <optional>
#include <utility>

#include <polyhead/c_cache.h>
#include <polyhead/polyhead.h>

namespace polyhead {

// Pairs of each of two or three directions, as polyhead_rope_sections says which.
struct Sections : polyhead_sections {
    Sections() noexcept : polyhead_sections{} {}
    Sections(int32_t kind, int32_t first, int32_t second, int32_t third = 0) noexcept : polyhead_sections{kind, first, second, third} {}
};

// cos and sin f32 [P, rotary_dim / 2]; positions int32 [B] of first tokens, or [B,T], or with sections [B,S,T].
struct Rotation {
    TensorView cos, sin, positions;
    bool interleaved = false; // pairs (2i, 2i + 1); otherwise (i, i + rotary_dim / 2)
    bool trailing = false;    // of the trailing rotary_dim entries; otherwise of the leading ones
    Sections sections{};      // none: a token has one position
    polyhead_rotation raw() const noexcept {
        const int32_t leading = interleaved ? POLYHEAD_ROPE_INTERLEAVED : POLYHEAD_ROPE_HALF_SPLIT,
                      kind = !trailing     ? leading
                             : interleaved ? POLYHEAD_ROPE_INTERLEAVED_TRAILING
                                           : POLYHEAD_ROPE_HALF_SPLIT_TRAILING;
        return {cos.rank == 0 && sin.rank == 0 && positions.rank == 0 ? int32_t(POLYHEAD_NO_ROPE) : kind, cos, sin, positions};
    }
};

// Memory of the caller: [B,H_kv,capacity,d], or pages [pages,H_kv,page_size,d] with page_table int32 [B,max_pages]. If key and value are
// int8, the scales are f32 [B,H_kv,capacity,n] or [pages,H_kv,page_size,n], where n is 1, d / 32 or d / 64.
struct Cache {
    MutableTensorView key, value;
    TensorView page_table;
    MutableTensorView key_scales, value_scales;
    polyhead_cache raw() const noexcept {
        polyhead_cache cache = polyhead_cache_of(key, value, page_table);
        cache.key_scales = key_scales;
        cache.value_scales = value_scales;
        return cache;
    }
};

struct NewKeys {
    TensorView key, value; // [B,H_kv,T,d]
    TensorView lengths;    // int32 [B], valid before
    TensorView counts;     // int32 [B]; absent: all T tokens
    Rotation rotation;     // of the keys; none when it has no tables
    // Queries see no key further back: pages with older keys only may be written again.
    std::optional<int32_t> window_left;
    // int32 [B+1] on the host: packed tokens of B batch rows. key and value are then [1,H_kv,total,d], positions [B] or [1,total] (with
    // sections [1,S,total]), and there are no counts.
    TensorView cu_seqlens;
    polyhead_norm key_norm = POLYHEAD_NO_NORM; // of each row of the keys, before the rotation
    TensorView key_norm_weight, key_norm_bias; // [d]
    float norm_epsilon = 0;                    // above 0 where something is normalized
    bool value_norm = false;                   // each row of the values becomes x / sqrt(mean(x^2) + norm_epsilon)
    polyhead_new_keys raw() const noexcept {
        polyhead_new_keys keys = polyhead_new_keys_of();
        keys.key = key;
        keys.value = value;
        keys.lengths = lengths;
        keys.counts = counts;
        keys.rotation = rotation.raw();
        keys.has_window = window_left.has_value();
        keys.window_left = window_left.value_or(0);
        keys.sections = rotation.sections;
        keys.cu_seqlens = cu_seqlens;
        keys.key_norm = key_norm;
        keys.key_norm_weight = key_norm_weight;
        keys.key_norm_bias = key_norm_bias;
        keys.norm_epsilon = norm_epsilon;
        keys.value_norm = value_norm;
        return keys;
    }
};

// Writes token t of batch row b to position lengths[b] + t.
inline Status append(const Cache &cache, const NewKeys &keys, const Workspace &workspace = {}) noexcept {
    const polyhead_cache to = cache.raw();
    const polyhead_new_keys from = keys.raw();
    const polyhead_workspace in = workspace.raw();
    return Status(polyhead_append_in(&in, &to, &from));
}
// Scratch memory that it takes; -1 when the arguments are refused.
inline int64_t append_scratch_bytes(const Cache &cache, const NewKeys &keys) noexcept {
    const polyhead_cache to = cache.raw();
    const polyhead_new_keys from = keys.raw();
    polyhead_status status;
    const int64_t bytes = polyhead_append_scratch_bytes(&to, &from, &status);
    return status.code == POLYHEAD_OK ? bytes : -1;
}

// Before a batch row writes to a page that it shares with another.
inline Status copy_page(const Cache &cache, int32_t from, int32_t to, const Workspace &workspace = {}) noexcept {
    const polyhead_cache raw = cache.raw();
    const polyhead_workspace in = workspace.raw();
    return Status(polyhead_copy_page_in(&in, &raw, from, to));
}

// out may be input itself.
inline Status rotate(const TensorView &input, const Rotation &rotation, const MutableTensorView &out,
                     const Workspace &workspace = {}) noexcept {
    const polyhead_rotation raw = rotation.raw();
    const polyhead_workspace in = workspace.raw();
    return Status(polyhead_rotate_sections_in(&in, &input, &raw, &rotation.sections, &out));
}

// weight and bias [d] may be absent; out may be input itself.
struct HeadNorm {
    polyhead_norm norm = POLYHEAD_NO_NORM;
    float epsilon = 0;
    TensorView weight, bias;
    polyhead_head_norm raw() const noexcept {
        polyhead_head_norm made = polyhead_head_norm_of(norm, epsilon);
        made.weight = weight;
        made.bias = bias;
        return made;
    }
};
inline Status normalize(const TensorView &input, const HeadNorm &norm, const MutableTensorView &out,
                        const Workspace &workspace = {}) noexcept {
    const polyhead_head_norm raw = norm.raw();
    const polyhead_workspace in = workspace.raw();
    return Status(polyhead_normalize_in(&in, &input, &raw, &out));
}

// The outputs of attention over a part of the keys.
struct State : polyhead_state {
    State(const TensorView &out_, const TensorView &lse_) noexcept : polyhead_state{out_, lse_} {}
};

// The result over the keys of all parts; sinks f32 [H] count once.
inline Status merge_states(const State *parts, int32_t count, const MutableTensorView &out, const MutableTensorView &lse = {},
                           const TensorView &sinks = {}, const Workspace &workspace = {}) noexcept {
    const polyhead_workspace in = workspace.raw();
    return Status(polyhead_merge_states_in(&in, parts, count, sinks.rank == 0 ? nullptr : &sinks, &out, lse.rank == 0 ? nullptr : &lse));
}

// Which pages of a cache are used, and by how many sequences. Movable; threads may use it at the same time.
class PagePool {
public:
    PagePool() noexcept = default;
    ~PagePool() { polyhead_free_page_pool(raw_); }
    PagePool(PagePool &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    PagePool &operator=(PagePool &&other) noexcept {
        std::swap(raw_, other.raw_);
        return *this;
    }
    PagePool(const PagePool &) = delete;
    PagePool &operator=(const PagePool &) = delete;
    static Status make(int32_t pages, PagePool *pool) noexcept {
        PagePool made;
        const polyhead_status status = polyhead_make_page_pool(pages, &made.raw_);
        *pool = std::move(made);
        return Status(status);
    }

    // All of them or none; each has one user.
    Status take(int32_t count, int32_t *pages) noexcept { return Status(polyhead_take_pages(raw_, count, pages)); }
    // One user more, or less; a page without users is free again.
    Status share(int32_t count, const int32_t *pages) noexcept { return Status(polyhead_share_pages(raw_, count, pages)); }
    Status release(int32_t count, const int32_t *pages) noexcept { return Status(polyhead_release_pages(raw_, count, pages)); }
    int32_t free() const noexcept { return polyhead_free_pages(raw_); }
    int32_t users(int32_t page) const noexcept { return polyhead_page_users(raw_, page); }

private:
    polyhead_page_pool *raw_ = nullptr;
};

} // namespace polyhead
#endif

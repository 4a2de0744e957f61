// Checks the cache of a layer: whether it has room, and whether the new keys have a place that nobody else uses.
#include "../../contract/tensors.h"
#include "../rules/tensor_rules.h"
#include "../rules/validate_parts.h"
#include "../status.h"
#include "cache_rules.h"

namespace polyhead::runtime {

bool check_capacity(const polyhead_problem &p, const polyhead_args &a, const CallShape &shape, polyhead_status *status) noexcept {
    if (a.key_cache.shape[0] == 0 && !shape.nothing_to_do()) {
        return refuse(status, POLYHEAD_WRONG_SHAPE, "key_cache: extent 0 of dimension 0, expected at least 1 page");
    }
    return shape.seq_len_q <= shape.seq_len_kv ||
           refuse(status, POLYHEAD_WRONG_SHAPE, "input: extent %lld of dimension 1, expected at most %lld, the capacity of %s",
                  static_cast<long long>(shape.seq_len_q), static_cast<long long>(shape.seq_len_kv),
                  p.page_size > 0 ? "page_table" : "key_cache");
}

namespace {

CacheWrite write_of(const polyhead_problem &p, const polyhead_args &a, const CallShape &s) noexcept {
    const bool pages = p.page_size > 0;
    // Keys of which no query sees any may be written over: where the window is all that says which these are.
    const bool ring = a.has_window && counts_from_end(p, a) && absent(a.position_offsets);
    return {"cache_lengths",
            &a.cache_lengths,
            {s.batch, s.seq_len_q, nullptr, nullptr},
            pages ? &a.page_table : nullptr,
            "key_cache",
            a.key_cache.shape[0],
            pages ? p.page_size : 1,
            s.seq_len_kv,
            ring ? a.window_left : int64_t(-1)};
}

// Reading memory of a device would wait for it: kernels clamp.
bool knows_pages(const polyhead_problem &p, const polyhead_args &a) noexcept {
    return p.page_size > 0 && !a.cache_lengths.device && !a.page_table.device;
}

} // namespace

bool check_cache_values(const polyhead_problem &p, const polyhead_args &a, const CallShape &s, polyhead_status *status) noexcept {
    const CacheWrite write = write_of(p, a, s);
    return a.cache_lengths.device || (check_room(write, status) && (!knows_pages(p, a) || check_entries(write, status)));
}

bool check_cache_use(const polyhead_problem &p, const polyhead_args &a, const CallShape &s, CallMemory *memory,
                     polyhead_status *status) noexcept {
    return s.nothing_to_do() || !knows_pages(p, a) || check_single_use(write_of(p, a, s), memory, status);
}

} // namespace polyhead::runtime

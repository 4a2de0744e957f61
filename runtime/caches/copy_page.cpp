// Copies a page of a cache, or a batch row.
#include <cstring>

#include "../call/call_guard.h"
#include "../call/resources.h"
#include "../rules/served.h"
#include "../threads/for_each_row.h"
#include "cache_tensors.h"
#include "head_rows.h"

namespace polyhead::runtime {
namespace {

bool check_page(const char *name, int32_t page, int64_t pages, polyhead_status *status) noexcept {
    return (page >= 0 && page < pages) || refuse(status, POLYHEAD_BAD_VALUE, "%s: page %d, expected 0 to %lld (pages of the cache)", name,
                                                 page, static_cast<long long>(pages - 1));
}

} // namespace
} // namespace polyhead::runtime

polyhead_status polyhead_copy_page(const polyhead_cache *cache, int32_t from, int32_t to) {
    return polyhead_copy_page_in(nullptr, cache, from, to);
}

polyhead_status polyhead_copy_page_in(const polyhead_workspace *given_workspace, const polyhead_cache *cache, int32_t from, int32_t to) {
    using namespace polyhead::runtime;
    const CallGuard guard;
    polyhead_status status = success();
    if (!cache) {
        refuse(&status, POLYHEAD_NULL_POINTER, "cache: null pointer, expected a struct");
        return status;
    }
    polyhead_cache room;
    GivenWorkspace workspace;
    cache = served(*cache, &room, {"cache", of_struct, of_headers}, &status);
    if (!cache || !workspace.read(given_workspace, &status)) {
        return status;
    }
    const polyhead_tensor &key = cache->key;
    for (const CacheTensor &t : tensors_of(*cache)) {
        const bool is_key = t.tensor == &key, is_scales = t.tensor == &cache->key_scales || t.tensor == &cache->value_scales;
        const Extent pages{is_key ? any_extent : key.shape[0], "cache key"};
        if ((!is_key && absent(*t.tensor)) ||
            ((is_scales || check_storage(t.name, *t.tensor, &status, true)) &&
             check_host_tensor({t.name, t.tensor, is_scales ? POLYHEAD_F32 : t.tensor->dtype, Role::output, 4, {pages}}, &status) &&
             check_page("from", from, t.tensor->shape[0], &status) && check_page("to", to, t.tensor->shape[0], &status))) {
            continue;
        }
        return status;
    }
    if (!check_scales_of("key", key, cache->key_scales, &status) || !check_scales_of("value", cache->value, cache->value_scales, &status) ||
        !check_tensors_apart(*cache, &status)) {
        return status;
    }
    Workers workers(workspace.executor);
    for (const CacheTensor &copied : tensors_of(*cache)) {
        const polyhead_tensor *t = copied.tensor;
        const int64_t rows = absent(*t) || empty(*t) || from == to ? 0 : t->shape[1] * t->shape[2];
        const int64_t bytes = rows > 0 ? t->shape[3] * dtype_bytes(t->dtype) : 0;
        for_each_row(rows, rows * bytes, &workers, [&](int64_t row) {
            const int64_t h = row / t->shape[2], n = row % t->shape[2];
            std::memcpy(head_row(*t, to, h, n), head_row(*t, from, h, n), static_cast<size_t>(bytes));
        });
    }
    say_fault(workers, &status);
    return status;
}

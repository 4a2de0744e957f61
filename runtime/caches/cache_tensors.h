// The tensors of a cache of the caller, and the rules that append and copy_page share.
#ifndef POLYHEAD_RUNTIME_CACHE_TENSORS_H
#define POLYHEAD_RUNTIME_CACHE_TENSORS_H

#include <array>

#include <polyhead/c_cache.h>

namespace polyhead::runtime {

struct CacheTensor {
    const char *name;
    const polyhead_tensor *tensor;
};

inline std::array<CacheTensor, 4> tensors_of(const polyhead_cache &cache) noexcept {
    return {{{"cache key", &cache.key},
             {"cache value", &cache.value},
             {"key_scales", &cache.key_scales},
             {"value_scales", &cache.value_scales}}};
}

// Scales are there exactly for integers.
bool check_scales_of(const char *of, const polyhead_tensor &rows, const polyhead_tensor &scales, polyhead_status *status) noexcept;
// Tensors of a cache may be interleaved, but share no element.
bool check_tensors_apart(const polyhead_cache &cache, polyhead_status *status) noexcept;

} // namespace polyhead::runtime
#endif

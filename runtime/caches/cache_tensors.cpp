// The rules for the tensors of a cache of the caller.
#include "cache_tensors.h"

#include <cstdio>

#include "../rules/shared_elements.h"
#include "../rules/tensor_rules.h"
#include "../status.h"

namespace polyhead::runtime {

bool check_scales_of(const char *of, const polyhead_tensor &rows, const polyhead_tensor &scales, polyhead_status *status) noexcept {
    char name[16];
    std::snprintf(name, sizeof name, "%s_scales", of);
    if (absent(rows) || rows.dtype != POLYHEAD_I8) {
        return absent(scales) ||
               refuse(status, POLYHEAD_WRONG_OPERATION, "%s: given, expected none, because the cache has no %s of int8", name, of);
    }
    if (!check_host_tensor({name,
                            &scales,
                            POLYHEAD_F32,
                            Role::output,
                            4,
                            {{rows.shape[0], "cache"}, {rows.shape[1], "cache"}, {rows.shape[2], "cache"}, {}}},
                           status)) {
        return false;
    }
    const int64_t count = scales.shape[3], entries = rows.shape[3];
    return count == 1 || (count > 0 && (count * 32 == entries || count * 64 == entries)) ||
           refuse(status, POLYHEAD_WRONG_SHAPE, "%s: extent %lld of dimension 3, expected 1, or %lld entries of a row divided by 32 or 64",
                  name, static_cast<long long>(count), static_cast<long long>(entries));
}

bool check_tensors_apart(const polyhead_cache &cache, polyhead_status *status) noexcept {
    const std::array<CacheTensor, 4> tensors = tensors_of(cache);
    for (size_t i = 0; i < tensors.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
            if (!check_apart(tensors[i].name, *tensors[i].tensor, tensors[j].name, *tensors[j].tensor, Apart::elements, status)) {
                return false;
            }
        }
    }
    return true;
}

} // namespace polyhead::runtime

// Structs of other versions of the headers. Fields are only added at the end: what an earlier version lacks is 0, and what a later version
// has beyond must be 0.
#ifndef POLYHEAD_RUNTIME_SERVED_H
#define POLYHEAD_RUNTIME_SERVED_H

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <polyhead/c_cache.h>

namespace polyhead::runtime {

// A struct in sentences.
struct ServedName {
    const char *subject; // "arguments"
    const char *type;    // "polyhead_args"
    const char *advice;  // "begin them with polyhead_args_of()"
};

// The words for a struct that is not named to its caller.
inline constexpr char of_struct[] = "a struct", of_headers[] = "compile with the headers of";

// No struct has more: memory that was not set.
constexpr uint32_t most_bytes = 1 << 16;

// Sizes from the first version that can be served, to what no version will have.
bool check_served(const void *given, uint32_t size, size_t lowest, size_t own, const ServedName &name, polyhead_status *status) noexcept;

// Bytes of the fields of the lowest ABI that is served, without those that had no use yet. They do not change when fields are added.
template <class T> constexpr size_t lowest_bytes = 0;
#define POLYHEAD_LOWEST_BYTES(type, last)                                                                                                  \
    template <> inline constexpr size_t lowest_bytes<type> = (offsetof(type, last) + sizeof(type::last) + 7) / 8 * 8;
POLYHEAD_LOWEST_BYTES(polyhead_args, weights_mean)
POLYHEAD_LOWEST_BYTES(polyhead_problem, expression)
POLYHEAD_LOWEST_BYTES(polyhead_variant, abi)
POLYHEAD_LOWEST_BYTES(polyhead_declaration, extents)
POLYHEAD_LOWEST_BYTES(polyhead_weight_tensors, out_bias)
POLYHEAD_LOWEST_BYTES(polyhead_cache, value_scales)
POLYHEAD_LOWEST_BYTES(polyhead_new_keys, window_left)
POLYHEAD_LOWEST_BYTES(polyhead_head_norm, bias)
POLYHEAD_LOWEST_BYTES(polyhead_executor, parallel_for)
POLYHEAD_LOWEST_BYTES(polyhead_workspace, scratch_bytes)
#undef POLYHEAD_LOWEST_BYTES
// The table of a kernel without its problem.
template <>
inline constexpr size_t lowest_bytes<polyhead_kernel> =
    offsetof(polyhead_kernel, reserved) + sizeof(polyhead_kernel::reserved) - sizeof(polyhead_problem);

// The struct as this library knows it: itself, or a copy in *room. Null and a status when it is refused.
template <class T> const T *served(const T &given, T *room, const ServedName &name, polyhead_status *status) noexcept {
    if (given.size == sizeof(T)) {
        return &given;
    }
    if (!check_served(&given, given.size, lowest_bytes<T>, sizeof(T), name, status)) {
        return nullptr;
    }
    if (given.size > sizeof(T)) {
        return &given;
    }
    std::memset(static_cast<void *>(room), 0, sizeof(T));
    std::memcpy(static_cast<void *>(room), &given, given.size);
    return room;
}

} // namespace polyhead::runtime
#endif

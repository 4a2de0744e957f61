// The rules for a single tensor, in the order in which they are checked.
#include "tensor_rules.h"

#include <algorithm>
#include <cstdlib>

#include "../status.h"

namespace polyhead::runtime {
namespace {

// Kernels index with 32-bit integers.
constexpr int64_t index_limit = INT32_MAX;
constexpr int64_t offset_limit = int64_t(1) << 48; // more memory than an address space has

// OpenCL memory is an object; everything else is addresses.
bool has_addresses(const polyhead_device *device) noexcept {
    return !device || device->api != POLYHEAD_OPENCL;
}

MemoryRange in_space(const polyhead_device *device, const void *data, int64_t begin, int64_t end) noexcept {
    uint64_t first = reinterpret_cast<uint64_t>(data);
    const void *space = device ? device->space_of(data, &first) : nullptr;
    return {first + static_cast<uint64_t>(begin), first + static_cast<uint64_t>(end), space};
}

bool check_shape(const TensorRule &rule, polyhead_status *status) noexcept {
    const polyhead_tensor &t = *rule.tensor;
    if (t.rank != rule.rank) {
        return refuse(status, POLYHEAD_WRONG_SHAPE, "%s: rank %d, expected %d", rule.name, t.rank, rule.rank);
    }
    for (int i = 0; i < t.rank; ++i) {
        const long long found = t.shape[i], expected = rule.extents[i].extent;
        const bool or_one = rule.extents[i].or_one;
        if (expected != any_extent && found != expected && !(or_one && found == 1)) {
            const char *as_in = rule.extents[i].as_in;
            return refuse(status, POLYHEAD_WRONG_SHAPE, "%s: extent %lld of dimension %d, expected %s%lld%s%s", rule.name, found, i,
                          or_one && expected != 1 ? "1 or " : "", expected, as_in ? " as in " : "", as_in ? as_in : "");
        }
        if (found < 0 || found > index_limit) {
            return refuse(status, POLYHEAD_WRONG_SHAPE, "%s: extent %lld of dimension %d, expected 0 to %lld", rule.name, found, i,
                          static_cast<long long>(index_limit));
        }
    }
    return true;
}

// Every index and every product that a kernel forms from extents and strides fits its integers.
bool check_reach(const TensorRule &rule, polyhead_status *status) noexcept {
    const polyhead_tensor &t = *rule.tensor;
    double elements = 1; // four extents may have a product beyond 64 bits
    for (int i = 0; i < t.rank; ++i) {
        elements *= double(t.shape[i]);
    }
    if (elements > double(index_limit)) {
        return refuse(
            status, POLYHEAD_WRONG_STRIDE,
            "%s: %.0f elements (%.0f bytes), expected fewer than 2^31: call with some of the queries, heads or batch rows at a time",
            rule.name, elements, elements * dtype_bytes(t.dtype));
    }
    int64_t reach = 1;
    for (int i = 0; i < t.rank; ++i) {
        bool far = false;
        if (t.shape[i] > 1 && t.stride[i] != 0) { // the first two comparisons keep the product from overflowing
            far = t.stride[i] > index_limit || t.stride[i] < -index_limit || t.shape[i] * std::abs(t.stride[i]) > index_limit;
            if (!far) {
                reach += (t.shape[i] - 1) * std::abs(t.stride[i]);
            }
        }
        if (far || reach > index_limit) {
            return refuse(status, POLYHEAD_WRONG_STRIDE,
                          "%s: extent %lld with stride %lld of dimension %d reaches beyond 2^31 elements, expected less", rule.name,
                          static_cast<long long>(t.shape[i]), static_cast<long long>(t.stride[i]), i);
        }
    }
    return true;
}

bool check_strides(const TensorRule &rule, polyhead_status *status) noexcept {
    const polyhead_tensor &t = *rule.tensor;
    const int innermost = t.rank - 1;
    const bool or_zero = rule.role == Role::spread, dense = or_zero || rule.role == Role::input || rule.role == Role::output;
    if (dense && t.shape[innermost] > 1 && t.stride[innermost] != 1 && !(or_zero && t.stride[innermost] == 0)) {
        return refuse(status, POLYHEAD_WRONG_STRIDE, "%s: stride %lld of dimension %d, expected 1%s", rule.name,
                      static_cast<long long>(t.stride[innermost]), innermost, or_zero ? " or 0" : "");
    }
    return check_reach(rule, status) && (rule.role != Role::output || check_no_overlap(rule.name, t, status));
}

} // namespace

bool check_address(const char *name, const polyhead_tensor &t, polyhead_status *status) noexcept {
    if (!t.data) {
        return refuse(status, POLYHEAD_NULL_POINTER, "%s: null pointer, expected the address of its elements", name);
    }
    const int bytes = dtype_bytes(t.dtype);
    if (has_addresses(t.device) && reinterpret_cast<uintptr_t>(t.data) % static_cast<unsigned>(bytes) != 0) {
        return refuse(status, POLYHEAD_WRONG_STRIDE, "%s: address %p, expected a multiple of %d, the bytes of one %s", name, t.data, bytes,
                      dtype_name(t.dtype));
    }
    if (t.offset < 0 || t.offset > offset_limit) {
        return refuse(status, POLYHEAD_WRONG_STRIDE, "%s: offset %lld, expected 0 to 2^48", name, static_cast<long long>(t.offset));
    }
    return true;
}

// From the smallest stride upwards, each must step over all that the smaller ones reach.
bool check_no_overlap(const char *name, const polyhead_tensor &t, polyhead_status *status) noexcept {
    int order[POLYHEAD_MAX_RANK], count = 0;
    for (int i = t.rank - 1; i >= 0; --i) {
        if (t.shape[i] > 1) { // sorted in as it comes, equal ones in this order: the library's stable sort takes memory
            int place = count++;
            for (; place > 0 && std::abs(t.stride[order[place - 1]]) > std::abs(t.stride[i]); --place) {
                order[place] = order[place - 1];
            }
            order[place] = i;
        }
    }
    int64_t reach = 1;
    for (int n = 0; n < count; ++n) {
        const int i = order[n];
        if (std::abs(t.stride[i]) < reach) {
            return refuse(status, POLYHEAD_WRONG_STRIDE, "%s: stride %lld of dimension %d makes elements overlap, expected at least %lld",
                          name, static_cast<long long>(t.stride[i]), i, static_cast<long long>(reach));
        }
        reach += (t.shape[i] - 1) * std::abs(t.stride[i]);
    }
    return true;
}

bool check_tensor(const TensorRule &rule, polyhead_status *status) noexcept {
    const polyhead_tensor &t = *rule.tensor;
    if (absent(t)) {
        return refuse(status, POLYHEAD_NULL_POINTER, "%s: missing, expected a tensor of rank %d", rule.name, rule.rank);
    }
    if (t.dtype != rule.dtype && !(rule.or_f32 && t.dtype == POLYHEAD_F32)) {
        return refuse(status, POLYHEAD_WRONG_DTYPE, "%s: dtype %s, expected %s%s", rule.name, dtype_name(t.dtype), dtype_name(rule.dtype),
                      rule.or_f32 && rule.dtype != POLYHEAD_F32 ? " or f32" : "");
    }
    if (!check_shape(rule, status)) {
        return false;
    }
    // Strides and address of an empty tensor mean nothing.
    return empty(t) || (check_strides(rule, status) && check_address(rule.name, t, status));
}

bool check_host_tensor(const TensorRule &rule, polyhead_status *status) noexcept {
    const polyhead_device *const device = rule.tensor->device;
    return device ? refuse(status, POLYHEAD_WRONG_DEVICE, "%s: lies on device %s, expected host memory", rule.name, device->name)
                  : check_tensor(rule, status);
}

// Atomic, so that the compiler reads it once.
int32_t integer_at(const polyhead_tensor &t, int64_t i, int64_t j) noexcept {
    const auto *values = static_cast<const int32_t *>(t.data) + t.offset;
    const int64_t step = t.rank > 1 && t.shape[1] > 1 ? t.stride[1] : 0;
    return __atomic_load_n(values + (t.shape[0] > 1 ? i * t.stride[0] : 0) + j * step, __ATOMIC_RELAXED);
}

int64_t index_at(const polyhead_tensor &t, int64_t most, int64_t i, int64_t j) noexcept {
    return std::clamp<int64_t>(integer_at(t, i, j), 0, most);
}

polyhead_tensor of_direction(const polyhead_tensor &positions, int64_t direction) noexcept {
    polyhead_tensor t = positions;
    t.offset += t.shape[1] > 1 ? direction * t.stride[1] : 0;
    t.shape[1] = t.shape[2];
    t.stride[1] = t.stride[2];
    t.rank = 2;
    return t;
}

bool check_page_row(const polyhead_tensor &table, int64_t row, int64_t count, int64_t pages, const char *of,
                    polyhead_status *status) noexcept {
    for (int64_t i = 0; i < count; ++i) {
        const int32_t page = integer_at(table, row, i);
        if (page < 0 || page >= pages) {
            return refuse(status, POLYHEAD_BAD_VALUE, "page_table: value %d at index %lld, %lld, expected 0 to %lld (pages of %s)", page,
                          static_cast<long long>(row), static_cast<long long>(i), static_cast<long long>(pages - 1), of);
        }
    }
    return true;
}

ElementRange reach_of(const polyhead_tensor &t) noexcept {
    ElementRange range{t.offset, t.offset};
    for (int i = 0; i < t.rank; ++i) {
        const int64_t last = t.shape[i] > 1 ? (t.shape[i] - 1) * t.stride[i] : 0;
        (last < 0 ? range.lowest : range.highest) += last;
    }
    return range;
}

DeviceRange range_of(const char *name, const polyhead_tensor &t) noexcept {
    const ElementRange range = reach_of(t);
    const int64_t bytes = dtype_bytes(t.dtype);
    return {name, t.data, range.lowest * bytes, (range.highest + 1) * bytes, t.offset * bytes, false, false};
}

MemoryRange memory_of(const polyhead_tensor &t) noexcept {
    if (absent(t) || empty(t)) {
        return {0, 0};
    }
    const DeviceRange range = range_of("", t);
    return in_space(t.device, t.data, range.begin, range.end);
}

} // namespace polyhead::runtime

// Proves that two tensors have no element in common.
#include "shared_elements.h"

#include <cstdlib>
#include <initializer_list>

#include "../status.h"

namespace polyhead::runtime {
namespace {

// Bytes begin + sum of (0 .. extent - 1) * stride, in dimensions that move upwards. The bytes of an element are one of them.
struct Bytes {
    static constexpr int most = POLYHEAD_MAX_RANK + 1;
    int64_t begin = 0;
    int count = 0;
    int64_t extent[most], stride[most];

    void add(int64_t elements, int64_t step) noexcept {
        if (elements > 1 && step != 0) {
            extent[count] = elements;
            stride[count++] = step;
        }
    }
    // From the first byte to behind the last.
    int64_t reach() const noexcept {
        int64_t bytes = 1;
        for (int i = 0; i < count; ++i) {
            bytes += (extent[i] - 1) * stride[i];
        }
        return bytes;
    }
    // Without the dimensions that move by whole periods.
    Bytes within(int64_t period) const noexcept {
        Bytes inner;
        inner.begin = begin;
        for (int i = 0; i < count; ++i) {
            if (stride[i] % period != 0) {
                inner.add(extent[i], stride[i]);
            }
        }
        return inner;
    }
};

// The tensor begins at address `begin`, and its elements have so many bytes.
Bytes bytes_of(const polyhead_tensor &t, int64_t begin, int64_t element) noexcept {
    Bytes bytes;
    bytes.begin = begin;
    for (int i = 0; i < t.rank; ++i) {
        if (t.shape[i] > 1) { // the stride of one element may be any number
            bytes.add(t.shape[i], std::abs(t.stride[i]) * element);
        }
    }
    bytes.add(element, 1);
    return bytes;
}

Bytes bytes_in_space(const polyhead_tensor &t) noexcept {
    return bytes_of(t, static_cast<int64_t>(memory_of(t).begin), dtype_bytes(t.dtype));
}

Bytes bytes_on_host(const polyhead_tensor &t, int64_t element) noexcept {
    return bytes_of(t, static_cast<int64_t>(reinterpret_cast<uintptr_t>(t.data)) + reach_of(t).lowest * element, element);
}

// Proofs that are tried for one pair of tensors. Those of real layouts take a few.
constexpr int most_proofs = 1000;

bool proved_apart(const Bytes &a, const Bytes &b, int *proofs) noexcept;

// Modulo a period that both fit into. There is no common byte if there is none with b in the period of a, and none with b in the one
// before it.
bool proved_apart_in(int64_t period, const Bytes &a, const Bytes &b, int *proofs) noexcept {
    const Bytes inner_a = a.within(period);
    Bytes inner_b = b.within(period);
    if (inner_a.reach() > period || inner_b.reach() > period) {
        return false;
    }
    const int64_t rest = (b.begin - a.begin) % period, distance = rest < 0 ? rest + period : rest;
    inner_b.begin = a.begin + distance;
    if (!proved_apart(inner_a, inner_b, proofs)) {
        return false;
    }
    inner_b.begin -= period;
    return proved_apart(inner_a, inner_b, proofs);
}

// By ranges, or modulo one of the strides.
bool proved_apart(const Bytes &a, const Bytes &b, int *proofs) noexcept {
    if (a.begin + a.reach() <= b.begin || b.begin + b.reach() <= a.begin) {
        return true;
    }
    for (const Bytes *strides : {&a, &b}) {
        for (int i = 0; i < strides->count && *proofs > 0; ++i) {
            --*proofs;
            if (proved_apart_in(strides->stride[i], a, b, proofs)) {
                return true;
            }
        }
    }
    return false;
}

} // namespace

bool may_share_elements(const polyhead_tensor &a, const polyhead_tensor &b) noexcept {
    if (!overlap(memory_of(a), memory_of(b))) {
        return false;
    }
    int proofs = most_proofs;
    return !proved_apart(bytes_in_space(a), bytes_in_space(b), &proofs);
}

bool may_share_elements(const polyhead_tensor &a, int64_t bytes_of_a, const polyhead_tensor &b, int64_t bytes_of_b) noexcept {
    int proofs = most_proofs;
    return !absent(a) && !absent(b) && !empty(a) && !empty(b) &&
           !proved_apart(bytes_on_host(a, bytes_of_a), bytes_on_host(b, bytes_of_b), &proofs);
}

bool refuse_shared(const char *output, const char *other, polyhead_status *status) noexcept {
    return refuse(status, POLYHEAD_ALIASED, "%s: shares memory with %s, expected memory of its own", output, other);
}

bool check_apart(const char *output, const polyhead_tensor &written, const char *other, const polyhead_tensor &tensor, Apart apart,
                 polyhead_status *status) noexcept {
    const bool shared = apart == Apart::elements ? may_share_elements(written, tensor) : overlap(memory_of(written), memory_of(tensor));
    return !shared || refuse_shared(output, other, status);
}

} // namespace polyhead::runtime

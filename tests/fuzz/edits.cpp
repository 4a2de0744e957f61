// Changes of tensors: shapes, strides, addresses, types and devices that no caller should give.
#include "edits.h"

#include <algorithm>
#include <utility>

#include "memory.h"
#include "runtime/status.h"

namespace polyhead::fuzz {

int64_t Bytes::number() {
    static const int64_t limits[] = {0,
                                     1,
                                     16,
                                     32,
                                     64,
                                     255,
                                     32767,
                                     65535,
                                     1 << 24,
                                     1 << 27,
                                     1 << 28,
                                     1 << 30,
                                     INT32_MAX,
                                     INT32_MIN,
                                     int64_t(1) << 32,
                                     int64_t(1) << 33,
                                     int64_t(1) << 48,
                                     int64_t(1) << 61,
                                     int64_t(1) << 62,
                                     INT64_MAX,
                                     INT64_MIN};
    const uint8_t which = byte();
    const auto delta = static_cast<int8_t>(byte());
    if (which >= 128) {
        return delta;
    }
    const int64_t base = limits[which % std::size(limits)];
    return static_cast<int64_t>(static_cast<uint64_t>(base) + static_cast<uint64_t>(int64_t(delta % 4)));
}

uint32_t Bytes::word() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
        value = value << 8 | byte();
    }
    return value;
}

namespace {

// Data such that data + offset is the address: what a caller with this offset would have.
void put_first_element(polyhead_tensor *t, char *address) {
    const auto bytes = static_cast<uintptr_t>(std::max(contract::dtype_bytes(t->dtype), 1));
    t->data = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(address) - static_cast<uintptr_t>(t->offset) * bytes);
}

void edit_address(Bytes *bytes, const std::vector<Place> &places, polyhead_tensor *t) {
    const Place &other = places[static_cast<size_t>(bytes->byte()) % places.size()];
    const int move = static_cast<int8_t>(bytes->byte());
    switch (move % 4) {
    case 0:
        t->data = nullptr;
        break;
    case 1: // anywhere near, aligned for nothing
        put_first_element(t, other.first + move);
        break;
    default: // another tensor's memory
        put_first_element(t, other.first + 16 * move);
    }
}

void edit_device(Bytes *bytes, Devices *devices, polyhead_tensor *t) {
    switch (bytes->below(3)) {
    case 0:
        t->device = nullptr;
        break;
    case 1:
        t->device = &devices->cuda;
        t->data = devices->cuda_block;
        break;
    default:
        t->device = &devices->opencl;
        t->data = devices->opencl_block;
    }
}

} // namespace

void edit_tensor(Bytes *bytes, const std::vector<Place> &places, Devices *devices) {
    const Place &place = places[static_cast<size_t>(bytes->byte()) % places.size()];
    polyhead_tensor *t = place.tensor;
    const int what = bytes->below(9), i = bytes->below(POLYHEAD_MAX_RANK);
    switch (what) {
    case 0:
        t->shape[i] = bytes->number();
        break;
    case 1:
        t->stride[i] = bytes->number();
        break;
    case 2:
        t->rank = static_cast<int32_t>(bytes->number());
        break;
    case 3:
        edit_address(bytes, places, t);
        break;
    case 4:
        t->dtype = static_cast<int32_t>(bytes->number());
        break;
    case 5:
        t->offset = bytes->number();
        if (!t->device) {
            put_first_element(t, place.first);
        }
        break;
    case 6:
        edit_device(bytes, devices, t);
        break;
    case 7: { // two dimensions change places
        const int j = bytes->below(POLYHEAD_MAX_RANK);
        std::swap(t->shape[i], t->shape[j]);
        std::swap(t->stride[i], t->stride[j]);
        break;
    }
    default: // absent, or another tensor
        *t = i == 0 ? polyhead_tensor{} : *places[static_cast<size_t>(bytes->byte()) % places.size()].tensor;
    }
}

bool affordable(const polyhead_tensor &tensor, double most_elements) {
    if (tensor.rank < 0 || tensor.rank > POLYHEAD_MAX_RANK) {
        return true; // refused before it is looked at
    }
    // Negative extents, 2^31 elements and offsets beyond 2^48 are refused.
    const double elements = elements_of(tensor);
    const bool negative = std::any_of(tensor.shape, tensor.shape + tensor.rank, [](int64_t extent) { return extent < 0; });
    const bool refused = negative || elements > INT32_MAX || tensor.offset < 0 || tensor.offset > int64_t(1) << 48;
    return refused || elements == 0 || (elements <= most_elements && tensor.offset <= INT32_MAX);
}

bool lies_in_memory(const polyhead_tensor &tensor) {
    const auto offset = static_cast<uintptr_t>(tensor.offset) * static_cast<uintptr_t>(contract::dtype_bytes(tensor.dtype));
    const auto *first = reinterpret_cast<const char *>(reinterpret_cast<uintptr_t>(tensor.data) + offset);
    const Memory &memory = Memory::get();
    return tensor.device || !tensor.data || memory.is_input(first, first) || memory.is_output(first, first);
}

} // namespace polyhead::fuzz

// Gives fuzzed tensors of cache calls their memory.
#include "cache_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/status.h"

namespace polyhead::fuzz {
namespace {

constexpr int64_t most_elements = 1 << 15;

} // namespace

CacheMemory::~CacheMemory() {
    for (const Block &block : blocks_) {
        std::free(block.memory);
    }
}

char *CacheMemory::allocate(size_t bytes) {
    char *const memory = static_cast<char *>(std::malloc(std::max<size_t>(bytes, 1)));
    blocks_.push_back({memory, bytes});
    return memory;
}

// Small numbers, of which a few are hostile.
void CacheMemory::fill(char *memory, size_t bytes, Fill fill) {
    static const int32_t integers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, -1, 1 << 20, INT32_MAX, INT32_MIN};
    const uint8_t seed = bytes_->byte(), hostile = bytes_->byte();
    if (fill == Fill::integers) {
        for (size_t i = 0; i + sizeof(int32_t) <= bytes; i += sizeof(int32_t)) {
            const size_t n = i / sizeof(int32_t) * 3 + seed;
            const int32_t value = integers[hostile % 4 == 0 ? (n + bytes_->byte()) % 13 : n % 4];
            std::memcpy(memory + i, &value, sizeof value);
        }
        return;
    }
    for (size_t i = 0; i < bytes; ++i) { // exponents that are small in every type
        memory[i] = static_cast<char>((i * 37 + seed) % 64);
    }
    if (hostile % 16 == 0 && bytes >= sizeof(float)) {
        const float value = hostile % 32 == 0 ? __builtin_nanf("") : hostile % 48 == 0 ? -__builtin_inff() : __builtin_inff();
        std::memcpy(memory + (seed % (bytes / sizeof value)) * sizeof value, &value, sizeof value);
    }
}

void CacheMemory::edit(polyhead_tensor *t) {
    static const int64_t extents[] = {0, 1, 2, 3, 33, 577, -1, INT32_MAX, int64_t(1) << 31, int64_t(1) << 62, INT64_MAX, INT64_MIN};
    static const int64_t strides[] = {0, 1, -1, 2, 3, -7, 64, 128, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    const int dimension = bytes_->below(POLYHEAD_MAX_RANK);
    switch (bytes_->below(8)) {
    case 0:
        t->shape[dimension] = extents[bytes_->below(12)];
        break;
    case 1:
    case 2:
        t->stride[dimension] = strides[bytes_->below(12)];
        break;
    case 3: // empty, and large in every other direction
        std::fill(t->shape, t->shape + POLYHEAD_MAX_RANK, INT32_MAX);
        std::fill(t->stride, t->stride + POLYHEAD_MAX_RANK, 0);
        t->shape[dimension] = 0;
        break;
    case 4:
        t->dtype = bytes_->below(8) - 1;
        break;
    case 5:
        t->rank = bytes_->below(8) - 1;
        break;
    case 6: // side by side with another tensor of the same extents
        std::for_each(t->stride, t->stride + POLYHEAD_MAX_RANK - 1, [](int64_t &s) { s = s > 0 && s < (1 << 20) ? 2 * s : s; });
        break;
    default:
        *t = polyhead_tensor{};
    }
}

void CacheMemory::place(polyhead_tensor *t, Fill what) {
    __int128 low = 0, high = 0; // of the first and the last element
    bool none = t->rank < 1 || t->rank > POLYHEAD_MAX_RANK;
    for (int i = 0; !none && i < t->rank; ++i) {
        none = t->shape[i] < 1;
        const __int128 last = none || t->shape[i] == 1 ? 0 : __int128(t->shape[i] - 1) * t->stride[i];
        (last < 0 ? low : high) += last;
    }
    const int64_t element = std::max(contract::dtype_bytes(t->dtype), 1);
    if (none || high - low > most_elements) { // refused, or without elements: nobody may look at it
        affordable_ = affordable_ && (none || high - low > INT32_MAX);
        t->data = bytes_->below(2) ? nullptr : reinterpret_cast<void *>(uintptr_t(64));
        return;
    }
    const auto bytes = static_cast<size_t>((high - low + 1) * element);
    char *memory;
    if (bytes_->below(4) == 0 && bytes <= shared_bytes / 2) {
        if (!shared_) {
            shared_ = allocate(shared_bytes);
            std::memset(shared_, 0, shared_bytes);
        }
        memory = shared_ + size_t(bytes_->byte()) * 4 % (shared_bytes / 2);
        memory = bytes_->below(8) == 0 ? memory + 1 : memory;
    } else {
        memory = allocate(bytes);
    }
    fill(memory, bytes, what);
    t->offset = bytes_->below(8) == 0 ? 3 : 0;
    t->data = memory - int64_t(low) * element - t->offset * element;
}

polyhead_tensor CacheMemory::tensor(int32_t dtype, std::initializer_list<int64_t> shape, Fill what) {
    polyhead_tensor t{};
    t.dtype = dtype;
    t.rank = static_cast<int32_t>(shape.size());
    int64_t step = 1;
    for (int i = t.rank - 1; i >= 0; --i) {
        t.shape[i] = shape.begin()[i];
        t.stride[i] = step;
        step *= std::max<int64_t>(t.shape[i], 1);
    }
    for (int edits = bytes_->below(16) - 12; edits > 0; --edits) {
        edit(&t);
    }
    if (t.rank != 0 || t.data) {
        place(&t, what);
    }
    return t;
}

CacheMemory::Snapshot CacheMemory::snapshot() const {
    Snapshot all;
    for (const Block &block : blocks_) {
        all.emplace_back(block.memory, block.memory + block.bytes);
    }
    return all;
}

char *CacheMemory::in(Snapshot *snapshot, const void *address) const {
    const auto *const at = static_cast<const char *>(address);
    for (size_t i = 0; i < blocks_.size(); ++i) {
        if (at >= blocks_[i].memory && at < blocks_[i].memory + blocks_[i].bytes) {
            return (*snapshot)[i].data() + (at - blocks_[i].memory);
        }
    }
    return nullptr;
}

bool share_a_byte(const polyhead_tensor &a, const polyhead_tensor &b) {
    const int of_a = contract::dtype_bytes(a.dtype), of_b = contract::dtype_bytes(b.dtype);
    const char *low = nullptr, *high = nullptr; // of a
    for_each_element(a, of_a, [&](const char *at, const int64_t *) {
        low = !low || at < low ? at : low;
        high = !high || at + of_a > high ? at + of_a : high;
    });
    std::vector<char> taken(static_cast<size_t>(high - low), 0);
    for_each_element(a, of_a, [&](const char *at, const int64_t *) { std::fill_n(taken.begin() + (at - low), of_a, 1); });
    bool shared = false;
    for_each_element(b, of_b, [&](const char *at, const int64_t *) {
        for (const char *byte = at; byte < at + of_b; ++byte) {
            shared = shared || (byte >= low && byte < high && taken[static_cast<size_t>(byte - low)] != 0);
        }
    });
    return shared;
}

} // namespace polyhead::fuzz

// Memory of the tensors of one fuzzed cache call: each has exactly what its strides reach, or lies anywhere in memory that several share.
#ifndef POLYHEAD_TESTS_FUZZ_CACHE_MEMORY_H
#define POLYHEAD_TESTS_FUZZ_CACHE_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <vector>

#include <polyhead/c_cache.h>

#include "edits.h"

namespace polyhead::fuzz {

// What is written into the elements of a tensor.
enum class Fill { floats, integers };

class CacheMemory {
public:
    explicit CacheMemory(Bytes *bytes) : bytes_(bytes) {}
    ~CacheMemory();
    CacheMemory(const CacheMemory &) = delete;
    CacheMemory &operator=(const CacheMemory &) = delete;

    // A tensor of these extents, of which bytes may change anything: extents, strides, rank, type, place; or none at all.
    polyhead_tensor tensor(int32_t dtype, std::initializer_list<int64_t> shape, Fill fill = Fill::floats);
    // False where a call could be accepted for which there is no memory here.
    bool affordable() const { return affordable_; }

    // All bytes of all tensors.
    using Snapshot = std::vector<std::vector<char>>;
    Snapshot snapshot() const;
    // "", or where memory differs.
    bool same(const Snapshot &other) const { return snapshot() == other; }
    // The byte of a snapshot that lies at this address.
    char *in(Snapshot *snapshot, const void *address) const;

private:
    struct Block {
        char *memory;
        size_t bytes;
    };
    void edit(polyhead_tensor *tensor);
    void place(polyhead_tensor *tensor, Fill fill);
    char *allocate(size_t bytes);
    void fill(char *memory, size_t bytes, Fill fill);

    static constexpr size_t shared_bytes = 1 << 12;
    Bytes *const bytes_;
    std::vector<Block> blocks_;
    char *shared_ = nullptr;
    bool affordable_ = true;
};

// Calls visit(address of an element, indices) for every element of a tensor of rank 1 to 4 on the host.
template <typename Visit> void for_each_element(const polyhead_tensor &t, int bytes, const Visit &visit) {
    int64_t index[4] = {};
    const auto extent = [&](int i) { return i < t.rank ? t.shape[i] : 1; };
    for (index[0] = 0; index[0] < extent(0); ++index[0]) {
        for (index[1] = 0; index[1] < extent(1); ++index[1]) {
            for (index[2] = 0; index[2] < extent(2); ++index[2]) {
                for (index[3] = 0; index[3] < extent(3); ++index[3]) {
                    int64_t offset = t.offset;
                    for (int i = 0; i < t.rank; ++i) {
                        offset += t.shape[i] > 1 ? index[i] * t.stride[i] : 0;
                    }
                    visit(static_cast<char *>(t.data) + offset * bytes, index);
                }
            }
        }
    }
}

// Whether two tensors have a byte in common, by looking at every element.
bool share_a_byte(const polyhead_tensor &a, const polyhead_tensor &b);

} // namespace polyhead::fuzz
#endif

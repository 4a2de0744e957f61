// Bytes of a fuzzer as changes of the tensors of a correct call, one after another.
#ifndef POLYHEAD_TESTS_FUZZ_EDITS_H
#define POLYHEAD_TESTS_FUZZ_EDITS_H

#include <cstddef>
#include <cstdint>
#include <vector>

#include <polyhead/c_api.h>

#include "stand_ins.h"

namespace polyhead::fuzz {

// The input of a fuzzer, read from the front; zeros after its end.
class Bytes {
public:
    Bytes(const uint8_t *data, size_t size) : data_(data), end_(data + size) {}
    bool empty() const { return data_ == end_; }
    uint8_t byte() { return data_ == end_ ? 0 : *data_++; }
    int below(int limit) { return byte() % limit; }
    // A number near a limit of the interface, or a small one.
    int64_t number();
    uint32_t word();

private:
    const uint8_t *data_, *end_;
};

// A tensor of the call, where it lies when it is correct, and of what type it is.
struct Place {
    polyhead_tensor *tensor;
    char *first;
};

// Changes one tensor. Its memory stays real: data is chosen so that its first element lies at the place of some tensor.
void edit_tensor(Bytes *bytes, const std::vector<Place> &places, Devices *devices);

// True when every number of elements is one that a call may be made with here: memory is there, and reading and writing end soon.
bool affordable(const polyhead_tensor &tensor, double most_elements);
// False for a tensor on the host whose first element lies elsewhere: no rule could find that out.
bool lies_in_memory(const polyhead_tensor &tensor);

} // namespace polyhead::fuzz
#endif

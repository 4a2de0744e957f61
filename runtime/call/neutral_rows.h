// Replaces a mask or score_bias over keys that a call leaves out by a row of elements that change nothing, one for each key. Kernels load
// these tensors in vectors along the keys, so one element is not enough, as it is for other tensors.
#ifndef POLYHEAD_RUNTIME_NEUTRAL_ROWS_H
#define POLYHEAD_RUNTIME_NEUTRAL_ROWS_H

#include <cstdint>

#include <polyhead/c_api.h>

#include "../../contract/tensors.h"
#include "../contract.h"
#include "../memory/call_memory.h"

namespace polyhead::runtime {

// Bytes that the rows of a checked call with so many keys take.
int64_t neutral_row_bytes(const polyhead_problem &problem, const polyhead_args &args, int64_t keys) noexcept;

// The rows of a checked call, while this object exists: on the device of the call where that has them, else in host memory.
class NeutralRows {
public:
    // Makes the rows that the arguments lack; the device of the call is entered. False and a status without memory.
    bool make(const polyhead_problem &problem, const polyhead_args &args, int64_t keys, CallMemory *memory,
              polyhead_status *status) noexcept;
    bool any() const noexcept { return count_ > 0; }
    // Puts the rows, or the first keys of them, in the place of what is absent.
    void put_into(polyhead_args *args, int64_t keys) const noexcept;

private:
    struct Row {
        const TensorRow *of;
        int32_t dtype;
        void *memory;
        const polyhead_device *device; // null: host memory
    };
    static constexpr int most = 2; // mask, score_bias
    CallBlock block_;
    Row rows_[most];
    int count_ = 0;
};

} // namespace polyhead::runtime
#endif

// Replaces a mask or score_bias over keys that a call leaves out by a row of elements that change nothing, one for each key. Kernels load
// these tensors in vectors along the keys, so one element is not enough, as it is for other tensors.
#ifndef POLYHEAD_RUNTIME_NEUTRAL_ROWS_H
#define POLYHEAD_RUNTIME_NEUTRAL_ROWS_H

#include <cstdint>

#include <polyhead/c_api.h>

#include "validate.h"

namespace polyhead::runtime {

// Bytes of scratch memory that the rows of a checked call take.
int64_t neutral_row_bytes(const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape) noexcept;

// The rows of a checked call, in host memory while this object exists.
class NeutralRows {
public:
    NeutralRows() noexcept = default;
    ~NeutralRows();
    NeutralRows(const NeutralRows &) = delete;
    NeutralRows &operator=(const NeutralRows &) = delete;

    // The arguments with rows in the place of what is absent; the given ones when nothing is. Null and a status without memory.
    const polyhead_args *complete(const polyhead_kernel &kernel, const polyhead_args *args, const CallShape &shape,
                                  polyhead_status *status) noexcept;

private:
    static constexpr int most = 2; // mask, score_bias
    void *rows_[most];
    int count_ = 0;
    polyhead_args args_;
};

} // namespace polyhead::runtime
#endif

// The extents that a call's tensors must have: what the problem fixes, and what tensors that were checked before have given.
#ifndef POLYHEAD_RUNTIME_BOUND_EXTENTS_H
#define POLYHEAD_RUNTIME_BOUND_EXTENTS_H

#include "../../contract/tensors.h"
#include "../contract.h"
#include "tensor_rules.h"
#include "validate.h"

namespace polyhead::runtime {

class BoundExtents {
public:
    // The problem has its defaults filled in; its heads may be free.
    BoundExtents(const polyhead_problem &problem, bool packed_q, bool packed_kv) noexcept;

    // What a dimension must have that counts this (a number, POLYHEAD_EXTENT_, or one of contract/tensors.h).
    Extent expected(int32_t declared) const noexcept;
    // The same of all dimensions of a tensor: one with packed tokens has no dimension for the batch.
    void expected(const int32_t *declared, int32_t rank, Extent *extents) const noexcept;

    // A checked tensor gives the lengths that it has.
    void give(const TensorRow &row, const polyhead_tensor &tensor) noexcept;
    void give(int32_t declared, int64_t extent, const char *as_in) noexcept;

    // The problem with the heads of this call.
    const polyhead_problem &problem() const noexcept { return problem_; }
    // Of a call whose lengths all are given.
    CallShape shape() const noexcept;

private:
    bool is_packed(int32_t what) const noexcept;
    int64_t fixed(int32_t what) const noexcept;

    polyhead_problem problem_;
    bool free_heads_, packed_q_, packed_kv_;
    Extent given_[1 - last_extent]; // by what they count; any_extent: not given
};

} // namespace polyhead::runtime
#endif

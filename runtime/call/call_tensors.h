// Which tensors one call has, and the extents that its lengths give them: for everything that has to go through all of them.
#ifndef POLYHEAD_RUNTIME_CALL_TENSORS_H
#define POLYHEAD_RUNTIME_CALL_TENSORS_H

#include <polyhead/c_api.h>

#include "../../contract/tensors.h"
#include "../contract.h"
#include "../rules/validate.h"
#include "kernel_table.h"

namespace polyhead::runtime {

struct NamedTensor {
    const char *name;
    const polyhead_tensor *tensor;
};

// The tensors that a call was given, inputs first. Its expression tensors have been counted.
class CallTensors {
public:
    CallTensors(const KernelTable &kernel, const polyhead_args &args) noexcept;

    const NamedTensor *begin() const noexcept { return tensors_; }
    const NamedTensor *end() const noexcept { return tensors_ + count_; }
    const NamedTensor *first_output() const noexcept { return tensors_ + first_output_; }

    static constexpr size_t most = num_tensors + 2 * most_expression_tensors;

private:
    void add(const char *name, const polyhead_tensor &tensor) noexcept;

    NamedTensor tensors_[most];
    int count_ = 0, first_output_ = 0;
};

// True of a declared extent that counts the packed tokens of all sequences of a call.
inline bool is_packed(int32_t declared, const CallShape &shape) noexcept {
    return (declared == POLYHEAD_EXTENT_Q && shape.packed_q) || (declared == POLYHEAD_EXTENT_KV && shape.packed_kv);
}

// How many elements a declared extent (POLYHEAD_EXTENT_, or a number) means in a call; any_extent when it is free. The problem has its
// defaults filled in.
int64_t extent_of(int32_t declared, const polyhead_problem &problem, const CallShape &shape) noexcept;

// True when the kernel was built for a mask or score_bias that has one element in this dimension (of the row, outermost first).
bool one_element(const TensorRow &row, const polyhead_problem &problem, int dimension) noexcept;

// True when one element may serve for all of a dimension (of the row, outermost first; of the declaration).
bool may_have_one(const TensorRow &row, const polyhead_problem &problem, int dimension) noexcept;
bool may_have_one(const polyhead_declaration &declaration, int dimension) noexcept;

// True of a mask or score_bias that the kernel was built to load along the keys.
bool over_keys(const TensorRow &row, const polyhead_problem &problem) noexcept;

// The extents with which the entry gets a tensor, outermost first: a mask that has one element in a dimension keeps it.
void full_extents(const TensorRow &row, const polyhead_problem &problem, const CallShape &shape, int64_t *extents) noexcept;

} // namespace polyhead::runtime
#endif

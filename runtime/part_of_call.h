// The arguments of a part of a call: some of its batch rows, or some of its sequences of packed tokens.
#ifndef POLYHEAD_RUNTIME_PART_OF_CALL_H
#define POLYHEAD_RUNTIME_PART_OF_CALL_H

#include <cstdint>

#include <polyhead/c_api.h>

#include "optional_tensors.h"
#include "validate.h"

namespace polyhead::runtime {

// Tokens of neighbouring sequences in a packed dimension: where the first sequence begins, and how many tokens each of them has.
struct Tokens {
    int64_t first = 0, each = 0;
};

struct Part {
    int64_t first = 0, count = 0; // batch rows, or sequences; of a linear layer: rows
    bool packed_q = false, packed_kv = false;
    Tokens queries, keys; // where they are packed
};

// Of a checked call. A part of packed tokens is a call with a batch: its sequences have equal lengths and lie one after another.
class PartOfCall {
public:
    PartOfCall(const polyhead_kernel &kernel, const polyhead_args &args, const Part &part) noexcept;
    PartOfCall(const PartOfCall &) = delete;
    PartOfCall &operator=(const PartOfCall &) = delete;
    polyhead_args &args() noexcept { return args_; }

private:
    polyhead_args args_;
    polyhead_tensor expression_tensors_[most_expression_tensors];
};

// True when a part of several sequences is one call: every packed tensor has a dimension for the batch.
bool can_be_batched(const polyhead_kernel &kernel, const polyhead_args &args, const CallShape &shape) noexcept;

} // namespace polyhead::runtime
#endif

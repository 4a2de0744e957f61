// The arguments of a part of a call: some of its batch rows, or some of its sequences of packed tokens.
#ifndef POLYHEAD_RUNTIME_PART_OF_CALL_H
#define POLYHEAD_RUNTIME_PART_OF_CALL_H

#include <cstdint>

#include <polyhead/c_api.h>

#include "../../contract/tensors.h"
#include "../contract.h"
#include "../rules/validate.h"
#include "kernel_table.h"

namespace polyhead::runtime {

// Tokens of neighbouring sequences in a packed dimension: where the first sequence begins, and how many tokens each of them has.
struct Tokens {
    int64_t first = 0, each = 0;
};

struct Part {
    int64_t first = 0, count = 0; // batch rows, or sequences; of a linear layer: rows
    bool packed_q = false, packed_kv = false;
    Tokens queries, keys; // where they are packed; some queries of a batch row
    bool some_queries = false;
};

// Of a checked call. A part of packed tokens is a call with a batch: its sequences have equal lengths and lie one after another. Some
// queries of a batch row keep their positions.
class PartOfCall {
public:
    PartOfCall(const KernelTable &kernel, const polyhead_args &args, const Part &part) noexcept;
    PartOfCall(const PartOfCall &) = delete;
    PartOfCall &operator=(const PartOfCall &) = delete;
    polyhead_args &args() noexcept { return args_; }

private:
    void keep_positions(const polyhead_problem &problem, const polyhead_args &whole, const Part &part) noexcept;

    polyhead_args args_;
    polyhead_tensor expression_tensors_[most_expression_tensors], expression_gradients_[most_expression_tensors];
    int32_t offset_ = 0;
};

// True where a batch row may be divided by its queries: they are free, and do not tell by themselves which they are.
bool can_divide_queries(const polyhead_problem &problem, const polyhead_args &args) noexcept;

// The name of a result that no part of a call has a part of: a sum over batch rows, or sequences. Null: there is none.
const char *summed_result(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape) noexcept;

// True when a part of several sequences is one call: every packed tensor has a dimension for the batch.
bool can_be_batched(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape) noexcept;

} // namespace polyhead::runtime
#endif

// Are these arguments what this kernel was built for? Every semantic rule of a call has its one place here or in tensor_rules.
#ifndef POLYHEAD_RUNTIME_VALIDATE_H
#define POLYHEAD_RUNTIME_VALIDATE_H

#include <polyhead/c_api.h>

#include "../call/kernel_table.h"
#include "../call/resources.h"

namespace polyhead::runtime {

// The free extents of a checked call.
struct CallShape {
    int64_t batch = 1, seq_len_q = 0, seq_len_kv = 0; // linear: rows in seq_len_q, and 1 in seq_len_kv
    int64_t num_heads = 1, num_kv_heads = 1;          // of attention
    int64_t needed_keys = 0;                          // of seq_len_kv, those that the kernel is shown: needed_keys.h
    bool packed_q = false, packed_kv = false;         // batch counts sequences, and this length is the sum of theirs
    bool backward = false;                            // keys have results, too
    bool sums_rows = false;                           // some result is a sum over all rows, of none 0
    bool ragged() const noexcept { return packed_q || packed_kv; }
    int64_t group_size() const noexcept { return num_kv_heads > 0 ? num_heads / num_kv_heads : 1; }
    // No result has an element.
    bool nothing_to_do() const noexcept {
        return !sums_rows && (batch == 0 || (no_queries() && (!backward || seq_len_kv == 0 || num_kv_heads == 0)));
    }
    // Every result is that of a query without keys, or of a key without queries.
    bool no_pairs() const noexcept { return batch == 0 || seq_len_kv == 0 || no_queries(); }
    // The numbers of integer tensors are read by nobody.
    bool reads_nothing() const noexcept { return nothing_to_do() || (backward && no_pairs()); }

private:
    bool no_queries() const noexcept { return seq_len_q == 0 || num_heads == 0; }
};

// resources: with which values are checked.
bool validate(const KernelTable &kernel, const polyhead_args &args, const Resources &resources, CallShape *shape,
              polyhead_status *status) noexcept;

} // namespace polyhead::runtime
#endif

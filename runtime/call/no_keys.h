// The answer when seq_len_kv is 0.
#ifndef POLYHEAD_RUNTIME_NO_KEYS_H
#define POLYHEAD_RUNTIME_NO_KEYS_H

#include <cstddef>

#include <polyhead/c_api.h>

namespace polyhead::runtime {

// Memory that the answer to checked arguments takes while it is written.
size_t bytes_without_keys(const polyhead_problem &problem, const polyhead_args &args) noexcept;

// Writes out and lse of checked arguments without keys: every row is an empty row. Only memory of a device can fail.
void answer_without_keys(const polyhead_problem &problem, const polyhead_args &args, void *memory, polyhead_status *status) noexcept;

} // namespace polyhead::runtime
#endif

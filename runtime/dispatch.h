// Chooses a variant: by CPU features and query length only, the first of the table that may run.
#ifndef POLYHEAD_RUNTIME_DISPATCH_H
#define POLYHEAD_RUNTIME_DISPATCH_H

#include <polyhead/c_api.h>

namespace polyhead::runtime {

class Text;

// True when this machine has what the variant needs.
bool runs_here(const polyhead_variant &variant) noexcept;

// True when the variant may run this length here; otherwise why_not, if given, gets half a sentence ("needs avx512_skylake").
bool eligible(const polyhead_kernel &kernel, const polyhead_variant &variant, int64_t seq_len_q, Text *why_not) noexcept;

// The first eligible variant, or null and a status that says what is missing.
const polyhead_variant *select_variant(const polyhead_kernel &kernel, int64_t seq_len_q, polyhead_status *status) noexcept;

} // namespace polyhead::runtime
#endif

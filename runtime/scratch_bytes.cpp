// Memory that one call of a kernel holds at once: the terms of its variant, by the lengths of the call.
#include "scratch_bytes.h"

#include <algorithm>
#include <cstdint>

#include "needed_keys.h"
#include "weight_layout.h"

namespace polyhead::runtime {
namespace {

// Products of non-negative numbers that stop at the largest.
int64_t times(int64_t a, int64_t b) noexcept {
    int64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t plus(int64_t a, int64_t b) noexcept {
    int64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

int64_t blocks(int64_t elements, int64_t block) noexcept {
    return (elements + block - 1) / block;
}

} // namespace

int64_t thread_scratch_bytes(const polyhead_variant &variant, const CallShape &s) noexcept {
    const polyhead_scratch_term &keys = variant.scratch.thread_keys;
    const int64_t of_keys = keys.key_block > 0 ? times(keys.bytes, blocks(s.needed_keys, keys.key_block)) : 0;
    return plus(variant.scratch.per_thread, of_keys);
}

int64_t scratch_bytes(const polyhead_problem &given, const polyhead_variant &variant, const polyhead_args &args, const CallShape &s,
                      int threads) noexcept {
    if (s.no_keys()) {
        return 0;
    }
    const polyhead_problem p = with_defaults(given);
    const int64_t rows = s.seq_len_q * group_size_of(p);
    // Terms of a kernel with free heads are of one key/value head.
    const int64_t times_of_terms = times(s.batch, free_heads(p) ? s.num_heads / group_size_of(p) : 1);
    const int64_t keys = s.needed_keys, windows = keys_in_windows(p, args, s);
    // On a device scratch of a thread is registers and shared memory.
    int64_t bytes = variant.api == POLYHEAD_CPU ? times(threads, thread_scratch_bytes(variant, s)) : 0;
    for (const polyhead_scratch_term &term : variant.scratch.terms) {
        int64_t of_term = times(term.bytes, times_of_terms);
        of_term = term.row_block > 0 ? times(of_term, blocks(rows, term.row_block)) : of_term;
        if (term.key_block > 0) { // a window may begin and end anywhere in a block
            const int64_t all = blocks(keys, term.key_block), some = (windows + term.key_block - 2) / term.key_block + 1;
            of_term = times(of_term, term.in_window ? std::min(all, some) : all);
        }
        bytes = plus(bytes, of_term);
    }
    return bytes;
}

} // namespace polyhead::runtime

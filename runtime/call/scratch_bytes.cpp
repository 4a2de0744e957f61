// Memory that one call of a kernel holds at once: the terms of its variant, by the lengths of the call.
#include "scratch_bytes.h"

#include <algorithm>
#include <cstdint>

#include "../../contract/weight_layout.h"
#include "../contract.h"
#include "needed_keys.h"

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

// Counts once, and not for each batch row.
bool counts_once(const polyhead_scratch_term &term) noexcept {
    return term.row_block < 0;
}

// What the terms of a variant count in one call.
class Terms {
public:
    Terms(const polyhead_problem &problem, const polyhead_args &args, const CallShape &s) noexcept
        : group_size_(s.group_size()), windows_(keys_in_windows(with_defaults(problem), args, s)), keys_(s.needed_keys),
          queries_(s.seq_len_q),
          // Terms of a kernel with free heads are of one key/value head.
          heads_(free_heads(problem) ? s.num_kv_heads : 1) {}

    // Of one block of queries of a batch row.
    int64_t bytes_of_block(const polyhead_scratch_term &term) const noexcept {
        const int64_t bytes = times(term.bytes, heads_);
        if (term.key_block == 0) {
            return bytes;
        }
        // A window may begin and end anywhere in a block.
        const int64_t all = blocks(keys_, term.key_block), some = (windows_ + term.key_block - 2) / term.key_block + 1;
        return times(bytes, term.in_window ? std::min(all, some) : all);
    }
    // Of a batch row.
    int64_t bytes(const polyhead_scratch_term &term) const noexcept {
        return term.row_block > 0 ? times(bytes_of_block(term), blocks(queries_ * group_size_, term.row_block)) : bytes_of_block(term);
    }
    // How many queries take no more than so many bytes.
    int64_t queries_in(int64_t most_bytes, const polyhead_scratch_term &term) const noexcept {
        const int64_t of_block = bytes_of_block(term);
        if (of_block == 0 || (term.row_block == 0 && of_block <= most_bytes)) {
            return queries_;
        }
        return term.row_block == 0 ? 0 : std::min(queries_, times(most_bytes / of_block, term.row_block) / group_size_);
    }

private:
    const int64_t group_size_, windows_, keys_, queries_, heads_;
};

} // namespace

int64_t thread_scratch_bytes(const polyhead_variant &variant, const CallShape &s) noexcept {
    const polyhead_scratch_term &keys = variant.scratch.thread_keys;
    const int64_t of_keys = keys.key_block > 0 ? times(keys.bytes, blocks(s.needed_keys, keys.key_block)) : 0;
    const int64_t of_queries = keys.row_block > 0 ? times(times(keys.query_bytes, s.group_size()), blocks(s.seq_len_q, keys.row_block)) : 0;
    return plus(variant.scratch.per_thread, plus(of_keys, of_queries));
}

int64_t scratch_bytes(const polyhead_problem &problem, const polyhead_variant &variant, const polyhead_args &args, const CallShape &s,
                      int threads) noexcept {
    if (s.no_pairs()) {
        return 0;
    }
    const Terms terms(problem, args, s);
    // On a device scratch of a thread is registers and shared memory.
    int64_t bytes = variant.api == POLYHEAD_CPU ? times(threads, thread_scratch_bytes(variant, s)) : 0;
    for (const polyhead_scratch_term &term : variant.scratch.terms) {
        bytes = plus(bytes, times(counts_once(term) ? 1 : s.batch, terms.bytes(term)));
    }
    return bytes;
}

bool fits(const Fit &fit, const polyhead_problem &problem, const CallShape &s) noexcept {
    return fit.rows >= (attends(problem) ? s.batch : s.seq_len_q);
}

Fit fit_of(const polyhead_problem &problem, const polyhead_variant &variant, const polyhead_args &args, const CallShape &s) noexcept {
    constexpr int64_t most = INT32_MAX;
    const Terms terms(problem, args, s);
    Fit fit{s.batch, s.seq_len_q, 0};
    for (const polyhead_scratch_term &term : variant.scratch.terms) {
        const int64_t bytes = terms.bytes(term);
        fit.bytes = std::max(fit.bytes, bytes);
        if (times(counts_once(term) ? 1 : s.batch, bytes) > most) {
            fit.rows = std::min(fit.rows, most / bytes);
            fit.queries = std::min(fit.queries, terms.queries_in(most, term));
        }
    }
    if (!attends(problem)) { // whose rows are counted as queries
        fit.rows = fit.queries;
    }
    return fit;
}

} // namespace polyhead::runtime

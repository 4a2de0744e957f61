// The checks that every kernel must pass, beside its answers. Each returns an empty string, or sentences that say what failed and how to
// repeat it.
#ifndef POLYHEAD_TESTS_CHECK_H
#define POLYHEAD_TESTS_CHECK_H

#include <string>

#include "instruments/reference/check_answer.h"

namespace polyhead::test {

// The same bits with 1, 2 and 5 threads, for a batch row alone and among the others, and for T_kv longer than the row's length.
// The lengths in shape leave room for the latter: T_kv is narrowed step by step down to the largest length.
std::string check_same_bits(const Subject &subject, const Shape &shape);

// The same bits with 1 and 2 threads only: a fraction of the cost.
std::string check_two_threads(const Subject &subject, const Shape &shape);

// Random sequences as packed tokens, keys likewise or in batch rows (pages), with 1, 2 and 5 threads: the bits of each sequence alone.
// most_rows: queries of a sequence. Only for problems that take packed tokens.
std::string check_ragged(const Subject &subject, uint64_t seed, int64_t most_rows = 70);
bool takes_packed_tokens(const Problem &problem);

// Wrong arguments of many kinds: each must be refused with a sentence, and leave the outputs untouched.
std::string check_refusals(const Subject &subject, const Shape &shape);

} // namespace polyhead::test
#endif

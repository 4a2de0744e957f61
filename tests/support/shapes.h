// Run-time shapes for a problem: awkward lengths, batches, layouts, values, within the time that the reference may take.
#ifndef POLYHEAD_TESTS_SHAPES_H
#define POLYHEAD_TESTS_SHAPES_H

#include <vector>

#include "instruments/calls/inputs.h"

namespace polyhead::test {

// About how many multiply-adds a kernel does for it, without masks. All shapes below stay near the limits of the reference and of
// test_budget(), as far as fixed lengths allow.
double multiply_adds(const Problem &problem, const Shape &shape);
// Anything the problem allows, lengths 0 to 700.
Shape random_shape(const Problem &problem, Random &random);
// `count` shapes: the first ones walk through the awkward lengths, the others are random.
std::vector<Shape> awkward_shapes(const Problem &problem, uint64_t seed, int count);
// A shape of ordinary dense tensors with these lengths (or the fixed ones), full key lengths absent.
// Smaller where POLYHEAD_TEST_BUDGET asks for it.
Shape plain_shape(const Problem &problem, int64_t batch, int64_t seq_len_q, int64_t seq_len_kv, uint64_t seed);
// A length for each batch row that the shape got, at most the keys that it got: the wanted ones, 0 behind them.
std::vector<int32_t> lengths_within(const Shape &shape, std::vector<int32_t> wanted);
// Three batch rows of different key lengths, one empty, in padded and interleaved layouts at the end of a page, with poison.
Shape crowded_shape();
// Seven batch rows of different key lengths (when the problem has lengths) with room for up to 300 keys of padding; fewer and less on a
// device that is emulated.
Shape same_bits_shape(const Problem &problem, uint64_t seed);

} // namespace polyhead::test
#endif

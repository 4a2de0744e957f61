// What masks and biases say in tests.
#ifndef POLYHEAD_INSTRUMENTS_MASK_VALUES_H
#define POLYHEAD_INSTRUMENTS_MASK_VALUES_H

#include "extras.h"

namespace polyhead::test {

// Fills a mask of rank 1 to 4.
void fill_boolean_mask(const polyhead_tensor &mask, MaskFill fill, Random &random);
// Numbers near 0; -inf where the boolean mask of that fill is false.
void fill_additive_mask(const polyhead_tensor &mask, MaskFill fill, Random &random);

} // namespace polyhead::test
#endif

// Numbers that may reach no result, in rows that nothing may look at.
#ifndef POLYHEAD_INSTRUMENTS_POISON_H
#define POLYHEAD_INSTRUMENTS_POISON_H

#include <cstdint>

namespace polyhead::test {

// NaN, infinities and huge numbers of the storage type: one kind in the row of this position, or all of them.
void poison_row(float *row, int64_t features, int64_t position, int32_t dtype);

} // namespace polyhead::test
#endif

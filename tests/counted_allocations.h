// How often a piece of a test allocates or frees, by whatever function of the C library.
#ifndef POLYHEAD_TESTS_COUNTED_ALLOCATIONS_H
#define POLYHEAD_TESTS_COUNTED_ALLOCATIONS_H

namespace polyhead::test {

// Calls of malloc and its kin, and of free, of all threads, since the program began.
long allocations_so_far();

} // namespace polyhead::test
#endif

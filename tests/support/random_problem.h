// Random problems for the sweep: every operation, odd dims, grouped heads, masks, lse, lengths fixed now and then.
#ifndef POLYHEAD_TESTS_RANDOM_PROBLEM_H
#define POLYHEAD_TESTS_RANDOM_PROBLEM_H

#include <polyhead/polyhead.h>

#include "instruments/calls/random.h"

namespace polyhead::test {

Problem random_problem(Random &random);

} // namespace polyhead::test
#endif

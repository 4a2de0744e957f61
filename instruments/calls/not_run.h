// Parts that a test could not run on this machine: printed in lines that ./polyhead test counts, so that they do not count as tested.
#ifndef POLYHEAD_INSTRUMENTS_NOT_RUN_H
#define POLYHEAD_INSTRUMENTS_NOT_RUN_H

#include <string>

namespace polyhead::test {

// Something was run. A test that notes things left out and nothing run says so at the end of the program, and counts as skipped.
void note_run();

// Prints "NOT RUN: what: why", once for each `what` of a program.
void note_not_run(const std::string &what, const std::string &why);

} // namespace polyhead::test
#endif

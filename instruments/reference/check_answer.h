// The answers of a kernel against the float64 reference.
#ifndef POLYHEAD_INSTRUMENTS_CHECK_ANSWER_H
#define POLYHEAD_INSTRUMENTS_CHECK_ANSWER_H

#include <string>

#include "../calls/inputs.h"
#include "../calls/subject.h"

namespace polyhead::test {

// An empty string, or sentences that say what failed and how to repeat it.
//
// Runs once and compares with the float64 reference under the tolerance; the outputs must be written completely, the gaps
// between their rows and the memory around them not at all. worst, when given, is raised to the largest error / tolerance.
std::string check_answer(const Subject &subject, const Shape &shape, double *worst = nullptr, double max_flops = 1e8);

// "reproduce: ..." for a failure message.
std::string reproduce(const Subject &subject, const Shape &shape);

} // namespace polyhead::test
#endif

// Gradients of linear layers on the CPU, as % of its measured peak.
#ifndef BENCH_LINEAR_BACKWARD_H
#define BENCH_LINEAR_BACKWARD_H

#include <regex>

namespace bench {

// Prints the lines whose names match, with % of the peak on one thread. Returns how many do not keep what was promised: `promised` says
// whether this machine has promises.
int run_linear_backward(const std::regex &wanted, int rounds, bool promised);

} // namespace bench
#endif

// What the CPU and the operating system offer, and the limits that the environment and tests may put on it.
#ifndef POLYHEAD_RUNTIME_CPU_FEATURES_H
#define POLYHEAD_RUNTIME_CPU_FEATURES_H

#include <cstdint>

namespace polyhead::runtime {

// The offered features after the limits. The operating system's permission for AMX is requested only when `wanted` has that bit: it
// enlarges the signal frames of the whole process, which programs without AMX kernels do not need.
uint64_t cpu_features(uint64_t wanted) noexcept;

// For tests that emulate instructions: these features are found, too. Returns those of the call before.
uint64_t pretend_cpu_features(uint64_t features) noexcept;

} // namespace polyhead::runtime
#endif

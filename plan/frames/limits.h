// Bounds of what several knobs take together, for the refusals of frames. Far above what is fast, and where a kernel still compiles in
// seconds and runs in a thread's caches. And sentences about knobs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "../../machines/machine.h"
#include "../tiling.h"

namespace polyhead::gen {

constexpr int most_sums = 128;           // vectors of a register tile; no machine has more than 32 registers
constexpr int64_t most_unrolled = 2560;  // unrolled multiply-adds in the code
constexpr int most_thread_sums = 256;    // that a thread of a GPU keeps in registers, of which it has 255
constexpr int most_threads = 1024;       // of a block
constexpr int most_threads_along_z = 64; // CUDA, and what every Vulkan device has

constexpr int dropout_group = 128; // keys whose decisions are made together

constexpr int kilobytes(int64_t bytes) {
    return static_cast<int>((bytes + 1023) / 1024);
}

// "tiling: WHAT take FOUND UNIT, expected at most MOST", or empty.
std::string at_most(const std::string &what, int64_t found, int64_t most, const std::string &unit);
// "tiling: WHAT take ACCUMULATORS + OTHERS of N registers" where these are more, or empty.
std::string needs_registers(const char *what, int accumulators, int others, const Machine &machine);
// As printf.
[[gnu::format(printf, 1, 2)]] std::string sentence(const char *format, ...);
// Why keys that are computed together are not whole groups of dropout, or empty.
std::string groups_refusal(const Problem &problem, const Tiling &tiling);
std::string first_of(std::initializer_list<std::string> sentences);

} // namespace polyhead::gen

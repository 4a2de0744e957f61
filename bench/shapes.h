// Which run-time shapes a kernel is timed over.
#ifndef BENCH_SHAPES_H
#define BENCH_SHAPES_H

#include <string>
#include <vector>

#include <polyhead/polyhead.h>

namespace bench {

// Lengths of one call; linear has its rows in seq_len_q. valid_keys: of every batch row, 0 for all.
struct Lengths {
    int64_t batch = 1, seq_len_q = 0, seq_len_kv = 0, valid_keys = 0;
};
std::string to_string(const polyhead::Problem &problem, const Lengths &shape);
// The shapes of this kernel: its fixed lengths where it has them, else short, long and awkward ones.
std::vector<Lengths> shapes_of(const polyhead::Problem &problem);

// A case with a promised speed, and how to recognise kernels that serve it.
struct SpeedLine {
    const char *name;
    polyhead::Problem problem; // lengths are free; key lengths, and the bias of a linear layer, are free too
    Lengths shape;
    double min_percent, min_percent_avx2; // of the peak, one thread, on a CPU with AVX-512 and on others; 0: no floor
    double of_line_before;                // at least so much of the % of the line before, in the same run; 0: nothing is required

    double floor() const { return polyhead_cpu_features() & POLYHEAD_CPU_AVX512_SKYLAKE ? min_percent : min_percent_avx2; }
};
const std::vector<SpeedLine> &speed_lines();
// Whether the kernel, with free lengths, computes this line's case.
bool serves(const SpeedLine &line, const polyhead::Problem &problem);

} // namespace bench
#endif

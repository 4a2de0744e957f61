// The roofs of this machine, measured: FMA peak and read bandwidth, by any number of threads, in slices as short as wanted.
#ifndef BENCH_ROOF_H
#define BENCH_ROOF_H

#include <functional>
#include <memory>
#include <vector>

namespace roof {

// Threads that start together and sleep in between; the caller is thread 0.
class Team {
public:
    explicit Team(int threads);
    ~Team();
    Team(const Team &) = delete;
    Team &operator=(const Team &) = delete;
    int threads() const;
    // Runs work(thread) on all of them; the seconds from the common start to the end of the slowest.
    double run(const std::function<void(int)> &work);

private:
    struct State;
    std::unique_ptr<State> state_;
};

// The widest multiply-add this machine has: "AVX-512 FMA", "AVX2 FMA", "SSE multiply and add", "128-bit vectors".
const char *fma_name();
// GFLOP/s of all threads of the team in independent multiply-adds, over about so many seconds.
double fma_gflops(Team &team, double seconds);
// GB/s that the team reads from memory beyond the caches (256 MiB, 2 MiB pages where the system gives them).
double read_gbs(Team &team);

// Median and quartiles.
struct Spread {
    double median = 0, q1 = 0, q3 = 0;
    double iqr() const { return q3 - q1; }
};
Spread spread(std::vector<double> values);

// One round: calls and peak slices of the same length in turn, so that whatever disturbs the machine disturbs both alike.
struct Round {
    double seconds = 0;     // median of the calls
    double peak_gflops = 0; // median of the peak slices
};
// At least `min_calls` calls and `min_seconds` of calls.
Round measure_round(Team &team, const std::function<void()> &call, double min_seconds, int min_calls = 5);

} // namespace roof
#endif

// A team of threads that start together: what rates of several cores are measured with.
#ifndef BENCH_TEAM_H
#define BENCH_TEAM_H

#include <functional>
#include <memory>

namespace roof {

// Seconds of a clock that never jumps.
double now();

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

} // namespace roof
#endif

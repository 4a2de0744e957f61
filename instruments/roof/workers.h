// Threads that start together: rates of several cores are measured with them.
#ifndef POLYHEAD_INSTRUMENTS_WORKERS_H
#define POLYHEAD_INSTRUMENTS_WORKERS_H

#include <functional>
#include <memory>

namespace roof {

// Seconds of a clock that never jumps.
double now();

// Threads that start together and sleep in between; the caller is thread 0.
class Workers {
public:
    explicit Workers(int threads);
    ~Workers();
    Workers(const Workers &) = delete;
    Workers &operator=(const Workers &) = delete;
    int threads() const;
    // Runs work(thread) on all of them; the seconds from the common start to the end of the slowest.
    double run(const std::function<void(int)> &work);

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace roof
#endif

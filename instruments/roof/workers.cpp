// Threads that start together and sleep in between.
#include "workers.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace roof {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

namespace {

std::vector<int> allowed_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> cpus;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &set))
                cpus.push_back(cpu);
    return cpus;
}

void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

} // namespace

struct Workers::State {
    int threads = 1;
    std::vector<std::thread> workers;
    std::vector<double> end;
    std::mutex mutex;
    std::condition_variable wake;
    const std::function<void(int)> *work = nullptr;
    uint64_t generation = 0;
    bool stop = false;
    std::atomic<int> ready{0}, done{0};
    std::vector<int> cpus = allowed_cpus();

    // All threads leave this spin together; then each does its part.
    void part(int thread, const std::function<void(int)> &job) {
        ready++;
        while (ready.load() < threads)
            std::this_thread::yield();
        job(thread);
        end[thread] = now();
        done++;
    }

    void loop(int thread) {
        if (static_cast<int>(cpus.size()) >= threads)
            pin(cpus[thread]);
        uint64_t seen = 0;
        while (true) {
            const std::function<void(int)> *job;
            {
                std::unique_lock<std::mutex> lock(mutex);
                wake.wait(lock, [&] { return stop || generation != seen; });
                if (stop)
                    return;
                seen = generation;
                job = work;
            }
            part(thread, *job);
        }
    }
};

Workers::Workers(int threads) : state_(new State) {
    state_->threads = std::max(1, threads);
    state_->end.resize(state_->threads);
    for (int i = 1; i < state_->threads; i++)
        state_->workers.emplace_back([this, i] { state_->loop(i); });
}

Workers::~Workers() {
    {
        std::lock_guard<std::mutex> lock(state_->mutex);
        state_->stop = true;
    }
    state_->wake.notify_all();
    for (std::thread &worker : state_->workers)
        worker.join();
}

int Workers::threads() const {
    return state_->threads;
}

double Workers::run(const std::function<void(int)> &work) {
    State &s = *state_;
    cpu_set_t before;
    bool pinned = s.threads > 1 && static_cast<int>(s.cpus.size()) >= s.threads && sched_getaffinity(0, sizeof before, &before) == 0;
    if (pinned)
        pin(s.cpus[0]); // the workers have the others
    double start = 0;
    const std::function<void(int)> timed = [&](int thread) {
        if (thread == 0)
            start = now();
        work(thread);
    };
    {
        std::lock_guard<std::mutex> lock(s.mutex);
        s.ready = 0;
        s.done = 0;
        s.work = &timed;
        s.generation++;
    }
    s.wake.notify_all();
    s.part(0, timed);
    while (s.done.load() < s.threads)
        std::this_thread::yield();
    if (pinned)
        sched_setaffinity(0, sizeof before, &before);
    return *std::max_element(s.end.begin(), s.end.end()) - start;
}

} // namespace roof

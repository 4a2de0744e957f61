// A system that refuses: the N-th piece of memory, thread or file that the runtime asks for from now on cannot be had.
#ifndef POLYHEAD_TESTS_FAILING_SYSTEM_H
#define POLYHEAD_TESTS_FAILING_SYSTEM_H

#include <thread>

#include <polyhead/polyhead.h>

#include "../runtime/memory/memory.h"
#include "support/catch.h"

namespace polyhead::test {

enum class Resource { memory, thread, file };

// One at a time of each resource. While it exists, request number n of one resource (counted from 1, of all threads) is refused; with every
// = true also all later ones.
class Failing {
public:
    Failing(Resource resource, int n, bool every = false);
    ~Failing();
    Failing(const Failing &) = delete;
    Failing &operator=(const Failing &) = delete;
    bool happened() const; // it was asked for n times

private:
    const Resource resource_;
};

// Runs it on a new thread with a new pool, so that nothing is kept from a call before.
template <typename Body> void afresh(int threads, const Body &body) {
    set_num_threads(1);
    set_num_threads(threads);
    runtime::give_kept_memory_back();
    std::thread(body).join();
}

// Runs it afresh again and again, each time with the next request for memory refused, until a run makes fewer than `most` requests; looks
// at every status.
template <typename Run, typename Look> void refuse_each_allocation(int threads, int most, const Run &run, const Look &look) {
    bool happened = true;
    for (int n = 1; happened; ++n) {
        REQUIRE(n < most);
        CAPTURE(n);
        polyhead_status status{};
        afresh(threads, [&] {
            const Failing memory(Resource::memory, n);
            status = run();
            happened = memory.happened();
        });
        look(status);
    }
}

} // namespace polyhead::test
#endif

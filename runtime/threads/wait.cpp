// How long helper threads look for the next call.
#include <algorithm>
#include <atomic>
#include <cstdlib>

#include <polyhead/c_api.h>

#include "../call/call_guard.h"
#include "threads.h"

namespace polyhead::runtime {
namespace {

// The next call of a model comes soon, and waking a thread takes as long as 12 heads of 32 tokens. Where threads outnumber CPUs, those that
// look would stop those that compute.
constexpr int standard = 1000, standard_of_many = 20, longest = 1000000; // microseconds

// The value of POLYHEAD_WAIT, or -1 where it is no number of digits alone, whatever the locale says.
int from_environment() noexcept {
    const char *text = std::getenv("POLYHEAD_WAIT");
    if (!text || *text == 0) {
        return -1;
    }
    int wait = 0;
    for (; *text >= '0' && *text <= '9'; ++text) {
        wait = std::min(10 * wait + (*text - '0'), longest);
    }
    return *text == 0 ? wait : -1;
}

std::atomic<int> chosen{from_environment()}; // -1: the default

} // namespace

std::chrono::microseconds time_to_look(bool crowded) noexcept {
    const int wait = chosen.load(std::memory_order_relaxed);
    if (wait >= 0) {
        return std::chrono::microseconds(wait);
    }
    return std::chrono::microseconds(crowded ? standard_of_many : standard);
}

} // namespace polyhead::runtime

void polyhead_set_wait(int32_t microseconds) {
    using namespace polyhead::runtime;
    const CallGuard guard;
    chosen.store(microseconds < 0 ? from_environment() : std::min(microseconds, longest), std::memory_order_relaxed);
}

int32_t polyhead_wait(void) {
    using namespace polyhead::runtime;
    const CallGuard guard;
    return static_cast<int32_t>(time_to_look(num_threads() > usable_cpus()).count());
}

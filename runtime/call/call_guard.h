// What every function of the C API does first.
#ifndef POLYHEAD_RUNTIME_CALL_GUARD_H
#define POLYHEAD_RUNTIME_CALL_GUARD_H

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace polyhead::runtime {

// A function of this library is not a cancellation point: it holds locks, has helpers at work on the caller's stack, and does not unwind.
// pthread_cancel() acts at the caller's next cancellation point after it.
class CallGuard {
public:
#if defined(__unix__) || defined(__APPLE__)
    CallGuard() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~CallGuard() { pthread_setcancelstate(before_, nullptr); }
#else
    CallGuard() noexcept {}
    ~CallGuard() {}
#endif
    CallGuard(const CallGuard &) = delete;
    CallGuard &operator=(const CallGuard &) = delete;

private:
    int before_ = 0;
};

} // namespace polyhead::runtime
#endif

// A thread of this library, whatever thread starts it.
#ifndef POLYHEAD_RUNTIME_HELPER_THREAD_H
#define POLYHEAD_RUNTIME_HELPER_THREAD_H

#include <pthread.h>

namespace polyhead::runtime {

// It runs on the CPUs and with the priority of the process, not with those of the thread that happens to make the first call. Signals that
// are sent to the process are for other threads. False when there is no such thread to be had.
bool start_helper_thread(pthread_t *thread, void *(*main)(void *), void *argument) noexcept;

// Called by such a thread at its start: the niceness of the process.
void take_priority_of_process() noexcept;

} // namespace polyhead::runtime
#endif

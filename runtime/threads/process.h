// What the runtime does about fork: a child has the memory of its parent, but neither its threads nor its devices.
#ifndef POLYHEAD_RUNTIME_PROCESS_H
#define POLYHEAD_RUNTIME_PROCESS_H

namespace polyhead::runtime {

// 0 in the process that loaded the library, one more in each child.
int fork_generation() noexcept;

// A mutex of the runtime is held across fork, so that a child finds what it guards whole and free. Called by process.cpp alone.
void lock_threads_for_fork() noexcept;
void unlock_threads_after_fork(bool in_child) noexcept; // a child forgets the threads that it has not
void lock_memory_for_fork() noexcept;
void unlock_memory_after_fork() noexcept;

} // namespace polyhead::runtime
#endif

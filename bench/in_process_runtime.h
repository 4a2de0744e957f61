// Code compiled in process on the memory and the threads of polyhead's runtime, as ahead-of-time kernels are.
#ifndef BENCH_IN_PROCESS_RUNTIME_H
#define BENCH_IN_PROCESS_RUNTIME_H

namespace bench {

// Before the first kernel is compiled; more calls do nothing.
void share_runtime();

} // namespace bench
#endif

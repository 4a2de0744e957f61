// What benches of the table share: its kernels by their names and by the line that they serve, and the numbers of threads.
#ifndef BENCH_KERNELS_H
#define BENCH_KERNELS_H

#include <cstring>
#include <vector>

#include <kernel_table.h>

#include "shapes.h"

namespace bench {

// Null when the table of this build has none of this name.
inline const polyhead::Kernel *kernel_named(const char *name) {
    for (size_t i = 0; i < kernel_table_count; i++)
        if (std::strcmp(kernel_table[i]->name, name) == 0)
            return kernel_table[i];
    return nullptr;
}

// One thread, and as many as were asked for.
inline std::vector<int> thread_counts(int threads) {
    return threads > 1 ? std::vector<int>{1, threads} : std::vector<int>{1};
}

// One that serves a line, or null. A kernel with neither key lengths nor other extras is the plainest measure of it, so it goes first.
inline const polyhead::Kernel *kernel_of(const SpeedLine &line) {
    const polyhead::Kernel *found = nullptr;
    for (size_t i = 0; i < kernel_table_count; i++) {
        const polyhead::Kernel *kernel = kernel_table[i];
        if (serves(line, kernel->problem) && (!found || kernel->problem.kv_lengths < found->problem.kv_lengths))
            found = kernel;
    }
    return found;
}

} // namespace bench
#endif

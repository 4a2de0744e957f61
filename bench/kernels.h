// Kernels of the table by their names.
#ifndef BENCH_KERNELS_H
#define BENCH_KERNELS_H

#include <cstring>

#include <kernel_table.h>

namespace bench {

// Null when the table of this build has none of this name.
inline const polyhead::Kernel *kernel_named(const char *name) {
    for (size_t i = 0; i < kernel_table_count; i++)
        if (std::strcmp(kernel_table[i]->name, name) == 0)
            return kernel_table[i];
    return nullptr;
}

} // namespace bench
#endif

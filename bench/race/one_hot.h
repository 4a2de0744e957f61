// Whether the layouts of a kernel in registers and shared memory are those of the device: inputs with one entry per row.
#ifndef BENCH_RACE_ONE_HOT_H
#define BENCH_RACE_ONE_HOT_H

#include <string>

#include <polyhead/polyhead.h>

namespace bench {

// "" or a sentence: which probe failed, the first wrong entry, and how many there are.
std::string check_layouts(const polyhead::Kernel &kernel, const polyhead::Device &device, int64_t seq_len_q, int64_t seq_len_kv);

} // namespace bench
#endif

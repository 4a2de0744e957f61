// A loop over rows that are independent of each other, by all workers of a call.
#ifndef POLYHEAD_RUNTIME_FOR_EACH_ROW_H
#define POLYHEAD_RUNTIME_FOR_EACH_ROW_H

#include <cstdint>

#include "thread_pool.h"
#include "threads.h"

namespace polyhead::runtime {

// Calls row(i) for i = 0 .. count - 1, by all workers where the bytes that are moved are worth it.
template <typename Row> void for_each_row(int64_t count, int64_t bytes, Workers *workers, const Row &row) noexcept {
    constexpr int64_t least_bytes = 1 << 18; // waking a thread takes as long as copying a part of this
    if (bytes < least_bytes || count > INT32_MAX) {
        for (int64_t i = 0; i < count; ++i) {
            row(i);
        }
        return;
    }
    const auto task = [](void *, int index, uint8_t *closure) {
        (*reinterpret_cast<const Row *>(closure))(index);
        return 0;
    };
    ParallelLoop loop(task, nullptr, reinterpret_cast<uint8_t *>(const_cast<Row *>(&row)), 0, static_cast<int32_t>(count), nullptr);
    (void)workers->run(&loop);
}

} // namespace polyhead::runtime
#endif

// Shared memory: size, poison.
#include "shared_memory.h"

#include <algorithm>

namespace polyhead::cuda_driver {

void SharedMemory::resize(size_t bytes, int granule) {
    shift_ = granule == 1 ? 0 : granule == 2 ? 1 : 2;
    bytes_.assign(bytes, 0);
    places_.assign((bytes >> shift_) + 1, Place());
}

void SharedMemory::start_block() {
    std::fill(bytes_.begin(), bytes_.end(), static_cast<char>(0xff)); // NaN as f16, bf16, f32 and f64
    epoch_++;
}

} // namespace polyhead::cuda_driver

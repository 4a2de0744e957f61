// How much memory traffic one access of a warp makes: what a schedule is judged by when there is no GPU to time it on.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_TRAFFIC_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_TRAFFIC_H

#include <cstdint>

namespace polyhead::cuda_driver {

// Different sectors of 32 bytes that the active lanes touch; bytes per lane, aligned to their size.
uint32_t sectors(const uint64_t *addresses, uint32_t active);

// Passes over the 32 banks of 4 bytes that an access needs: 1 without conflicts, for 8 and 16 bytes per lane 2 and 4.
uint32_t bank_passes(const uint64_t *addresses, uint32_t active, int bytes);

} // namespace polyhead::cuda_driver
#endif

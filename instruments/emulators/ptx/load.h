// From PTX text to a Module.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_LOAD_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_LOAD_H

#include "device_memory.h"
#include "program.h"

#include <string>

namespace polyhead::cuda_driver {

enum class LoadResult { ok, not_ptx, too_new, invalid, out_of_memory };

// `capability` of the device, 80 for 8.0. Variables of the module get their place in the memory of the device.
LoadResult load_module(const std::string &ptx, int capability, DeviceMemory &memory, const void *owner, Module &module,
                       std::string &problem);

// Sets where the sides of each branch meet again.
void find_reconvergence(Kernel &kernel);

} // namespace polyhead::cuda_driver
#endif

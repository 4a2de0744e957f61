// Memory of a CUDA context that is written once: the elements and rows that stand for tensors which a call leaves out. All devices of the
// context share it. Because nothing changes it, kernels of any stream may read it at any time, also those of a graph that is started later.
#ifndef POLYHEAD_RUNTIME_GPU_CUDA_CONSTANTS_H
#define POLYHEAD_RUNTIME_GPU_CUDA_CONSTANTS_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "cuda_driver.h"
#include "equal_bytes.h"

namespace polyhead::runtime::cuda {

class Device;

class Constants {
public:
    // Of a context, for one device more; null without memory.
    static Constants *of(Context context) noexcept;
    // For one device less; with the last one the memory is freed. The context is current.
    static void let_go(Constants *constants, const Driver &driver) noexcept;

    // Where four bytes with these bits are; 0 where there is no memory, or where it could not be written now. The device writes what is not
    // there yet, while its context is current.
    Pointer number(uint32_t bits, Device &device) noexcept;
    // The same for so many bytes of this value, 0 or 1.
    Pointer row(uint8_t byte, size_t bytes, Device &device) noexcept;

private:
    Constants(Context context, Constants *next) noexcept : context_(context), next_(next) {}

    const Context context_;
    Constants *next_; // of another context
    int devices_ = 0;
    std::mutex mutex_;
    // Numbers in pieces of neighbouring ones: the lengths of a sequence that grows.
    std::map<uint32_t, Pointer> pieces_;
    EqualBytes<Pointer> rows_;
};

} // namespace polyhead::runtime::cuda
#endif

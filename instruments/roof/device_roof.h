// The roofs of a GPU, measured: multiply-adds per second and bytes copied per second, by small kernels of the bench's own.
#ifndef POLYHEAD_INSTRUMENTS_DEVICE_ROOF_H
#define POLYHEAD_INSTRUMENTS_DEVICE_ROOF_H

#include <memory>
#include <string>

#include <polyhead/polyhead.h>

namespace roof {

class DeviceRoof {
public:
    virtual ~DeviceRoof() = default;
    DeviceRoof() = default;
    DeviceRoof(const DeviceRoof &) = delete;
    DeviceRoof &operator=(const DeviceRoof &) = delete;
    // The context and the stream that the roofs use, for the device under test; null: those of the system.
    virtual void *context() const = 0;
    virtual void *stream() const = 0;
    // GFLOP/s in independent f32 multiply-adds, over about so many seconds. 0: the driver failed.
    double fma_gflops(double seconds);
    // GB/s of a copy within device memory, read and written bytes counted.
    double copy_gbs();

protected:
    // Runs the loop of multiply-adds so often in every thread and waits. Returns the number of f32 operations, or 0.
    virtual double run_fma(int steps) = 0;
    // Copies copy_bytes on the device and waits; false when it cannot.
    virtual bool run_copy() = 0;
    static constexpr size_t copy_bytes = size_t(256) << 20;

private:
    int steps_ = 0; // that last about a millisecond
};

// The multiply-adds of one step of a thread: sixteen accumulators, each sixteen times.
constexpr int accumulators = 16, unroll = 16;

// Null and a sentence when there is no such device.
std::unique_ptr<DeviceRoof> cuda_roof(int index, std::string *error);
std::unique_ptr<DeviceRoof> opencl_roof(int index, std::string *error);

} // namespace roof
#endif

// A kernel by hand for every API, called as generated code is: out(b,h,q,x) = query(b,h,q,x) + 10 key(b,h,0,x) + 100 value(b,h,last,x).
#ifndef POLYHEAD_TESTS_RUNTIME_SUM_H
#define POLYHEAD_TESTS_RUNTIME_SUM_H

#include <vector>

#include <polyhead/polyhead.h>

namespace polyhead::test {

// Variants for OpenCL and CUDA, both ahead of time; one for the CPU, which comes last. sdpa, 3 heads of 8, no optional tensors.
const Kernel &sum_kernel();
// Shared memory that launches of these kernels ask for and do not use.
extern int shared_bytes_of_sum;
// The same with optional key lengths, which the kernel by hand reads: `last` is the length of batch row 0 less 1.
const Kernel &sum_kernel_with_lengths();

// A call of it with host tensors, and what it must give.
struct SumCall {
    static constexpr int64_t batch = 2, heads = 3, seq_len_q = 5, seq_len_kv = 7, dim = 8;
    std::vector<float> query, key, value, out;
    SdpaArgs args;

    explicit SumCall(float seed = 1);
    std::vector<float> expected(int64_t last = seq_len_kv - 1) const;
};

// Device addresses are numbers to the driver.
inline void *at_address(uint64_t address) {
    return reinterpret_cast<void *>(address); // NOLINT(performance-no-int-to-ptr)
}

// Memory on a device that frees itself, with a tensor in it.
class Held {
public:
    // Copies the host tensor, which is contiguous, to `offset` elements after the start of the memory, and makes the tensor one of
    // the device. `beyond` more elements follow.
    Held(const Device &device, TensorView *tensor, int64_t offset = 0, int64_t beyond = 0);
    ~Held() { device_.free(data_); }
    Held(const Held &) = delete;
    Held &operator=(const Held &) = delete;
    // Waits, and gives the tensor's elements.
    std::vector<float> read() const;
    void *data() const { return data_; }

private:
    const Device &device_;
    void *data_ = nullptr;
    size_t elements_ = 0, offset_ = 0, element_bytes_ = 4;
};

} // namespace polyhead::test
#endif

// The kernels that fuzzed calls go to: stand-ins for many problems, which compare every buffer that they get with the caller's tensors, and
// one real kernel.
#ifndef POLYHEAD_TESTS_FUZZ_STAND_INS_H
#define POLYHEAD_TESTS_FUZZ_STAND_INS_H

#include <vector>

#include <polyhead/polyhead.h>

#include "tests/runtime_fake_device.h"
#include "tests/support/entry.h"

namespace polyhead::fuzz {

constexpr int num_subjects = 17, real_subject = 13;

// What a call may run on, beside the CPU; the memory of each is one block.
struct Devices {
    Devices();
    test::FakeDevice cuda, opencl;
    void *cuda_block = nullptr, *opencl_block = nullptr;
    static constexpr size_t block_bytes = 1 << 16;
};

// A kernel to call. A stand-in's variants: one for the CPU, one for CUDA, one for the CPU that needs aligned rows and few queries.
class Subject {
public:
    explicit Subject(int number);
    polyhead_kernel table{POLYHEAD_SIZES, {}, nullptr, nullptr, nullptr, 0, 0, 0, 0};
    polyhead_variant variants[3]{};
    std::vector<polyhead_declaration> declarations;
    bool real = false;                   // generated code
    const polyhead_args *args = nullptr; // of the running call, for the stand-in's comparison
    int calls = 0;

private:
    test::Entry entry_{[this](void **argv) { return call(argv); }};

    int call(void **argv);
    void check_buffers(void **argv) const;
};

} // namespace polyhead::fuzz
#endif

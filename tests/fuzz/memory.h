// Memory for fuzzed calls that is there for every stride a call may have, and shows what was written to it.
#ifndef POLYHEAD_TESTS_FUZZ_MEMORY_H
#define POLYHEAD_TESTS_FUZZ_MEMORY_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_api.h>

namespace polyhead::fuzz {

// Ends the program, as a crash does: the fuzzer keeps the input.
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Two ranges of addresses, one for what a call may only read and one for what it writes. They reach so far around the places of tensors
// that every accepted stride stays inside; pages that are never used cost nothing.
class Memory {
public:
    static constexpr int places = 48;                        // tensors of a call
    static constexpr int64_t place_bytes = 1 << 16;          // between their first elements
    static constexpr int64_t window = 1 << 13;               // bytes around an output in which writing is looked for
    static constexpr int64_t reach_bytes = int64_t(1) << 35; // to either side

    static Memory &get();
    char *input(int place) const { return inputs_ + place * place_bytes; }
    char *output(int place) const { return outputs_ + place * place_bytes; }
    bool is_input(const void *begin, const void *end) const { return inside(inputs_, begin, end); }
    bool is_output(const void *begin, const void *end) const { return inside(outputs_, begin, end); }
    // While false, writing to the place of an input ends the program.
    void let_write_inputs(bool may) const;

private:
    Memory();
    static bool inside(const char *middle, const void *begin, const void *end);
    char *inputs_, *outputs_;
};

// Bytes around the outputs of one call: what they were before, and whether anything but elements of the outputs changed.
class OutputWatch {
public:
    explicit OutputWatch(int outputs);
    // Nothing may have changed.
    void expect_untouched(const char *why) const;
    // Changes may lie only where one of these tensors has elements, which are erased.
    void expect_only(const polyhead_tensor *const *tensors, int count) const;

private:
    int outputs_;
};

// The product of the extents, whatever they are.
double elements_of(const polyhead_tensor &tensor);

// The address of one element of a tensor in host memory, and the int32 there.
char *element(const polyhead_tensor &tensor, int64_t i, int64_t j = 0, int64_t k = 0, int64_t l = 0);
int32_t integer(const polyhead_tensor &tensor, int64_t i, int64_t j = 0, int64_t k = 0);

} // namespace polyhead::fuzz
#endif

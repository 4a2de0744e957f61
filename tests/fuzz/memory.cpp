// Reserves the memory of fuzzed calls, and compares the bytes around outputs.
#include "memory.h"

#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/status.h"

namespace polyhead::fuzz {
namespace {

constexpr unsigned char canary = 0xA5;

char *reserve(int protection) {
    const size_t bytes = 2 * Memory::reach_bytes + Memory::places * Memory::place_bytes;
    void *memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        std::printf("NOT RUN: the whole test: this machine does not reserve %zu bytes of addresses\n", bytes);
        std::exit(0);
    }
    return static_cast<char *>(memory) + Memory::reach_bytes;
}

} // namespace

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fputc('\n', stderr);
    std::abort();
}

Memory::Memory() : inputs_(reserve(PROT_READ)), outputs_(reserve(PROT_READ | PROT_WRITE)) {
    let_write_inputs(true);
}

Memory &Memory::get() {
    static Memory memory;
    return memory;
}

void Memory::let_write_inputs(bool may) const {
    if (mprotect(inputs_, places * place_bytes, may ? PROT_READ | PROT_WRITE : PROT_READ) != 0) {
        fail("the places of inputs could not be protected");
    }
}

bool Memory::inside(const char *middle, const void *begin, const void *end) {
    return begin <= end && begin >= middle - reach_bytes && end <= middle + reach_bytes;
}

OutputWatch::OutputWatch(int outputs) : outputs_(outputs) {
    for (int i = 0; i < outputs_; ++i) {
        std::memset(Memory::get().output(i) - Memory::window, canary, 2 * Memory::window);
    }
}

void OutputWatch::expect_untouched(const char *why) const {
    static const std::vector<unsigned char> untouched(2 * Memory::window, canary);
    for (int i = 0; i < outputs_; ++i) {
        const char *begin = Memory::get().output(i) - Memory::window;
        if (std::memcmp(begin, untouched.data(), untouched.size()) == 0) {
            continue;
        }
        size_t at = 0;
        while (static_cast<unsigned char>(begin[at]) == canary) {
            ++at;
        }
        fail("byte %lld around output %d was written: %s", static_cast<long long>(at) - static_cast<long long>(Memory::window), i, why);
    }
}

namespace {

void erase(const polyhead_tensor &t, size_t element_bytes, int dimension, char *first) {
    if (dimension == t.rank) {
        std::memset(first, canary, element_bytes);
        return;
    }
    for (int64_t i = 0; i < t.shape[dimension]; ++i) {
        const int64_t step = t.shape[dimension] > 1 ? i * t.stride[dimension] * static_cast<int64_t>(element_bytes) : 0;
        erase(t, element_bytes, dimension + 1, first + step);
    }
}

} // namespace

void OutputWatch::expect_only(const polyhead_tensor *const *tensors, int count) const {
    for (int n = 0; n < count; ++n) {
        const polyhead_tensor &t = *tensors[n];
        const int bytes = contract::dtype_bytes(t.dtype);
        if (t.data && !t.device && elements_of(t) > 0) {
            erase(t, static_cast<size_t>(bytes), 0, static_cast<char *>(t.data) + t.offset * bytes);
        }
    }
    expect_untouched("it belongs to no element");
}

double elements_of(const polyhead_tensor &tensor) {
    double elements = 1;
    for (int i = 0; i < tensor.rank; ++i) {
        elements *= double(tensor.shape[i]);
    }
    return elements;
}

// Models call these, whose branches are nothing to look for.
__attribute__((no_sanitize("coverage"))) char *element(const polyhead_tensor &tensor, int64_t i, int64_t j, int64_t k, int64_t l) {
    const int64_t index[] = {i, j, k, l};
    int64_t offset = tensor.offset;
    for (int n = 0; n < tensor.rank; ++n) {
        offset += tensor.shape[n] > 1 ? index[n] * tensor.stride[n] : 0;
    }
    return static_cast<char *>(tensor.data) + offset * contract::dtype_bytes(tensor.dtype);
}

__attribute__((no_sanitize("coverage"))) int32_t integer(const polyhead_tensor &tensor, int64_t i, int64_t j, int64_t k) {
    int32_t value;
    std::memcpy(&value, element(tensor, i, j, k), sizeof value);
    return value;
}

} // namespace polyhead::fuzz

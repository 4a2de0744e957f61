// Fuzzes the readers of model files: safetensors, and .npy when the bytes begin like one. A file is read or refused with one sentence, and
// every byte that a reader hands out is inside of it.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "examples/common/npy.h"
#include "examples/common/safetensors.h"
#include "sentence.h"

namespace polyhead::fuzz {
namespace {

template <class T> void read_npy(const std::string &path, size_t size) {
    std::vector<int64_t> shape;
    std::vector<T> values;
    const std::string refusal = examples::read_npy(path, &shape, &values);
    if (!refusal.empty()) {
        return expect_sentence(refusal);
    }
    size_t elements = 1;
    for (const int64_t extent : shape) {
        elements *= static_cast<size_t>(extent);
    }
    if (elements != values.size() || elements * sizeof(T) > size) {
        fail("a shape that is not that of the values", std::to_string(values.size()));
    }
}

void read_safetensors(const std::string &path, size_t size) {
    examples::SafeTensors file;
    const std::string refusal = file.open(path);
    if (!refusal.empty()) {
        return expect_sentence(refusal);
    }
    uint64_t bytes = 0;
    unsigned sum = 0;
    std::vector<std::pair<const unsigned char *, const unsigned char *>> spans;
    for (const auto &[name, tensor] : file.tensors()) {
        bytes += tensor.bytes;
        spans.emplace_back(tensor.data, tensor.data + tensor.bytes);
        for (uint64_t i = 0; i < tensor.bytes; ++i) { // a byte outside of the file has no page, or is seen below
            sum += tensor.data[i];
        }
        const float *values = nullptr;
        const std::string other = file.f32(name, tensor.shape, &values);
        if (!other.empty()) {
            expect_sentence(other);
        }
    }
    if (bytes + 8 > size || sum == ~0u) {
        fail("tensors of more bytes than the file has", std::to_string(bytes));
    }
    std::sort(spans.begin(), spans.end());
    for (size_t i = 1; i < spans.size(); ++i) {
        if (spans[i].first != spans[i - 1].second) {
            fail("tensors overlap or leave a hole", std::to_string(spans[i].first - spans[i - 1].second));
        }
    }
    expect_sentence(file.f32("no such tensor", {}, nullptr));
}

} // namespace
} // namespace polyhead::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace polyhead::fuzz;
    static const int file = memfd_create("fuzzed", 0);
    static const std::string path = "/proc/self/fd/" + std::to_string(file);
    if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) {
        fail("no file in memory", std::strerror(errno));
    }
    if (size >= 6 && std::memcmp(data, "\x93NUMPY", 6) == 0) {
        read_npy<float>(path, size);
        read_npy<int32_t>(path, size);
        read_npy<double>(path, size);
    } else {
        read_safetensors(path, size);
    }
    return 0;
}

// Runs attention on the device that the command line names (cuda or opencl, cuda:1 is the second), or on the CPU when there is none.
//
// The tensors are on the device: run() returns after the launch, synchronize() waits.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <attention_any.h> // generated: 8 heads of 64, causal, for CUDA, OpenCL and the CPU
#include <polyhead/polyhead.h>

namespace {

constexpr int64_t batch = 2, heads = 8, seq_len = 200, head_dim = 64;
constexpr size_t elements = batch * heads * seq_len * head_dim;

std::vector<float> numbers(int seed) {
    std::vector<float> values(elements);
    for (size_t i = 0; i < elements; ++i) {
        values[i] = static_cast<float>((i * 7919 + static_cast<size_t>(seed) * 104729) % 2000) / 1000.0f - 1.0f;
    }
    return values;
}

bool say(const polyhead::Status &status) {
    if (!status.ok()) {
        std::printf("%s\n", status.message());
    }
    return status.ok();
}

polyhead::TensorView seen(const std::vector<float> &values) {
    return polyhead::view(values.data(), {batch, heads, seq_len, head_dim});
}

// Everything on the host, on the CPU.
bool run_on_cpu(const std::vector<float> &query, const std::vector<float> &key, const std::vector<float> &value, std::vector<float> *out) {
    polyhead::SdpaArgs args;
    args.query = seen(query);
    args.key = seen(key);
    args.value = seen(value);
    args.out = polyhead::view(out->data(), {batch, heads, seq_len, head_dim});
    return say(attention_any.run(args));
}

// One block of memory on the device for query, key, value and out; the tensors are parts of it.
bool run_on_device(const polyhead::Device &device, const std::vector<float> &query, const std::vector<float> &key,
                   const std::vector<float> &value, std::vector<float> *out) {
    void *memory = nullptr;
    if (!say(device.allocate(4 * elements * sizeof(float), &memory))) {
        return false;
    }
    const auto part = [&](int64_t which) {
        return polyhead::view(device, memory, polyhead::DType::f32, {batch, heads, seq_len, head_dim},
                              which * static_cast<int64_t>(elements));
    };
    const size_t bytes = elements * sizeof(float);
    polyhead::SdpaArgs args;
    args.device = &device;
    args.query = part(0);
    args.key = part(1);
    args.value = part(2);
    args.out = part(3);
    const bool done = say(device.copy_to_device(query.data(), bytes, memory, 0)) &&
                      say(device.copy_to_device(key.data(), bytes, memory, bytes)) &&
                      say(device.copy_to_device(value.data(), bytes, memory, 2 * bytes)) && //
                      say(attention_any.run(args)) &&                                       // started, perhaps not finished
                      say(device.synchronize()) &&                                          // finished
                      say(device.copy_to_host(memory, 3 * bytes, bytes, out->data()));
    device.free(memory);
    return done;
}

polyhead::Device open(const char *name) {
    polyhead::Device device;
    const char *index = std::strchr(name, ':');
    const bool cuda = std::strncmp(name, "cuda", 4) == 0, opencl = std::strncmp(name, "opencl", 6) == 0;
    if (cuda || opencl) {
        say(polyhead::Device::open(cuda ? polyhead::Api::cuda : polyhead::Api::opencl, index ? std::atoi(index + 1) : 0, &device));
    }
    return device;
}

} // namespace

int main(int argc, char **argv) {
    const std::vector<float> query = numbers(1), key = numbers(2), value = numbers(3);
    std::vector<float> on_cpu(elements), out(elements);
    if (!run_on_cpu(query, key, value, &on_cpu)) {
        return 1;
    }
    const polyhead::Device device = open(argc > 1 ? argv[1] : "cuda");
    char name[160] = "the CPU";
    if (device) {
        polyhead_device_name(device.raw(), name, sizeof name);
    }
    if (!(device ? run_on_device(device, query, key, value, &out) : run_on_cpu(query, key, value, &out))) {
        return 1;
    }
    float largest = 0;
    for (size_t i = 0; i < elements; ++i) {
        largest = std::max(largest, std::fabs(out[i] - on_cpu[i]));
    }
    const bool agrees = largest < 1e-5f;
    std::printf("%s: ran on %s; largest difference to the CPU %g\n", agrees ? "ok" : "wrong", name, largest);
    return agrees ? 0 : 1;
}

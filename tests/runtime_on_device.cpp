// Calls on a real device: the one that POLYHEAD_TEST_DEVICE names (opencl or cuda). The tests are the same for both.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime_sum.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

Api api_of_run() {
    const char *name = std::getenv("POLYHEAD_TEST_DEVICE");
    const std::string text = name ? name : "";
    INFO("POLYHEAD_TEST_DEVICE is '" << text << "', expected opencl or cuda");
    REQUIRE((text == "opencl" || text == "cuda"));
    return text == "cuda" ? Api::cuda : Api::opencl;
}

Device opened() {
    Device device;
    const Status status = Device::open(api_of_run(), 0, &device);
    INFO(status.message());
    REQUIRE(status.ok());
    REQUIRE(device);
    return device;
}

void run(const SdpaArgs &args, const Kernel &kernel = sum_kernel()) {
    const Status status = kernel.run(args);
    INFO(status.message());
    REQUIRE(status.ok());
}

std::string refusal(const SdpaArgs &args, polyhead_code code, const Kernel &kernel = sum_kernel()) {
    const Status status = kernel.run(args);
    CHECK(status.code() == code);
    return status.message();
}

} // namespace

TEST_CASE("on a device: host tensors", "[device]") {
    const Device device = opened();
    SumCall call;
    call.args.device = &device;
    run(call.args);
    CHECK(call.out == call.expected());
    // The next call with other values, and the same on the CPU.
    SumCall again(100);
    again.args.device = &device;
    run(again.args);
    CHECK(again.out == again.expected());
    again.args.device = nullptr;
    std::fill(again.out.begin(), again.out.end(), -1.0f);
    run(again.args);
    CHECK(again.out == again.expected());
}

TEST_CASE("on a device: host tensors in every layout", "[device]") {
    const Device device = opened();
    constexpr int64_t b = SumCall::batch, h = SumCall::heads, q = SumCall::seq_len_q, kv = SumCall::seq_len_kv, d = SumCall::dim;
    SumCall call;
    call.args.device = &device;
    SECTION("bshd") {
        std::vector<float> out(call.out.size());
        call.args.out = from_bshd(view(out.data(), {b, q, h, d}));
        run(call.args);
        const std::vector<float> expected = call.expected();
        for (int64_t i = 0; i < b * h * q * d; ++i) {
            const int64_t x = i % d, y = i / d % q, head = i / d / q % h, row = i / d / q / h;
            CHECK(out[static_cast<size_t>(((row * q + y) * h + head) * d + x)] == expected[static_cast<size_t>(i)]);
        }
    }
    SECTION("gaps around the rows of out stay as they are") {
        std::vector<float> wide(static_cast<size_t>(b * h * q * (d + 5)), 7.0f);
        call.args.out = view(wide.data(), {b, h, q, d}, {h * q * (d + 5), q * (d + 5), d + 5, 1});
        run(call.args);
        const std::vector<float> expected = call.expected();
        for (size_t i = 0; i < wide.size(); ++i) {
            CHECK(wide[i] == (i % (d + 5) < d ? expected[i / (d + 5) * d + i % (d + 5)] : 7.0f));
        }
    }
    SECTION("one key row for all heads and batch rows") {
        call.args.key.stride[0] = call.args.key.stride[1] = 0;
        run(call.args);
        SumCall same = call;
        for (int64_t row = 1; row < b * h; ++row) {
            std::copy_n(same.key.begin(), kv * d, same.key.begin() + row * kv * d);
        }
        CHECK(call.out == same.expected());
    }
    SECTION("values backwards") {
        call.args.value.stride[2] = -d;
        call.args.value.offset = (kv - 1) * d;
        run(call.args);
        CHECK(call.out == call.expected(0));
    }
}

TEST_CASE("on a device: device tensors, wherever they begin", "[device]") {
    const Device device = opened();
    // 32 floats are 128 bytes, which devices like; 3 floats they do not.
    for (const int64_t offset : {int64_t(0), int64_t(32), int64_t(3), int64_t(1000)}) {
        INFO("offset " << offset);
        SumCall call;
        call.args.device = &device;
        const Held query(device, &call.args.query, offset), key(device, &call.args.key, offset), value(device, &call.args.value, offset);
        const Held out(device, &call.args.out, offset, 40);
        std::vector<float> around(call.out.size() + static_cast<size_t>(offset) + 40, 4321.0f), after(around.size());
        REQUIRE(device.copy_to_device(around.data(), around.size() * 4, out.data()).ok());
        run(call.args);
        REQUIRE(device.synchronize().ok());
        REQUIRE(device.copy_to_host(out.data(), 0, after.size() * 4, after.data()).ok());
        const std::vector<float> expected = call.expected();
        std::copy(expected.begin(), expected.end(), around.begin() + offset);
        CHECK(after == around);
        CHECK(call.out == std::vector<float>(call.out.size(), -1.0f)); // the host's memory had no part in it
    }
}

TEST_CASE("on a device: parts of one buffer", "[device]") {
    const Device device = opened();
    constexpr int64_t b = SumCall::batch, h = SumCall::heads, d = SumCall::dim, t = 6;
    // query, key and value side by side, as one projection writes them; out in the same memory after them.
    std::vector<float> joined(static_cast<size_t>(b * t * 3 * h * d) + static_cast<size_t>(b * h * t * d));
    for (size_t i = 0; i < joined.size(); ++i) {
        joined[i] = static_cast<float>(i);
    }
    TensorView all = view(joined.data(), {static_cast<int64_t>(joined.size())});
    const Held held(device, &all);
    SdpaArgs args;
    args.device = &device;
    const auto part = [&](int64_t which) {
        TensorView tensor = from_bsd(view(device, held.data(), DType::f32, {b, t, h * d}, which * h * d), h);
        tensor.stride[0] = t * 3 * h * d;
        tensor.stride[2] = 3 * h * d;
        return tensor;
    };
    args.query = part(0);
    args.key = part(1);
    args.value = part(2);
    args.out = view(device, held.data(), DType::f32, {b, h, t, d}, b * t * 3 * h * d);
    run(args);
    const std::vector<float> after = held.read();
    const auto in = [&](int64_t which, int64_t row, int64_t head, int64_t y, int64_t x) {
        return static_cast<float>(((row * t + y) * 3 + which) * h * d + head * d + x);
    };
    for (int64_t i = 0; i < b * h * t * d; ++i) {
        const int64_t x = i % d, y = i / d % t, head = i / d / t % h, row = i / d / t / h;
        const float sum = in(0, row, head, y, x) + 10 * in(1, row, head, 0, x) + 100 * in(2, row, head, t - 1, x);
        CHECK(after[static_cast<size_t>(b * t * 3 * h * d + i)] == sum);
    }
    CHECK(std::equal(joined.begin(), joined.begin() + b * t * 3 * h * d, after.begin()));
}

TEST_CASE("on a device: some tensors here, some there", "[device]") {
    const Device device = opened();
    SumCall call;
    call.args.device = &device;
    const Held key(device, &call.args.key), value(device, &call.args.value, 5);
    run(call.args);
    CHECK(call.out == call.expected());
    const Held out(device, &call.args.out);
    run(call.args);
    CHECK(out.read() == call.expected());
}

TEST_CASE("on a device: key lengths left out", "[device]") {
    const Device device = opened();
    SumCall call;
    call.args.device = &device;
    const Held query(device, &call.args.query), key(device, &call.args.key), value(device, &call.args.value), out(device, &call.args.out);
    for (const int64_t length : {int64_t(7), int64_t(3), int64_t(7), int64_t(1)}) {
        call.args.key.shape[2] = call.args.value.shape[2] = length;
        run(call.args, sum_kernel_with_lengths());
        CHECK(out.read() == call.expected(length - 1));
    }
    for (int64_t length = 1; length <= 200; ++length) { // more lengths than are kept
        call.args.key.shape[2] = call.args.value.shape[2] = length % 7 + 1;
        run(call.args, sum_kernel_with_lengths());
    }
    CHECK(out.read() == call.expected(200 % 7));
    std::vector<int32_t> lengths = {4, 7};
    call.args.kv_lengths = view(lengths.data(), {SumCall::batch});
    call.args.key.shape[2] = call.args.value.shape[2] = 7;
    run(call.args, sum_kernel_with_lengths());
    CHECK(out.read() == call.expected(3));
}

TEST_CASE("on a device: memory that is not there", "[device]") {
    const Device device = opened(), other = opened();
    SumCall call;
    call.args.device = &device;
    SECTION("a host pointer") {
        call.args.value.device = device.raw();
        const std::string message = refusal(call.args, POLYHEAD_WRONG_DEVICE);
        CHECK(message.find("value: ") == 0);
        CHECK(message.find("expected ") != std::string::npos);
    }
    SECTION("numbers that are no address at all") {
        for (const uintptr_t address : {uintptr_t(8), uintptr_t(0x1000), ~uintptr_t(7)}) {
            call.args.key.data = at_address(address);
            call.args.key.device = device.raw();
            CHECK(refusal(call.args, POLYHEAD_WRONG_DEVICE).find("key: ") == 0);
        }
    }
    SECTION("memory that is too small") {
        const Held out(device, &call.args.out);
        call.args.out.offset = 1;
        CHECK(refusal(call.args, POLYHEAD_WRONG_DEVICE).find("out: ") == 0);
        call.args.out.offset = 0;
        run(call.args);
        CHECK(out.read() == call.expected());
    }
    SECTION("memory of the same device, opened separately") {
        const Held key(other, &call.args.key);
        CHECK(refusal(call.args, POLYHEAD_WRONG_DEVICE).find("opened separately") != std::string::npos);
    }
    SECTION("in a call on the CPU") {
        const Held query(device, &call.args.query);
        call.args.device = nullptr;
        CHECK(refusal(call.args, POLYHEAD_WRONG_DEVICE).find("because the call names no device") != std::string::npos);
    }
    CHECK(call.out == std::vector<float>(call.out.size(), -1.0f));
}

TEST_CASE("on a device: too much memory, and then all is well", "[device]") {
    const Device device = opened();
    void *data = &data;
    const Status status = device.allocate(size_t(1) << 45, &data);
    INFO(status.message());
    CHECK(status.code() == POLYHEAD_OUT_OF_MEMORY);
    CHECK(data == nullptr);
    SumCall call;
    call.args.device = &device;
    run(call.args);
    CHECK(call.out == call.expected());
}

TEST_CASE("on a device: closed and opened again", "[device]") {
    for (int round = 0; round < 4; ++round) {
        const Device device = opened();
        SumCall call(static_cast<float>(round));
        call.args.device = &device;
        run(call.args);
        CHECK(call.out == call.expected());
        // Two at once; the first of them goes while the second works on.
        auto first = std::make_unique<Device>(opened());
        SumCall two(50);
        two.args.device = first.get();
        run(two.args);
        first.reset();
        run(call.args);
        CHECK(two.out == two.expected());
    }
}

TEST_CASE("on a device: weights", "[device]") {
    const Device device = opened();
    Problem p = polyhead_problem_of(POLYHEAD_LINEAR);
    p.embed_dim = 40;
    p.out_features = 20;
    const Kernel kernel(polyhead_kernel{POLYHEAD_SIZES, p, "weights", nullptr, nullptr, 0, 0, 0, 0});
    std::vector<float> w(40 * 20);
    for (size_t i = 0; i < w.size(); ++i) {
        w[i] = static_cast<float>(i);
    }
    WeightTensors tensors;
    tensors.out_proj = view(w.data(), {20, 40});
    Weights host, there;
    REQUIRE(kernel.pack(tensors, &host).ok());
    const Status status = device.put(host, &there);
    INFO(status.message());
    REQUIRE(status.ok());
    CHECK(there.raw()->device == device.raw());
    CHECK(there.bytes() == host.bytes());
    std::vector<char> bytes(host.bytes());
    REQUIRE(device.copy_to_host(there.raw()->data, 0, bytes.size(), bytes.data()).ok());
    CHECK(std::equal(bytes.begin(), bytes.end(), static_cast<const char *>(host.raw()->data)));
    CHECK(device.put(there, &host).code() == POLYHEAD_WRONG_DEVICE);
}

TEST_CASE("on a device: many threads", "[device]") {
    const Device device = opened(), other = opened();
    std::vector<std::unique_ptr<SumCall>> calls;
    for (int i = 0; i < 8; ++i) {
        calls.push_back(std::make_unique<SumCall>(static_cast<float>(i)));
        calls.back()->args.device = i % 2 ? &device : &other;
    }
    std::vector<std::thread> threads;
    std::vector<int> failed(calls.size(), 0);
    for (size_t i = 0; i < calls.size(); ++i) {
        threads.emplace_back([&, i] {
            for (int round = 0; round < 20; ++round) {
                std::fill(calls[i]->out.begin(), calls[i]->out.end(), -1.0f);
                failed[i] += !sum_kernel().run(calls[i]->args).ok() || calls[i]->out != calls[i]->expected();
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(failed == std::vector<int>(calls.size(), 0));
}

TEST_CASE("on a device: names and indices", "[device]") {
    const Api api = api_of_run();
    const int count = Device::count(api);
    REQUIRE(count > 0);
    Device device;
    const Status beyond = Device::open(api, count, &device);
    CHECK(beyond.code() == POLYHEAD_NO_DEVICE);
    CHECK(std::string(beyond.message()).find("device " + std::to_string(count) + ", expected 0 to " + std::to_string(count - 1)) !=
          std::string::npos);
    CHECK(!device);
    CHECK(Device::open(api, -1, &device).code() == POLYHEAD_NO_DEVICE);
    device = opened();
    char name[200] = "";
    polyhead_device_name(device.raw(), name, sizeof name);
    INFO(name);
    CHECK(std::string(name).find(api == Api::cuda ? "(cuda " : "(opencl, ") != std::string::npos);
    CHECK(sum_kernel().supported(&device));
    SumCall call;
    call.args.device = &device;
    CHECK(sum_kernel().explain(call.args).find(name) != std::string::npos);
}

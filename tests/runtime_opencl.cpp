// OpenCL devices: the caller's context and queue, buffers of every kind, calls that do not wait. Needs an OpenCL driver, such as PoCL.
#include <dlfcn.h>
#include <string>
#include <vector>

#include "../runtime/devices/opencl_driver.h"
#include "runtime_sum.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;
using runtime::opencl::Object;

namespace {

constexpr uint64_t read_write = 1, read_only = 4, out_of_order = 1;

const runtime::opencl::Driver &cl() {
    polyhead_status status{};
    const runtime::opencl::Driver *driver = runtime::opencl::driver(&status);
    INFO(status.message);
    REQUIRE(driver != nullptr);
    return *driver;
}

// What a program has that works with OpenCL itself.
struct Program {
    Object platform = nullptr, device = nullptr, context = nullptr, queue = nullptr;
    explicit Program(uint64_t queue_properties = 0) {
        int error = 0;
        unsigned count = 0;
        REQUIRE(cl().platforms(1, &platform, &count) == 0);
        REQUIRE(cl().devices(platform, 0xFFFFFFFF, 1, &device, &count) == 0);
        context = cl().create_context(nullptr, 1, &device, nullptr, nullptr, &error);
        REQUIRE(error == 0);
        queue = cl().create_queue(context, device, queue_properties, &error);
        REQUIRE(error == 0);
    }
    ~Program() {
        cl().release_queue(queue);
        cl().release_context(context);
    }
    Object buffer(const std::vector<float> &values, uint64_t flags = read_write) const {
        int error = 0;
        const Object made = cl().create_buffer(context, flags, values.size() * 4, nullptr, &error);
        REQUIRE(error == 0);
        REQUIRE(cl().write(queue, made, 1, 0, values.size() * 4, values.data(), 0, nullptr, nullptr) == 0);
        return made;
    }
    Device open(bool with_queue = true) const {
        Device opened;
        const Status status = Device::open(Api::opencl, 0, &opened, context, with_queue ? queue : nullptr);
        INFO(status.message());
        REQUIRE(status.ok());
        return opened;
    }
};

std::string refused(void *context, void *queue) {
    Device device;
    const Status status = Device::open(Api::opencl, 0, &device, context, queue);
    CHECK(status.code() == POLYHEAD_NO_DEVICE);
    CHECK(!device);
    return status.message();
}

void put(const Device &device, TensorView *tensor, Object buffer) {
    tensor->data = buffer;
    tensor->device = device.raw();
}

} // namespace

TEST_CASE("opencl: the caller's context and queue", "[device]") {
    const Program program;
    SumCall call;
    const Object query = program.buffer(call.query), key = program.buffer(call.key), value = program.buffer(call.value),
                 out = program.buffer(call.out);
    {
        const Device device = program.open();
        call.args.device = &device;
        put(device, &call.args.query, query);
        put(device, &call.args.key, key);
        put(device, &call.args.value, value);
        put(device, &call.args.out, out);
        // Between other commands of the same queue, without waiting for anything.
        const std::vector<float> zeros(call.query.size());
        REQUIRE(cl().write(program.queue, query, 0, 0, zeros.size() * 4, zeros.data(), 0, nullptr, nullptr) == 0);
        REQUIRE(cl().write(program.queue, query, 0, 0, zeros.size() * 4, call.query.data(), 0, nullptr, nullptr) == 0);
        const Status status = sum_kernel().run(call.args);
        INFO(status.message());
        REQUIRE(status.ok());
        REQUIRE(cl().read(program.queue, out, 0, 0, call.out.size() * 4, call.out.data(), 0, nullptr, nullptr) == 0);
        REQUIRE(cl().finish(program.queue) == 0);
        CHECK(call.out == call.expected());
    }
    // Closing the device leaves them alone.
    CHECK(cl().finish(program.queue) == 0);
    CHECK(cl().read(program.queue, out, 1, 0, 4, call.out.data(), 0, nullptr, nullptr) == 0);
    for (const Object buffer : {query, key, value, out}) {
        CHECK(cl().release_memory(buffer) == 0);
    }
}

TEST_CASE("opencl: a context without a queue, a queue without a context", "[device]") {
    const Program program;
    SumCall call;
    const Object value = program.buffer(call.value);
    const Device with_context = program.open(false);
    Device with_queue;
    REQUIRE(Device::open(Api::opencl, 0, &with_queue, nullptr, program.queue).ok());
    for (const Device *device : {&with_context, static_cast<const Device *>(&with_queue)}) {
        call.args.device = device;
        put(*device, &call.args.value, value);
        REQUIRE(sum_kernel().run(call.args).ok());
        CHECK(call.out == call.expected());
        call.out.assign(call.out.size(), -1.0f);
    }
    cl().release_memory(value);
}

TEST_CASE("opencl: contexts and queues that are refused", "[device]") {
    const Program program, other, unordered(out_of_order);
    std::vector<float> host(64);
    CHECK(refused(host.data(), nullptr).find("is not a cl_context") != std::string::npos);
    CHECK(refused(at_address(16), nullptr).find("is not a cl_context") != std::string::npos);
    CHECK(refused(nullptr, host.data()).find("is not a cl_command_queue") != std::string::npos);
    CHECK(refused(program.context, other.queue) == "stream: a queue of another context, expected one of the context that was given");
    CHECK(refused(unordered.context, unordered.queue) == "stream: a queue that runs out of order, expected one that runs in order");
}

TEST_CASE("opencl: buffers of every kind", "[device]") {
    const Program program, other;
    const Device device = program.open();
    SumCall call;
    call.args.device = &device;
    int error = 0;
    SECTION("that may only be read, from their start and from a part") {
        std::vector<float> padded(32);
        padded.insert(padded.end(), call.key.begin(), call.key.end());
        const Object query = program.buffer(call.query, read_only), key = program.buffer(padded, read_only);
        put(device, &call.args.query, query);
        put(device, &call.args.key, key);
        call.args.key.offset = 32;
        const Status status = sum_kernel().run(call.args);
        INFO(status.message());
        REQUIRE(status.ok());
        CHECK(call.out == call.expected());
        cl().release_memory(query);
        cl().release_memory(key);
    }
    SECTION("that are parts already") {
        std::vector<float> padded(64);
        padded.insert(padded.end(), call.key.begin(), call.key.end());
        const Object whole = program.buffer(padded);
        const size_t region[] = {128, padded.size() * 4 - 128};
        const Object part = cl().create_sub_buffer(whole, 0, 0x1220, region, &error);
        REQUIRE(error == 0);
        put(device, &call.args.key, part);
        call.args.key.offset = 32;
        REQUIRE(sum_kernel().run(call.args).ok());
        CHECK(call.out == call.expected());
        cl().release_memory(part);
        cl().release_memory(whole);
    }
    SECTION("of another context") {
        const Object key = other.buffer(call.key);
        put(device, &call.args.key, key);
        const Status status = sum_kernel().run(call.args);
        CHECK(status.code() == POLYHEAD_WRONG_DEVICE);
        CHECK(std::string(status.message()).find("key: a buffer of another context, expected one of device ") == 0);
        cl().release_memory(key);
    }
    SECTION("backwards") {
        const Object value = program.buffer(call.value);
        put(device, &call.args.value, value);
        call.args.value.stride[2] = -SumCall::dim;
        call.args.value.offset = (SumCall::seq_len_kv - 1) * SumCall::dim;
        const Status status = sum_kernel().run(call.args);
        CHECK(status.code() == POLYHEAD_WRONG_STRIDE);
        CHECK(std::string(status.message()) == "value: a negative stride, expected 0 or more on an OpenCL device");
        cl().release_memory(value);
    }
}

TEST_CASE("opencl: memory that is shared under two names", "[device]") {
    const Program program;
    const Device device = program.open();
    SumCall call;
    call.args.device = &device;
    const size_t query_bytes = call.query.size() * 4, step = 4096, part_bytes = std::max(query_bytes, call.out.size() * 4);
    std::vector<float> host((4 * step + 4 * part_bytes) / 4);
    auto *aligned = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(host.data()) + step - 1) / step * step);
    int error = 0;
    const Object whole = program.buffer(host),
                 over_host = cl().create_buffer(program.context, read_write | 8, query_bytes, aligned, &error);
    REQUIRE(error == 0);
    const auto part = [&](size_t first) {
        const size_t region[] = {first, part_bytes};
        const Object made = cl().create_sub_buffer(whole, 0, 0x1220, region, &error);
        REQUIRE(error == 0);
        return made;
    };
    const size_t beyond = (part_bytes + step - 1) / step * step;
    const Object first = part(0), same = part(0), second = part(beyond);
    const auto run = [&](Object query, Object out) {
        put(device, &call.args.query, query);
        if (out) {
            put(device, &call.args.out, out);
        } else {
            call.args.out = view(reinterpret_cast<float *>(aligned), {SumCall::batch, SumCall::heads, SumCall::seq_len_q, SumCall::dim});
        }
        return sum_kernel().run(call.args);
    };
    const std::string shared = "out: shares memory with query, expected memory of its own";
    CHECK(run(first, same).message() == shared);
    CHECK(run(first, whole).message() == shared);
    CHECK(run(whole, second).message() == (query_bytes > beyond ? shared : ""));
    CHECK(run(first, second).ok());
    CHECK(run(over_host, nullptr).message() == shared);
    for (const Object object : {first, same, second, whole, over_host}) {
        cl().release_memory(object);
    }
}

TEST_CASE("opencl: a call with device tensors does not wait", "[device]") {
    const Program program;
    const Device device = program.open();
    // Everything in the queue waits for an event that this program gives.
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
    const auto create_event = reinterpret_cast<Object (*)(Object, int *)>(dlsym(library, "clCreateUserEvent"));
    const auto give_event = reinterpret_cast<int (*)(Object, int)>(dlsym(library, "clSetUserEventStatus"));
    const auto release_event = reinterpret_cast<int (*)(Object)>(dlsym(library, "clReleaseEvent"));
    const auto wait_for =
        reinterpret_cast<int (*)(Object, unsigned, const Object *, Object *)>(dlsym(library, "clEnqueueBarrierWithWaitList"));
    REQUIRE(create_event);
    REQUIRE(give_event);
    REQUIRE(wait_for);
    for (const int64_t offset : {int64_t(0), int64_t(32), int64_t(1)}) {
        SumCall call;
        call.args.device = &device;
        const Held query(device, &call.args.query, offset), key(device, &call.args.key, offset), value(device, &call.args.value, offset),
            out(device, &call.args.out, offset);
        int error = 0;
        const Object gate = create_event(program.context, &error);
        REQUIRE(error == 0);
        REQUIRE(wait_for(program.queue, 1, &gate, nullptr) == 0);
        const Status status = sum_kernel().run(call.args); // would never return if it waited
        INFO(status.message());
        CHECK(status.ok());
        CHECK(give_event(gate, 0) == 0);
        REQUIRE(device.synchronize().ok());
        CHECK(out.read() == call.expected());
        release_event(gate);
    }
}

// Calls on a device that is a stand-in: what is refused, what is chosen, what the kernel gets, what remains after it.
#include <cstring>
#include <string>
#include <vector>

#include "runtime_calls.h"
#include "runtime_fake_device.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

struct DeviceCall : SdpaCall {
    FakeDevice device;
    DeviceCall() {
        fake.variant.api = POLYHEAD_CUDA;
        args.device = &device;
    }
    // Moves a tensor to the device, some elements after the start of its memory.
    void move(polyhead_tensor *tensor, int64_t offset = 0) {
        int64_t elements = 1;
        for (int i = 0; i < tensor->rank; ++i) {
            elements *= tensor->shape[i];
        }
        const int64_t bytes = contract::dtype_bytes(tensor->dtype);
        void *memory = nullptr;
        REQUIRE(polyhead_device_allocate(&device, static_cast<size_t>((elements + offset) * bytes), &memory).code == POLYHEAD_OK);
        polyhead_copy_to_device(&device, tensor->data, static_cast<size_t>(elements * bytes), memory, static_cast<size_t>(offset * bytes));
        tensor->data = memory;
        tensor->offset = offset;
        tensor->device = &device;
    }
    void move_all() {
        for (polyhead_tensor *t : {&args.query, &args.key, &args.value, &args.kv_lengths, &args.out, &args.lse}) {
            move(t);
        }
    }
};

} // namespace

TEST_CASE("device rules: where tensors lie", "[runtime]") {
    DeviceCall call;
    FakeDevice other(Api::cuda, 80, "Other (cuda 8.0)"), twin;
    SECTION("on a device in a call on the CPU") {
        call.move(&call.args.key);
        call.args.device = nullptr;
        call.refused(POLYHEAD_WRONG_DEVICE, "key: lies on device Fake (cuda 8.0), expected host memory, because the call names no device");
    }
    SECTION("on another device") {
        call.move(&call.args.out);
        call.args.out.device = &other;
        call.refused(POLYHEAD_WRONG_DEVICE,
                     "out: lies on device Other (cuda 8.0), expected host memory or the device of the call, Fake (cuda 8.0)");
    }
    SECTION("on the same device, opened twice") {
        call.move(&call.args.lse);
        call.args.lse.device = &twin;
        call.refused(POLYHEAD_WRONG_DEVICE,
                     "lse: lies on device Fake (cuda 8.0), opened separately, expected host memory or the device of the call");
    }
    SECTION("said to be there, but not") {
        call.args.value.device = &call.device;
        call.refused(POLYHEAD_WRONG_DEVICE, "value: not there");
    }
    SECTION("beyond the end of its memory") {
        call.move(&call.args.query);
        call.args.query.offset = 1;
        call.refused(POLYHEAD_WRONG_DEVICE, "query: not there");
    }
    SECTION("an offset below 0") {
        call.args.query.offset = -1;
        call.refused(POLYHEAD_WRONG_STRIDE, "query: offset -1, expected 0 to 2^48");
    }
    SECTION("key lengths there are not read, here they are") {
        call.lengths[1] = 99;
        call.refused(POLYHEAD_BAD_VALUE, "kv_lengths: value 99 at index 1 of dimension 0, expected 0 to 5 (seq_len_kv)");
        call.move(&call.args.kv_lengths);
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        CHECK(call.fake.calls == 1);
    }
}

TEST_CASE("device rules: shared memory on a device", "[runtime]") {
    DeviceCall call;
    call.move_all();
    call.args.lse = call.args.query;
    call.args.lse.rank = 3;
    const int64_t shape[] = {B, H, T_q}, stride[] = {H * T_q, T_q, 1};
    std::copy(shape, shape + 3, call.args.lse.shape);
    std::copy(stride, stride + 3, call.args.lse.stride);
    call.refused(POLYHEAD_ALIASED, "lse: shares memory with query, expected memory of its own");
    // Managed memory of CUDA, seen from the host and from the device: one address is one memory.
    call.args.lse.device = nullptr;
    call.refused(POLYHEAD_ALIASED, "lse: shares memory with query, expected memory of its own");
    call.args.query.device = nullptr;
    call.args.lse.device = &call.device;
    call.refused(POLYHEAD_ALIASED, "lse: shares memory with query, expected memory of its own");
}

TEST_CASE("device rules: parts of an OpenCL buffer", "[runtime]") {
    DeviceCall call;
    call.device.api = POLYHEAD_OPENCL;
    call.fake.variant.api = POLYHEAD_OPENCL;
    // query and out in one buffer: they share memory when their bytes do, whatever its address is.
    const int64_t query_elements = B * H * T_q * d, out_elements = B * H * T_q * d_v;
    void *memory = nullptr;
    REQUIRE(polyhead_device_allocate(&call.device, static_cast<size_t>(query_elements + out_elements) * 4, &memory).code == POLYHEAD_OK);
    call.args.query.data = call.args.out.data = memory;
    call.args.query.device = call.args.out.device = &call.device;
    call.args.out.offset = query_elements;
    CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    call.args.out.offset = query_elements - 1;
    CHECK(std::string(call.fake.run(call.args).message) == "out: shares memory with query, expected memory of its own");
}

TEST_CASE("device rules: weights", "[runtime]") {
    MhaCall call;
    FakeDevice device, other(Api::cuda, 80, "Other (cuda 8.0)");
    call.fake.variant.api = POLYHEAD_CUDA;
    call.args.device = &device;
    polyhead_weights there{};
    REQUIRE(polyhead_weights_to_device(&device, &call.weights, &there).code == POLYHEAD_OK);
    CHECK(device.blocks.size() == 1);
    CHECK(polyhead_weights_to_device(&device, &there, &there).code == POLYHEAD_WRONG_DEVICE);
    call.args.weights = &there;
    call.fake.on_call = [&](FakeKernel &kernel) {
        const auto *weight = static_cast<const runtime::KernelBuffer *>(kernel.argv[1]),
                   *second = static_cast<const runtime::KernelBuffer *>(kernel.argv[2]);
        CHECK(weight->device == reinterpret_cast<uint64_t>(there.data));
        CHECK(second->device == weight->device + contract::weight_layout(call.problem).key.weight_offset);
        CHECK(weight->host == nullptr);
    };
    CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    CHECK(call.fake.calls == 1);
    call.fake.calls = 0;
    SECTION("on another device") {
        call.args.device = &other;
        call.refused(POLYHEAD_WRONG_DEVICE,
                     "weights: lies on device Fake (cuda 8.0), expected host memory or the device of the call, Other (cuda 8.0)");
    }
    SECTION("in a call on the CPU") {
        call.args.device = nullptr;
        call.refused(POLYHEAD_WRONG_DEVICE,
                     "weights: lies on device Fake (cuda 8.0), expected host memory, because the call names no device");
    }
    polyhead_weights_free(&there);
    CHECK(device.blocks.empty());
    CHECK(there.data == nullptr);
}

namespace {

// A table of three variants of one api: one needs a newer device, one alignment to 8 bytes, one nothing.
struct ThreeVariants : DeviceCall {
    polyhead_variant variants[3] = {fake.variant, fake.variant, fake.variant};
    polyhead_kernel kernel{POLYHEAD_SIZES, fake.table.problem, "three", variants, nullptr, 3, 0, 0, 0};
    ThreeVariants() {
        variants[0].name = "newest";
        variants[0].capability = 90;
        variants[1].name = "wide";
        variants[1].alignment = 8;
        variants[2].name = "any";
    }
    std::string explain() const {
        char text[2048];
        polyhead_explain(&kernel, &args, text, sizeof text);
        return text;
    }
    // A table of one of them alone.
    polyhead_status run_only(int which) const {
        const polyhead_kernel only{POLYHEAD_SIZES, fake.table.problem, "three", variants + which, nullptr, 1, 0, 0, 0};
        return polyhead_run(&only, &args);
    }
};

} // namespace

TEST_CASE("device rules: capability", "[runtime]") {
    ThreeVariants call;
    const std::string text = call.explain();
    CHECK(text.find("on Fake (cuda 8.0)") != std::string::npos);
    CHECK(text.find("not newest: needs compute capability 9.0\n") != std::string::npos);
    CHECK(text.find("runs wide:") != std::string::npos);
    call.device.capability = 90;
    CHECK(call.explain().find("runs newest:") != std::string::npos);
    call.device.capability = 75;
    const polyhead_status status = call.run_only(0);
    CHECK(status.code == POLYHEAD_NO_DEVICE);
    CHECK(std::string(status.message) ==
          "kernel three: no variant for seq_len_q 3 on Fake (cuda 8.0): newest needs compute capability 9.0");
}

TEST_CASE("device rules: a capability and no other", "[runtime]") {
    ThreeVariants call;
    call.variants[0].capability = 90;
    call.variants[0].capability_exact = 1;
    for (const int capability : {80, 86, 89, 90, 100, 120}) {
        call.device.capability = capability;
        const std::string text = call.explain();
        INFO(text);
        CHECK((text.find("runs newest:") != std::string::npos) == (capability == 90));
        CHECK((text.find("not newest: needs compute capability 9.0 and no other\n") != std::string::npos) == (capability != 90));
        CHECK(call.run_only(0).code == (capability == 90 ? POLYHEAD_OK : POLYHEAD_NO_DEVICE));
    }
    const Kernel kernel(call.kernel);
    const Kernel *set[] = {&kernel};
    CHECK(explain(set, 1, call.kernel.problem).find("newest: needs a device, cuda 9.0 and no other\n") != std::string::npos);
}

TEST_CASE("device rules: shared memory", "[runtime]") {
    ThreeVariants call;
    call.variants[0].capability = 0;
    call.variants[0].shared_bytes = 32 << 10;
    CHECK(call.explain().find("runs newest:") != std::string::npos); // the driver does not tell
    call.device.shared_bytes = 32 << 10;
    CHECK(call.explain().find("runs newest:") != std::string::npos);
    call.device.shared_bytes = (32 << 10) - 1;
    CHECK(call.explain().find("not newest: needs 32768 bytes of shared memory, of which a block has 32767\n") != std::string::npos);
    CHECK(call.explain().find("runs wide:") != std::string::npos);
    const polyhead_status status = call.run_only(0);
    CHECK(status.code == POLYHEAD_NO_DEVICE);
    CHECK(std::string(status.message) == "kernel three: no variant for seq_len_q 3 on Fake (cuda 8.0): newest needs 32768 bytes of shared "
                                         "memory, of which a block has 32767");
}

TEST_CASE("device rules: few blocks", "[runtime]") {
    ThreeVariants call;
    call.variants[0].capability = 80;
    call.variants[0].few_blocks_of = 2;
    const int blocks = static_cast<int>(B * H * ((T_q + 1) / 2));
    for (const int multiprocessors : {0, blocks, blocks + 1}) { // 0: the driver does not tell
        call.device.multiprocessors = multiprocessors;
        const std::string text = call.explain();
        INFO(text);
        CHECK((text.find("runs newest:") != std::string::npos) == (multiprocessors > blocks));
        const std::string too_many = "not newest: is for fewer than " + std::to_string(multiprocessors) +
                                     " blocks of 2 queries, as many as the device has multiprocessors, found " + std::to_string(blocks) +
                                     "\n";
        CHECK((text.find(too_many) != std::string::npos) == (multiprocessors <= blocks));
        CHECK(call.run_only(0).code == POLYHEAD_OK); // there is no better one
    }
    call.device.multiprocessors = blocks + 1;
    call.device.capability = 75;
    CHECK(call.explain().find("not newest: needs compute capability 8.0\n") != std::string::npos);
    call.variants[0].capability_exact = 1;
    CHECK(call.explain().find("not newest: needs compute capability 8.0 and no other\n") != std::string::npos);
    const Kernel kernel(call.kernel);
    const Kernel *set[] = {&kernel};
    CHECK(explain(set, 1, call.kernel.problem)
              .find("newest: needs a device, cuda 8.0 and no other, for fewer blocks of 2 queries than it has multiprocessors\n") !=
          std::string::npos);
}

TEST_CASE("device rules: alignment", "[runtime]") {
    ThreeVariants call;
    SECTION("on the device") {
        call.move_all();
        CHECK(call.explain().find("runs wide:") != std::string::npos);
        call.args.key.offset = 0;
        call.move(&call.args.key, 1);
        CHECK(call.explain().find("not wide: wants address and strides of key to be multiples of 8 bytes\n") != std::string::npos);
        CHECK(call.explain().find("runs any:") != std::string::npos);
    }
    SECTION("less than an element asks for nothing") {
        call.variants[1].alignment = 2;
        call.move_all();
        call.args.key.offset = 0;
        call.move(&call.args.key, 1);
        CHECK(call.explain().find("runs wide:") != std::string::npos);
    }
    SECTION("host tensors are packed for it") {
        std::vector<float> wide(B * H_kv * T_kv * (d + 1));
        call.args.key = view(wide.data(), {B, H_kv, T_kv, d}, {H_kv * T_kv * (d + 1), T_kv * (d + 1), d + 1, 1});
        CHECK(call.explain().find("runs wide:") != std::string::npos);
        call.args.key = view(wide.data(), {B, H_kv, T_kv, d}, {H_kv * T_kv * d, T_kv * d, 0, 1});
        CHECK(call.explain().find("runs wide:") != std::string::npos);
    }
}

TEST_CASE("device rules: interfaces", "[runtime]") {
    ThreeVariants call;
    call.device.api = POLYHEAD_OPENCL;
    CHECK(call.explain().find("refused: kernel three: no variant for seq_len_q 3 on Fake (cuda 8.0): newest runs on cuda") == 0);
    call.device.api = POLYHEAD_CUDA;
    SECTION("the CPU") {
        call.args.device = nullptr;
        const polyhead_status status = polyhead_run(&call.kernel, &call.args);
        CHECK(status.code == POLYHEAD_UNSUPPORTED);
        CHECK(std::string(status.message).find("on this CPU: newest runs on cuda") != std::string::npos);
        CHECK(!Kernel(call.kernel).supported());
        call.variants[2].api = POLYHEAD_CPU;
        CHECK(polyhead_run(&call.kernel, &call.args).code == POLYHEAD_OK);
    }
}

TEST_CASE("device rules: the set says what kernels for devices need", "[runtime]") {
    ThreeVariants call;
    const Kernel kernel(call.kernel);
    const Kernel *set[] = {&kernel};
    const std::string text = explain(set, 1, call.kernel.problem);
    CHECK(text.find("but this CPU lacks") == std::string::npos);
    CHECK(text.find("newest: needs a device, cuda 9.0 or newer\n") != std::string::npos);
    CHECK(text.find("any: needs a device, cuda\n") != std::string::npos);
    Problem half = call.kernel.problem;
    half.dtype = POLYHEAD_F16;
    CHECK(explain(set, 1, half).find(" --dtype f16\n") != std::string::npos);
}

TEST_CASE("device rules: a kernel gets device tensors as they are", "[runtime]") {
    DeviceCall call;
    call.move_all();
    call.fake.on_call = [&](FakeKernel &kernel) {
        CHECK(runtime::CallContext::of(kernel.user_context)->device == &call.device);
        const auto *query = static_cast<const runtime::KernelBuffer *>(kernel.argv[0]),
                   *out = static_cast<const runtime::KernelBuffer *>(kernel.argv[6]);
        CHECK(query->device == reinterpret_cast<uint64_t>(call.args.query.data));
        CHECK(query->host == nullptr);
        CHECK(query->device_dirty());
        CHECK(!out->device_dirty());
        CHECK(call.device.attached == 6);
    };
    CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    CHECK(call.device.waits == 0); // asynchronous
    CHECK(call.device.flushes == 1);
    call.args.kv_lengths = polyhead_tensor{};
    call.fake.on_call = [&](FakeKernel &kernel) {
        const auto *lengths = static_cast<const runtime::KernelBuffer *>(kernel.argv[3]);
        CHECK(lengths->device != 0);
        CHECK(lengths->dim[0].stride == 0);
        CHECK(call.device.elements == std::vector<uint32_t>{T_kv});
    };
    CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    CHECK(call.device.waits == 0);
    CHECK(call.fake.calls == 2);
    CHECK(call.device.attached == 0);
}

TEST_CASE("device rules: one host tensor, and the call waits", "[runtime]") {
    DeviceCall call;
    call.move(&call.args.query);
    call.fake.on_call = [&](FakeKernel &kernel) {
        CHECK(static_cast<const runtime::KernelBuffer *>(kernel.argv[1])->host_dirty());
        CHECK(!static_cast<const runtime::KernelBuffer *>(kernel.argv[6])->host_dirty());
    };
    CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    CHECK(call.fake.calls == 1);
    CHECK(call.device.waits == 1);
}

TEST_CASE("device rules: host tensors that are not contiguous are packed", "[runtime]") {
    DeviceCall call;
    std::vector<float> backwards(B * H_kv * T_kv * d), wide(B * H * T_q * (d_v + 3), untouched);
    for (size_t i = 0; i < backwards.size(); ++i) {
        backwards[i] = static_cast<float>(i);
    }
    call.args.key = view(backwards.data(), {B, H_kv, T_kv, d}, {H_kv * T_kv * d, T_kv * d, -d, 1});
    call.args.key.offset = (T_kv - 1) * d;
    call.args.out = view(wide.data(), {B, H, T_q, d_v}, {H * T_q * (d_v + 3), T_q * (d_v + 3), d_v + 3, 1});
    call.fake.on_call = [&](FakeKernel &kernel) {
        const SeenBuffer key = kernel.buffer(1), out = kernel.buffer(6);
        CHECK(key.strides == std::vector<int32_t>{1, int(d), int(T_kv * d), int(H_kv * T_kv * d)});
        CHECK(static_cast<const float *>(key.host)[0] == (T_kv - 1) * d);
        CHECK(static_cast<const float *>(key.host)[d] == (T_kv - 2) * d);
        CHECK(out.strides == std::vector<int32_t>{1, int(d_v), int(T_q * d_v), int(H * T_q * d_v)});
        for (int64_t i = 0; i < B * H * T_q * d_v; ++i) {
            static_cast<float *>(out.host)[i] = static_cast<float>(i);
        }
    };
    CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    CHECK(call.fake.calls == 1);
    for (int64_t row = 0; row < B * H * T_q; ++row) {
        for (int64_t x = 0; x < d_v + 3; ++x) {
            CHECK(wide[static_cast<size_t>(row * (d_v + 3) + x)] == (x < d_v ? static_cast<float>(row * d_v + x) : untouched));
        }
    }
    // A call that fails leaves out alone.
    std::fill(wide.begin(), wide.end(), untouched);
    call.fake.result = -1;
    CHECK(call.fake.run(call.args).code == POLYHEAD_INTERNAL);
    CHECK(wide == std::vector<float>(wide.size(), untouched));
}

TEST_CASE("device rules: any order of dimensions and stride 0 are contiguous enough", "[runtime]") {
    DeviceCall call;
    call.args.key.stride[0] = 0;
    call.args.query = from_bshd(view(call.query.data(), {B, T_q, H, d}));
    call.fake.on_call = [&](FakeKernel &kernel) {
        CHECK(kernel.buffer(0).host == call.query.data());
        CHECK(kernel.buffer(1).host == call.key.data());
        CHECK(kernel.buffer(1).strides[3] == 0);
    };
    CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    CHECK(call.fake.calls == 1);
}

TEST_CASE("device rules: errors", "[runtime]") {
    DeviceCall call;
    call.move_all();
    SECTION("the kernel's text becomes the status of its call") {
        call.fake.result = runtime::kernel_device_error;
        call.fake.on_call = [](FakeKernel &kernel) {
            halide_error(kernel.user_context, "CUDA error: CUDA_ERROR_OUT_OF_MEMORY cuMemAlloc failed\nmore");
            halide_error(kernel.user_context, "a consequence");
        };
        const polyhead_status status = call.fake.run(call.args);
        CHECK(status.code == POLYHEAD_OUT_OF_MEMORY);
        CHECK(std::string(status.message) == "kernel fake on Fake (cuda 8.0): CUDA error: CUDA_ERROR_OUT_OF_MEMORY cuMemAlloc failed");
        CHECK(call.device.attached == 0);
        // The next call is not about it.
        call.fake.on_call = [](FakeKernel &kernel) { halide_error(kernel.user_context, "something else"); };
        CHECK(std::string(call.fake.run(call.args).message) == "kernel fake on Fake (cuda 8.0): something else");
    }
    SECTION("a driver that cannot use the code") {
        call.fake.result = runtime::kernel_device_error;
        call.fake.on_call = [](FakeKernel &kernel) {
            halide_error(kernel.user_context, "CUDA error: CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadDataEx");
        };
        CHECK(call.fake.run(call.args).code == POLYHEAD_NO_DEVICE);
    }
    SECTION("memory that cannot be placed") {
        call.device.refused_name = "out";
        call.refused(POLYHEAD_OUT_OF_MEMORY, "out: no room");
        CHECK(call.device.attached == 0);
    }
}

TEST_CASE("device rules: no keys", "[runtime]") {
    DeviceCall call;
    call.args.key.shape[2] = call.args.value.shape[2] = 0;
    call.args.kv_lengths = polyhead_tensor{};
    call.move(&call.args.out, 3);
    call.move(&call.args.lse);
    REQUIRE(call.fake.run(call.args).code == POLYHEAD_OK);
    CHECK(call.fake.calls == 0);
    const float *out = static_cast<const float *>(call.args.out.data) + 3, *lse = static_cast<const float *>(call.args.lse.data);
    for (size_t i = 0; i < call.out.size(); ++i) {
        CHECK(out[i] == 0.0f);
    }
    for (size_t i = 0; i < call.lse.size(); ++i) {
        CHECK(lse[i] == -std::numeric_limits<float>::infinity());
    }
    SECTION("a layer in 16 bits answers with its bias, wherever its weights lie") {
        Problem p = MhaCall::cross();
        p.dtype = POLYHEAD_F16;
        MhaCall layer(p);
        layer.weights.dtype = POLYHEAD_F16;
        layer.fake.variant.api = POLYHEAD_CUDA;
        float *packed = static_cast<float *>(const_cast<void *>(layer.weights.data));
        const size_t bias = contract::weight_layout(p).out.bias_offset / sizeof(float);
        for (size_t i = 0; i < 8; ++i) { // rounded down
            packed[bias + i] = 1.0f + static_cast<float>(i) * 0x1p-10f + 0x1p-12f;
        }
        polyhead_weights there{};
        REQUIRE(polyhead_weights_to_device(&call.device, &layer.weights, &there).code == POLYHEAD_OK);
        std::vector<uint16_t> result(B * T_q * 8, 7);
        for (polyhead_tensor *t : {&layer.args.query, &layer.args.key, &layer.args.value}) {
            t->dtype = POLYHEAD_F16;
        }
        layer.args.key.shape[1] = layer.args.value.shape[1] = 0;
        layer.args.out = TensorView(result.data(), DType::f16, {B, T_q, 8});
        layer.args.device = &call.device;
        layer.args.weights = &there;
        const polyhead_status status = layer.fake.run(layer.args);
        INFO(status.message);
        REQUIRE(status.code == POLYHEAD_OK);
        for (size_t i = 0; i < result.size(); ++i) {
            CHECK(result[i] == 0x3c00 + i % 8);
        }
        polyhead_weights_free(&there);
    }
}

TEST_CASE("device rules: handles", "[runtime]") {
    FakeDevice device;
    char name[64];
    polyhead_device_name(&device, name, sizeof name);
    CHECK(std::string(name) == "Fake (cuda 8.0)");
    polyhead_device_name(nullptr, name, sizeof name);
    CHECK(std::string(name) == "no device");
    void *data = &device;
    CHECK(polyhead_device_allocate(nullptr, 4, &data).code == POLYHEAD_NULL_POINTER);
    CHECK(data == nullptr);
    CHECK(polyhead_device_allocate(&device, 0, &data).code == POLYHEAD_OK);
    CHECK(data == nullptr);
    CHECK(polyhead_device_allocate(&device, 4, nullptr).code == POLYHEAD_NULL_POINTER);
    CHECK(polyhead_synchronize(nullptr).code == POLYHEAD_NULL_POINTER);
    float value = 0;
    CHECK(polyhead_copy_to_device(&device, &value, 4, nullptr, 0).code == POLYHEAD_NULL_POINTER);
    CHECK(polyhead_copy_to_device(&device, nullptr, 0, nullptr, 0).code == POLYHEAD_OK);
    CHECK(polyhead_copy_to_host(nullptr, &value, 0, 4, &value).code == POLYHEAD_NULL_POINTER);
    polyhead_device_free(&device, nullptr);
    polyhead_close_device(nullptr);
    polyhead_weights_free(nullptr);
    const Device none;
    CHECK(!none);
    CHECK(none.synchronize().code() == POLYHEAD_NULL_POINTER);
}

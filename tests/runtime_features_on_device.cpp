// Masks, modifiers and expression tensors of calls on a device that is a stand-in: where they are, what replaces them, what is packed.
#include <algorithm>

#include "runtime_fake_device.h"
#include "runtime_features.h"

#include "../runtime/devices/element_slots.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

struct DeviceFeatureCall : FeatureCall {
    FakeDevice device;
    DeviceFeatureCall() {
        fake.variant.api = POLYHEAD_CUDA;
        args.device = &device;
    }
    void move(polyhead_tensor *tensor) {
        int64_t bytes = contract::dtype_bytes(tensor->dtype);
        for (int i = 0; i < tensor->rank; ++i) {
            bytes *= tensor->shape[i];
        }
        void *memory = nullptr;
        REQUIRE(polyhead_device_allocate(&device, static_cast<size_t>(bytes), &memory).code == POLYHEAD_OK);
        polyhead_copy_to_device(&device, tensor->data, static_cast<size_t>(bytes), memory, 0);
        tensor->data = memory;
        tensor->device = &device;
    }
    void move_all() {
        for (polyhead_tensor *t : {&args.query, &args.key, &args.value, &args.kv_lengths, &args.position_offsets, &args.mask,
                                   &args.score_bias, &args.alibi_slopes, &args.sinks, &args.rope_cos, &args.rope_sin, &args.positions_q,
                                   &args.positions_kv, &args.head_gate, &args.out, &args.lse, &args.scores, &args.weights_mean}) {
            if (t->data) {
                move(t);
            }
        }
        for (TensorView &tensor : expression_tensors) {
            move(&tensor);
        }
    }
};

} // namespace

TEST_CASE("features on a device: everything lies there, and the call does not wait", "[runtime]") {
    DeviceFeatureCall call;
    call.move_all();
    constexpr int tensors = 3 + 11 + 3 + 4;
    call.fake.on_call = [&](FakeKernel &kernel) {
        CHECK(call.device.attached == tensors);
        const auto *mask = static_cast<const runtime::KernelBuffer *>(kernel.argv[5]);
        CHECK(mask->device == reinterpret_cast<uint64_t>(call.args.mask.data));
        CHECK(mask->device_dirty());
    };
    call.accepted();
    CHECK(call.device.waits == 0);
    CHECK(call.device.attached == 0);
}

TEST_CASE("features on a device: neutral elements need no copy", "[runtime]") {
    DeviceFeatureCall call;
    call.leave_out();
    call.move_all();
    call.fake.on_call = [](FakeKernel &kernel) {
        for (int i = 3; i < 16; ++i) { // behind query, key and value: optional tensors, those of the expression
            const auto *buffer = static_cast<const runtime::KernelBuffer *>(kernel.argv[i]);
            CHECK(buffer->device != 0);
            CHECK(!buffer->host_dirty());
        }
    };
    call.accepted();
    CHECK(call.device.waits == 0);
    // key lengths, offsets, mask, score bias, slopes, sinks, positions of both, gate
    CHECK(call.device.elements == std::vector<uint32_t>{T_kv, 0, 0x01010101, 0, 0, 0xff800000, 0, 0, 0x3f800000});
    CHECK(call.device.attached == 0);
}

TEST_CASE("features on a device: values there are not read", "[runtime]") {
    DeviceFeatureCall call;
    call.positions_q[0] = 99;
    call.offsets[0] = 1 << 30;
    call.move_all();
    call.accepted();
    call.args.positions_q = polyhead_tensor{}; // follow from lengths that are not known here
    call.args.rope_cos.shape[0] = call.args.rope_sin.shape[0] = 1;
    call.accepted();
}

TEST_CASE("features on a device: wrong places", "[runtime]") {
    DeviceFeatureCall call;
    FakeDevice other(Api::cuda, 80, "Other (cuda 8.0)");
    SECTION("a mask in a call on the CPU") {
        call.move(&call.args.mask);
        call.args.device = nullptr;
        call.refused(POLYHEAD_WRONG_DEVICE, "mask: lies on device Fake (cuda 8.0), expected host memory, because the call names no device");
    }
    SECTION("an expression tensor on another device") {
        call.expression_tensors[2].device = &other;
        call.refused(POLYHEAD_WRONG_DEVICE,
                     "kept: lies on device Other (cuda 8.0), expected host memory or the device of the call, Fake (cuda 8.0)");
    }
    SECTION("said to be there, but not") {
        call.args.scores.device = &call.device;
        call.refused(POLYHEAD_WRONG_DEVICE, "scores: not there");
    }
}

TEST_CASE("features on a device: host tensors that are not contiguous are packed", "[runtime]") {
    DeviceFeatureCall call;
    std::vector<uint8_t> wide(T_q * (T_kv + 2));
    std::vector<float> rows(B * T_q * (T_kv + 1), untouched), doubled(2 * 7 * H);
    for (size_t i = 0; i < wide.size(); ++i) {
        wide[i] = static_cast<uint8_t>(i);
    }
    call.args.mask = view_bool(wide, {T_q, T_kv});
    call.args.mask.stride[0] = T_kv + 2;
    call.args.weights_mean = view(rows.data(), {B, T_q, T_kv}, {T_q * (T_kv + 1), T_kv + 1, 1});
    call.expression_tensors[0] = view(doubled.data(), {H, 7}, {14, 1});
    call.fake.on_call = [&](FakeKernel &kernel) {
        const SeenBuffer mask = kernel.buffer(5), table = kernel.buffer(14), mean = kernel.buffer(27);
        CHECK(mask.strides == std::vector<int32_t>{1, T_kv, 0, 0});
        CHECK(static_cast<const uint8_t *>(mask.host)[T_kv] == T_kv + 2);
        CHECK(table.strides == std::vector<int32_t>{1, 7});
        CHECK(mean.strides == std::vector<int32_t>{1, T_kv, T_q * T_kv});
        std::fill_n(static_cast<float *>(mean.host), B * T_q * T_kv, 1.0f);
    };
    call.accepted();
    for (size_t i = 0; i < rows.size(); ++i) {
        CHECK(rows[i] == (i % (T_kv + 1) == T_kv ? untouched : 1.0f));
    }
}

TEST_CASE("features on a device: the slots of neutral elements", "[runtime]") {
    runtime::ElementSlots slots;
    uint32_t memory[100] = {};
    int fills = 0, made = 0;
    const auto fill = [&](void **place, uint32_t bits) {
        if (!*place) {
            *place = &memory[made++];
        }
        *static_cast<uint32_t *>(*place) = bits;
        ++fills;
        return true;
    };
    const int zero = slots.take(0, fill), ones = slots.take(0xffffffff, fill);
    CHECK(zero != ones);
    CHECK(slots.take(0, fill) == zero); // several tensors of a call share it
    CHECK(fills == 2);
    CHECK(*static_cast<uint32_t *>(slots.memory(ones)) == 0xffffffff);
    CHECK(slots.take(7, [](void **, uint32_t) { return false; }) == -1); // no memory, or no room in the queue
    int taken = 2;
    for (uint32_t bits = 1; slots.take(bits, fill) >= 0; ++bits) {
        ++taken;
    }
    CHECK(made == taken); // all of them are in use
    slots.release(zero);
    CHECK(slots.take(1000, fill) == -1); // one user is left
    slots.release(zero);
    CHECK(slots.take(1000, fill) == zero);
    CHECK(*static_cast<uint32_t *>(slots.memory(zero)) == 1000);
    int freed = 0;
    slots.clear([&](void *) { ++freed; });
    CHECK(freed == made);
}

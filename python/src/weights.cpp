// Packs weights that come as Python arrays.
#include "call.h"
#include "without_lock.h"

namespace polyhead::python {
namespace {

struct WeightSlot {
    const char *name;
    polyhead_tensor polyhead_weight_tensors::*tensor;
};

constexpr WeightSlot weight_slots[] = {
    {"in_proj", &polyhead_weight_tensors::in_proj},   {"in_bias", &polyhead_weight_tensors::in_bias},
    {"query", &polyhead_weight_tensors::query},       {"key", &polyhead_weight_tensors::key},
    {"value", &polyhead_weight_tensors::value},       {"query_bias", &polyhead_weight_tensors::query_bias},
    {"key_bias", &polyhead_weight_tensors::key_bias}, {"value_bias", &polyhead_weight_tensors::value_bias},
    {"out_proj", &polyhead_weight_tensors::out_proj}, {"out_bias", &polyhead_weight_tensors::out_bias},
    {"gate", &polyhead_weight_tensors::gate},         {"gate_bias", &polyhead_weight_tensors::gate_bias},
};

polyhead_tensor polyhead_weight_tensors::*slot_named(const std::string &name) {
    std::string names;
    for (const WeightSlot &slot : weight_slots) {
        if (name == slot.name) {
            return slot.tensor;
        }
        names += (names.empty() ? "" : ", ") + std::string(slot.name);
    }
    throw wrong_type("unexpected weight '" + name + "'; expected " + names);
}

} // namespace

std::unique_ptr<PackedWeights> pack(const LoadedKernel &loaded, nb::dict given, DevicePointer device) {
    std::deque<Array> arrays;
    WeightTensors tensors;
    for (const auto &[key, value] : given) {
        const auto name = nb::cast<std::string>(key);
        const auto slot = slot_named(name);
        if (!value.is_none()) {
            Array &array = arrays.emplace_back(name, value, Access::read, Gradients::taken);
            array.place(nullptr);
            const auto storage = Element(loaded.table().problem.dtype);
            array.want(array.element() == storage ? storage : Element::f32); // the runtime takes both
            tensors.*slot = array.tensor();
        }
    }
    const WithoutLock others_may_run;
    for (Array &array : arrays) {
        array.fill();
    }
    auto packed = std::make_unique<PackedWeights>();
    const Kernel kernel(loaded.table());
    const auto check = [](const Status &status) {
        if (!status.ok()) {
            throw Refusal(status.code(), status.message());
        }
    };
    if (device) {
        Weights on_host;
        check(kernel.pack(tensors, &on_host));
        check(device->device.put(on_host, &packed->weights));
        packed->device = std::move(device);
    } else {
        check(kernel.pack(tensors, &packed->weights));
    }
    return packed;
}

} // namespace polyhead::python

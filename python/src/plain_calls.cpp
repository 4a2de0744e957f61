// Calls of sdpa() with query, key, value and the causal rule alone, on arrays of NumPy or of a device: each form has its kernel and a plan.
// Reading all the other arguments takes longer than a small kernel.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <unordered_map>

#include <nanobind/stl/shared_ptr.h>

#include "call.h"
#include "torch_tensors.h"
#include "without_lock.h"

namespace polyhead::python {
namespace {

// The dtype of arrays of bfloat16, a type of another package than NumPy: null until such an array has come.
nb::handle bfloat16;

bool is_bfloat16(nb::handle object) {
    return bfloat16 && nb::hasattr(object, "dtype") && object.attr("dtype").is(bfloat16);
}

void notice_bfloat16(nb::handle object) {
    if (bfloat16 || !nb::hasattr(object, "dtype")) {
        return;
    }
    nb::object dtype = object.attr("dtype");
    if (nb::cast<std::string>(nb::str(nb::handle(dtype))) == "bfloat16") {
        bfloat16 = dtype.release(); // it lives as long as the process
    }
}

// Query, key, value and out.
struct Arrays {
    explicit Arrays(const OpenDevice *device_) : device(device_) {}

    const OpenDevice *device; // null: the CPU
    std::array<NumpyBuffer, 4> buffers;
    std::array<std::optional<Array>, 4> others; // those that have come by DLPack, as long as the call uses them
    std::array<polyhead_tensor, 4> tensors{};
    std::array<Element, 4> elements{};

    bool read(size_t i, nb::handle object) {
        const Access access = i == 3 ? Access::write : Access::read;
        const bool known = device ? read_on_device(i, object, access) : read_numpy(i, object, access);
        tensors[i].dtype = int32_t(elements[i]);
        return known && elements[i] == elements[0] && tensors[i].rank == 4;
    }

private:
    bool read_numpy(size_t i, nb::handle object, Access access) {
        if (is_bfloat16(object)) {
            elements[i] = Element::bf16;
            return buffers[i].read_bfloat16(object, access, &tensors[i]);
        }
        return buffers[i].read(object, access, &tensors[i], &elements[i]) && (elements[i] == Element::f32 || elements[i] == Element::f16);
    }
    bool read_on_device(size_t i, nb::handle object, Access access) {
        if (read_torch(object, *device, &tensors[i], &elements[i])) {
            return true;
        }
        try {
            const char *const names[] = {"query", "key", "value", "out"};
            Array &other = others[i].emplace(names[i], object, access);
            other.place(device);
            tensors[i] = other.tensor();
            elements[i] = other.element();
        } catch (const std::exception &) { // who reads all arguments says what is wrong
            return false;
        }
        return tensors[i].device != nullptr;
    }
};

// All that a plan depends on: device, type, causal rule, whether out was given, extents and strides.
using Form = std::array<int64_t, 4 + 4 * 8>;

struct HashOfForm {
    size_t operator()(const Form &form) const noexcept {
        uint64_t hash = 0xcbf29ce484222325;
        for (const int64_t number : form) {
            hash = (hash ^ uint64_t(number)) * 0x9e3779b97f4a7c15;
            hash ^= hash >> 29;
        }
        return size_t(hash);
    }
};

Form form_of(const Arrays &arrays, bool causal, bool has_out) {
    Form form{arrays.device ? arrays.device->number : 0, int64_t(arrays.elements[0]), causal, has_out};
    for (size_t i = 0; i < (has_out ? 4U : 3U); ++i) {
        std::copy_n(arrays.tensors[i].shape, 4, &form[4 + 8 * i]);
        std::copy_n(arrays.tensors[i].stride, 4, &form[8 + 8 * i]);
    }
    return form;
}

// The device of a plan may be closed: then no form has its number any more.
struct Kept {
    std::shared_ptr<const LoadedKernel> kernel;
    polyhead::Plan plan;
    polyhead_args args;
};

// Used by threads that hold the interpreter's lock.
std::unordered_map<Form, std::shared_ptr<const Kept>, HashOfForm> &all_kept() {
    static auto *const kept = new std::unordered_map<Form, std::shared_ptr<const Kept>, HashOfForm>; // calls may run while the process ends
    return *kept;
}

constexpr size_t most_kept = 512; // a growing sequence has a new form at every call

void set_tensors(const Arrays &arrays, polyhead_args *args) {
    args->query = arrays.tensors[0];
    args->key = arrays.tensors[1];
    args->value = arrays.tensors[2];
    args->out = arrays.tensors[3];
}

nb::object new_out(const Arrays &arrays, nb::handle query) {
    static const auto *const numpy = new nb::object(nb::module_::import_("numpy").attr("empty"));
    static const auto *const like = new nb::object(nb::module_::import_("polyhead._arrays").attr("empty"));
    const int64_t *const of_query = arrays.tensors[0].shape, width = arrays.tensors[2].shape[3];
    DeviceArray *array = nullptr;
    if (arrays.device && nb::try_cast(query, array, false) && array) {
        return nb::cast(new_output(array->device(), {of_query[0], of_query[1], of_query[2], width}, array->element()));
    }
    const nb::object shape = nb::make_tuple(of_query[0], of_query[1], of_query[2], width);
    return arrays.device ? (*like)(query, shape) : (*numpy)(shape, query.attr("dtype"));
}

// out, or None where the call is not plain or its form is not kept. device: None for the CPU.
nb::object plain_call(nb::handle query, nb::handle key, nb::handle value, bool causal, nb::handle given, const DevicePointer &device) {
    Arrays arrays(device.get());
    const bool has_out = !given.is_none();
    if (!arrays.read(0, query) || !arrays.read(1, key) || !arrays.read(2, value) || (has_out && !arrays.read(3, given))) {
        return nb::none();
    }
    const auto found = all_kept().find(form_of(arrays, causal, has_out));
    if (found == all_kept().end()) {
        return nb::none();
    }
    const std::shared_ptr<const Kept> kept = found->second; // others may take it out while the call runs
    nb::object out = has_out ? nb::borrow(given) : new_out(arrays, query);
    if (!has_out && !arrays.read(3, out)) {
        return nb::none();
    }
    polyhead_args args = kept->args;
    set_tensors(arrays, &args);
    args.plan = kept->plan.raw();
    {
        const WithoutLock others_may_run;
        const polyhead_status status = polyhead_run(&kept->kernel->table(), &args);
        raise_unless_ok(status);
    }
    return out;
}

// Keeps the form of a call that the kernel has run; nothing where it is not plain.
void keep_plain(const std::shared_ptr<const LoadedKernel> &kernel, nb::handle query, nb::handle key, nb::handle value, bool causal,
                nb::handle out, bool has_out, const DevicePointer &device) {
    notice_bfloat16(query);
    Arrays arrays(device.get());
    if (!arrays.read(0, query) || !arrays.read(1, key) || !arrays.read(2, value) || !arrays.read(3, out)) {
        return;
    }
    polyhead_args args = polyhead_args_of(kernel->table().problem.op);
    args.alignment = causal ? POLYHEAD_TOP_LEFT : args.alignment;
    args.device = device ? device->raw() : nullptr;
    set_tensors(arrays, &args);
    polyhead_plan *plan = nullptr;
    if (polyhead_make_plan(&kernel->table(), &args, &plan).code != POLYHEAD_OK) {
        return; // arrays that were converted
    }
    if (all_kept().size() >= most_kept) {
        all_kept().clear();
    }
    all_kept()[form_of(arrays, causal, has_out)] = std::make_shared<Kept>(Kept{kernel, polyhead::Plan(plan), args});
}

} // namespace

void clear_plain() {
    all_kept().clear();
}

void bind_plain_calls(nb::module_ &module) {
    using namespace nb::literals;
    module.def("plain_call", plain_call, "query"_a, "key"_a, "value"_a, "causal"_a, "out"_a.none(), "device"_a.none() = nb::none());
    module.def("keep_plain", keep_plain, "kernel"_a, "query"_a, "key"_a, "value"_a, "causal"_a, "out"_a, "has_out"_a,
               "device"_a.none() = nb::none());
    module.def("clear_plain", clear_plain);
    module.def("plain_forms", [] { return all_kept().size(); });
}

} // namespace polyhead::python

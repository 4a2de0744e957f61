// Reads tensors of PyTorch.
#include "torch_tensors.h"

#include <algorithm>
#include <iterator>

namespace polyhead::python {
namespace {

// torch.Tensor itself and the dtypes that kernels store; what is derived from it may keep its elements elsewhere. Used by threads that hold
// the interpreter's lock.
struct Torch {
    nb::object module, tensor, dtypes[3];
    static constexpr Element elements[] = {Element::f32, Element::f16, Element::bf16};

    // Those of the module that is imported now; nothing where there is none.
    static const Torch &known() {
        static auto *const torch = new Torch; // tensors may be read while the process ends
        const nb::object now = nb::steal(PyImport_GetModule(name().ptr()));
        if (now.is_valid() && !now.is(torch->module)) {
            torch->read(now);
        }
        return *torch;
    }

private:
    static nb::handle name() {
        static auto *const text = new nb::str("torch");
        return *text;
    }
    void read(const nb::object &now) {
        module = now;
        tensor = nb::getattr(now, "Tensor", nb::none());
        const char *const names[] = {"float32", "float16", "bfloat16"};
        for (size_t i = 0; i < 3; ++i) {
            dtypes[i] = nb::getattr(now, names[i], nb::none());
        }
    }
};

bool read_numbers(nb::handle tuple, int rank, int64_t *numbers) {
    for (int i = 0; i < rank; ++i) {
        numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple.ptr(), i));
    }
    return !PyErr_Occurred();
}

bool read_memory(nb::handle object, polyhead_tensor *tensor) {
    const nb::object shape = object.attr("shape"), strides = object.attr("stride")(), address = object.attr("data_ptr")();
    if (!PyTuple_Check(shape.ptr()) || !PyTuple_Check(strides.ptr()) || PyTuple_Size(shape.ptr()) > POLYHEAD_MAX_RANK ||
        PyTuple_Size(shape.ptr()) != PyTuple_Size(strides.ptr())) {
        return false;
    }
    tensor->rank = int32_t(PyTuple_Size(shape.ptr()));
    tensor->data = PyLong_AsVoidPtr(address.ptr());
    return read_numbers(shape, tensor->rank, tensor->shape) && read_numbers(strides, tensor->rank, tensor->stride);
}

} // namespace

bool read_torch(nb::handle object, const OpenDevice &device, polyhead_tensor *tensor, Element *element) {
    const Torch &torch = Torch::known();
    if (!torch.tensor.is_valid() || torch.tensor.ptr() != reinterpret_cast<PyObject *>(Py_TYPE(object.ptr())) || device.api != Api::cuda) {
        return false;
    }
    try {
        const nb::object dtype = object.attr("dtype");
        const auto *const found =
            std::find_if(std::begin(torch.dtypes), std::end(torch.dtypes), [&](const nb::object &d) { return d.is(dtype); });
        if (found == std::end(torch.dtypes) || !object.attr("is_cuda").is(nb::handle(Py_True)) ||
            object.attr("requires_grad").is(nb::handle(Py_True)) || nb::cast<bool>(object.attr("is_neg")()) ||
            nb::cast<int>(object.attr("get_device")()) != device.index || !read_memory(object, tensor)) {
            PyErr_Clear();
            return false;
        }
        *element = Torch::elements[found - std::begin(torch.dtypes)];
        tensor->device = device.raw();
        return true;
    } catch (const std::exception &) { // no memory of its own, such as a sparse one
        return false;
    }
}

} // namespace polyhead::python

// Python arrays as tensors of the runtime: numpy and DLPack without copies, converted where a kernel has another storage type.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <nanobind/ndarray.h>

#include "device.h"

namespace polyhead::python {

// "float32", "bfloat16": as numpy writes them.
const char *element_name(Element element);
// Of the integers as whose bits elements of ml_dtypes travel, which NumPy hands out in no protocol; null where it knows the element.
const char *name_of_bits(Element element);
// As DLPack writes it.
nb::dlpack::dtype dlpack_type(Element element);
// The element type of this name; a TypeError when there is none.
Element element_named(const std::string &name);

// Whether the caller's array is read or written.
enum class Access { read, write };

// Whether a tensor of PyTorch that requires gradients is refused while PyTorch records them, or is taken as it is, such as weights to pack.
enum class Gradients { refused, taken };

// Memory of an array of NumPy, by the buffer protocol: a fifth of the time of DLPack.
class NumpyBuffer {
public:
    NumpyBuffer() = default;
    ~NumpyBuffer() { PyBuffer_Release(&view_); } // nothing where there is none
    NumpyBuffer(const NumpyBuffer &) = delete;
    NumpyBuffer &operator=(const NumpyBuffer &) = delete;

    // False where it is no such array, not of a type that the runtime knows, or not writable; no error of Python stays. Called once.
    bool read(nb::handle object, Access access, polyhead_tensor *tensor, Element *element);
    // The same of an array of bfloat16, which NumPy hands out as integers.
    bool read_bfloat16(nb::handle object, Access access, polyhead_tensor *tensor);

private:
    bool open(nb::handle object, Access access);
    bool layout(polyhead_tensor *tensor) const;

    Py_buffer view_{};
};

// One array while a call uses it. What it sees belongs to the Python object, which it keeps.
class Array {
public:
    // `name` is for sentences. Throws a TypeError when the object is no array, or not one that polyhead can take.
    Array(std::string name, nb::handle given, Access access, Gradients gradients = Gradients::refused);

    const std::string &name() const { return name_; }
    Element element() const { return element_; }
    polyhead_tensor &tensor() { return tensor_; }
    bool on_cuda() const { return on_cuda_; }
    bool is_output() const { return access_ == Access::write; }

    // Where a call on this device (null: the CPU) finds it; refuses arrays of other devices.
    void place(const OpenDevice *device);
    // Allocates memory for elements of another type, if arrays can be converted to it; tensor() then describes that memory.
    void want(Element element);
    // Refuses an output that is converted and whose elements lie over each other: the runtime sees the room, which is dense.
    void check_no_overlap() const;
    // True when both are host memory, one of them is converted, so that the runtime does not see it, and they may share bytes.
    bool shares_unseen_memory(const Array &other) const;

    // Copies between the room and the caller's array; nothing without a room. These touch no Python object.
    void fill();
    void give_back();

private:
    bool borrow(nb::handle object);
    void read_other(nb::handle object);
    void read_dlpack(std::optional<Element> bits_of);
    void read_device_array(const DeviceArray &array);
    Strided original() const;
    Strided room() const;

    std::string name_;
    Access access_;
    Element element_ = Element::f32;
    bool on_cuda_ = false;
    nb::object keep_;
    NumpyBuffer buffer_;
    nb::ndarray<> writable_;
    nb::ndarray<nb::ro> readable_;
    polyhead_tensor tensor_{}, original_{};
    DevicePointer device_; // of a DeviceArray
    const DeviceArray *array_ = nullptr;
    struct Free {
        void operator()(void *memory) const { std::free(memory); }
    };
    std::unique_ptr<void, Free> room_;
};

} // namespace polyhead::python

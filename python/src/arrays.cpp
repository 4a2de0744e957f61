// Reads the arrays of a call and converts them to the types of the runtime.
#include "arrays.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "../../runtime/rules/shared_elements.h"

namespace polyhead::python {
namespace {

namespace dlpack = nb::dlpack;

struct Known {
    Element element;
    const char *name;
    dlpack::dtype_code code;
    uint8_t bits;
    const char *travels_as; // NumPy has it from ml_dtypes, and hands it out in no protocol: the bits travel as these integers
};

constexpr Known elements[] = {
    {Element::f32, "float32", dlpack::dtype_code::Float, 32, nullptr},
    {Element::f16, "float16", dlpack::dtype_code::Float, 16, nullptr},
    {Element::bf16, "bfloat16", dlpack::dtype_code::Bfloat, 16, "uint16"},
    {Element::f64, "float64", dlpack::dtype_code::Float, 64, nullptr},
    {Element::i32, "int32", dlpack::dtype_code::Int, 32, nullptr},
    {Element::i64, "int64", dlpack::dtype_code::Int, 64, nullptr},
    {Element::boolean, "bool", dlpack::dtype_code::Bool, 8, nullptr},
    {Element::i8, "int8", dlpack::dtype_code::Int, 8, nullptr},
};

const Known *known(Element element) {
    const auto *const found = std::find_if(std::begin(elements), std::end(elements), [=](const Known &k) { return k.element == element; });
    return found == std::end(elements) ? nullptr : found;
}

const Known *known(dlpack::dtype dtype) {
    for (const Known &k : elements) {
        if (uint8_t(k.code) == dtype.code && k.bits == dtype.bits && dtype.lanes == 1) {
            return &k;
        }
    }
    return nullptr;
}

std::string text_of(nb::handle object) {
    return nb::cast<std::string>(nb::str(object));
}

std::string dtype_text(nb::handle object) {
    return nb::hasattr(object, "dtype") ? text_of(object.attr("dtype")) : "unknown";
}

bool truth(nb::handle object, const char *attribute) {
    return nb::hasattr(object, attribute) && nb::cast<bool>(nb::bool_(object.attr(attribute)));
}

// The element of an array of NumPy whose bits travel as integers.
const Known *travels_as_bits(nb::handle object) {
    if (!nb::hasattr(object, "dtype") || !nb::hasattr(object, "__array_interface__")) {
        return nullptr;
    }
    const std::string name = dtype_text(object);
    const auto *const found =
        std::find_if(std::begin(elements), std::end(elements), [&](const Known &k) { return k.travels_as && name == k.name; });
    return found == std::end(elements) ? nullptr : found;
}

bool is_numpy(nb::handle object) {
    return std::strcmp(Py_TYPE(object.ptr())->tp_name, "numpy.ndarray") == 0;
}

// Of PyTorch a tensor as it is meant. One that requires gradients would lose them without a word; the negative and the conjugate bit say
// that the memory holds other numbers than the tensor.
nb::object without_bits(const std::string &name, nb::handle given, Access access, Gradients gradients) {
    nb::object object = nb::borrow(given);
    // To ask an array of numpy for an attribute that it lacks takes as long as a part of a small kernel.
    if (is_numpy(given) || !nb::hasattr(given, "requires_grad")) {
        return object;
    }
    if (gradients == Gradients::refused && truth(given, "requires_grad")) {
        const nb::object modules = nb::module_::import_("sys").attr("modules");
        const nb::object torch = modules.attr("get")("torch");
        if (torch.is_none() || nb::cast<bool>(nb::bool_(torch.attr("is_grad_enabled")()))) {
            throw wrong_type(name + ": found a tensor that requires gradients, expected one without, such as " + name +
                             ".detach(), or a call under torch.no_grad()");
        }
    }
    for (const auto &[asked, resolved] : {std::pair("is_neg", "resolve_neg"), std::pair("is_conj", "resolve_conj")}) {
        if (nb::hasattr(object, asked) && nb::cast<bool>(nb::bool_(object.attr(asked)()))) {
            if (access == Access::write) {
                throw wrong_type(name + ": found a tensor whose memory holds other numbers (" + asked +
                                 "), expected one that can be written");
            }
            object = object.attr(resolved)();
        }
    }
    return object;
}

[[noreturn]] void no_array(const std::string &name, nb::handle object, Access access) {
    if (access == Access::write && nb::hasattr(object, "__dlpack__")) {
        throw wrong_type(name + ": found an array that cannot be written, expected a writable one");
    }
    if (nb::hasattr(object, "dtype") && nb::hasattr(object, "shape")) {
        throw wrong_type(name + ": found a " + class_name(object) + " of dtype " + dtype_text(object) +
                         " that has neither DLPack nor the buffer protocol for it");
    }
    throw wrong_type(name + ": found " + class_name(object) + ", expected an array: numpy, or anything with DLPack");
}

void check_rank(const std::string &name, size_t rank) {
    if (rank > POLYHEAD_MAX_RANK) {
        throw Refusal(POLYHEAD_WRONG_SHAPE,
                      name + ": rank " + std::to_string(rank) + ", expected at most " + std::to_string(POLYHEAD_MAX_RANK));
    }
}

enum { dl_cpu = 1, dl_cuda = 2, dl_cuda_host = 3, dl_cuda_managed = 13 }; // DLDeviceType

template <class View> void read_view(const View &view, polyhead_tensor *tensor) {
    tensor->data = const_cast<void *>(static_cast<const void *>(view.data()));
    tensor->rank = static_cast<int32_t>(view.ndim());
    for (size_t i = 0; i < view.ndim(); ++i) {
        tensor->shape[i] = static_cast<int64_t>(view.shape(i));
        tensor->stride[i] = view.stride(i);
    }
}

// The elements that a format of the buffer protocol names, in this machine's order of bytes; null for others.
const Known *known(const char *format, Py_ssize_t bytes) {
    format += format && (*format == '@' || *format == '=') ? 1 : 0;
    if (!format || !*format || format[1]) {
        return nullptr;
    }
    const auto code = std::strchr("fed", *format)    ? dlpack::dtype_code::Float
                      : std::strchr("bilq", *format) ? dlpack::dtype_code::Int
                                                     : dlpack::dtype_code::Bool;
    return *format == '?' || code != dlpack::dtype_code::Bool ? known(dlpack::dtype{uint8_t(code), uint8_t(bytes * 8), 1}) : nullptr;
}

int32_t runtime_dtype(Element element) {
    return int32_t(element) < int32_t(Element::f64) ? int32_t(element) : -1;
}

} // namespace

const char *element_name(Element element) {
    const Known *const found = known(element);
    return found ? found->name : "unknown";
}

const char *name_of_bits(Element element) {
    const Known *const found = known(element);
    return found ? found->travels_as : nullptr;
}

nb::dlpack::dtype dlpack_type(Element element) {
    const Known *const found = known(element);
    return found ? dlpack::dtype{uint8_t(found->code), found->bits, 1} : dlpack::dtype{};
}

Element element_named(const std::string &name) {
    std::string names;
    for (const Known &k : elements) {
        if (name == k.name) {
            return k.element;
        }
        names += (names.empty() ? "" : ", ") + std::string(k.name);
    }
    throw wrong_type("dtype: found " + name + ", expected one of " + names);
}

bool NumpyBuffer::open(nb::handle object, Access access) {
    const int flags = PyBUF_FORMAT | PyBUF_STRIDES | (access == Access::write ? PyBUF_WRITABLE : 0);
    if (!is_numpy(object)) {
        return false;
    }
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) {
        PyErr_Clear();
        return false;
    }
    return view_.ndim <= POLYHEAD_MAX_RANK;
}

bool NumpyBuffer::layout(polyhead_tensor *tensor) const {
    tensor->data = view_.buf;
    tensor->rank = view_.ndim;
    for (int i = 0; i < view_.ndim; ++i) {
        if (view_.strides[i] % view_.itemsize != 0) {
            return false;
        }
        tensor->shape[i] = view_.shape[i];
        tensor->stride[i] = view_.strides[i] / view_.itemsize;
    }
    return true;
}

bool NumpyBuffer::read(nb::handle object, Access access, polyhead_tensor *tensor, Element *element) {
    const Known *const found = open(object, access) ? known(view_.format, view_.itemsize) : nullptr;
    if (!found || !layout(tensor)) {
        return false;
    }
    *element = found->element;
    return true;
}

bool NumpyBuffer::read_bfloat16(nb::handle object, Access access, polyhead_tensor *tensor) {
    return is_numpy(object) && open(object.attr("view")("uint16"), access) && layout(tensor);
}

Array::Array(std::string name, nb::handle given, Access access, Gradients gradients)
    : name_(std::move(name)), access_(access), keep_(without_bits(name_, given, access, gradients)) {
    if (!buffer_.read(keep_, access_, &tensor_, &element_)) { // the other ways find out what is wrong, or read it
        read_other(keep_);
    }
    tensor_.dtype = runtime_dtype(element_);
    // One number is a tensor of one element.
    if (tensor_.rank == 0) {
        tensor_.rank = 1;
        tensor_.shape[0] = tensor_.stride[0] = 1;
    }
}

void Array::read_other(nb::handle object) {
    DeviceArray *array = nullptr;
    if (nb::try_cast(object, array, false) && array) {
        read_device_array(*array);
    } else if (borrow(object)) {
        read_dlpack({});
    } else if (const Known *const bits = travels_as_bits(object); bits && borrow(object.attr("view")(bits->travels_as))) {
        read_dlpack(bits->element);
    } else {
        no_array(name_, object, access_);
    }
}

bool Array::borrow(nb::handle object) {
    return access_ == Access::write ? nb::try_cast(object, writable_, false) : nb::try_cast(object, readable_, false);
}

void Array::read_dlpack(std::optional<Element> bits_of) {
    const bool writes = access_ == Access::write;
    const dlpack::dtype dtype = writes ? writable_.dtype() : readable_.dtype();
    check_rank(name_, writes ? writable_.ndim() : readable_.ndim());
    writes ? read_view(writable_, &tensor_) : read_view(readable_, &tensor_);
    const int device = writes ? writable_.device_type() : readable_.device_type();
    if (device != dl_cpu && device != dl_cuda_host && device != dl_cuda && device != dl_cuda_managed) {
        throw wrong_type(name_ + ": lies on a device of DLPack type " + std::to_string(device) + ", expected host memory or CUDA");
    }
    on_cuda_ = device == dl_cuda || device == dl_cuda_managed;
    const Known *const found = bits_of ? known(*bits_of) : known(dtype);
    if (!found) {
        throw wrong_type(name_ + ": dtype " + dtype_text(keep_) + ", expected float32, float16, bfloat16, float64, int32, int64 or bool");
    }
    element_ = found->element;
}

void Array::read_device_array(const DeviceArray &array) {
    device_ = array.device();
    array_ = &array;
    element_ = array.element();
    check_rank(name_, array.shape().size());
    tensor_.data = array.data();
    tensor_.rank = int32_t(array.shape().size());
    int64_t stride = 1;
    for (int i = tensor_.rank - 1; i >= 0; --i) {
        tensor_.shape[i] = array.shape()[size_t(i)];
        tensor_.stride[i] = stride;
        stride *= tensor_.shape[i];
    }
}

void Array::place(const OpenDevice *device) {
    if (!on_cuda_ && !device_) {
        return;
    }
    // Arrays of one CUDA device serve every stream of it; elsewhere memory belongs to an open device.
    const bool here = device && (device->api == Api::cuda ? on_cuda_ || (device_->api == Api::cuda && device_->index == device->index)
                                                          : device_ && device_->raw() == device->raw());
    if (!here) {
        throw Refusal(POLYHEAD_WRONG_DEVICE, name_ + ": lies on " + (device_ ? device_->text() : "a CUDA device") +
                                                 ", expected memory of " + (device ? device->text() : "the CPU, where this call runs"));
    }
    if (array_ && device_->raw() != device->raw()) {
        array_->share(); // with another stream
    }
    tensor_.device = device->raw();
}

Strided Array::original() const {
    return {original_.data, element_, original_.rank, original_.shape, original_.stride};
}

Strided Array::room() const {
    return {tensor_.data, Element(tensor_.dtype), tensor_.rank, tensor_.shape, tensor_.stride};
}

void Array::want(Element wanted) {
    if (element_ == wanted || !converts(element_, wanted)) {
        if (tensor_.dtype < 0) {
            throw Refusal(POLYHEAD_WRONG_DTYPE, name_ + ": dtype " + element_name(element_) + ", expected " + element_name(wanted));
        }
        return; // what does not fit the kernel has the runtime's sentence
    }
    if (tensor_.device) {
        throw Refusal(POLYHEAD_WRONG_DTYPE, name_ + ": dtype " + element_name(element_) + " on a device, expected " + element_name(wanted));
    }
    original_ = tensor_;
    tensor_.dtype = int32_t(wanted);
    int64_t count = 1;
    for (int i = tensor_.rank - 1; i >= 0; --i) {
        if (tensor_.shape[i] > 1 && tensor_.stride[i] == 0) {
            original_.shape[i] = 1; // what is broadcast stays so
            continue;
        }
        tensor_.stride[i] = count;
        count *= tensor_.shape[i];
    }
    constexpr size_t alignment = 64;
    const size_t bytes = (size_t(count) * size_t(element_bytes(wanted)) + alignment) / alignment * alignment;
    room_.reset(std::aligned_alloc(alignment, bytes));
    if (!room_) {
        throw Refusal(POLYHEAD_OUT_OF_MEMORY, name_ + ": " + std::to_string(bytes) + " bytes to convert it could not be allocated");
    }
    tensor_.data = room_.get();
}

void Array::check_no_overlap() const {
    polyhead_status status{};
    if (room_ && is_output() && !runtime::empty(original_) && !runtime::check_no_overlap(name_.c_str(), original_, &status)) {
        raise_unless_ok(status);
    }
}

bool Array::shares_unseen_memory(const Array &other) const {
    if ((!room_ && !other.room_) || tensor_.device || other.tensor_.device) {
        return false;
    }
    const auto own = [](const Array &array) -> const polyhead_tensor & { return array.room_ ? array.original_ : array.tensor_; };
    return runtime::may_share_elements(own(*this), element_bytes(element_), own(other), element_bytes(other.element_));
}

void Array::fill() {
    if (room_ && access_ == Access::read) {
        convert(original(), room());
    }
}

void Array::give_back() {
    if (room_ && access_ == Access::write) {
        convert(room(), original());
    }
}

} // namespace polyhead::python

// Device and DeviceArray of the module.
#include "device.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <new>

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "without_lock.h"

namespace polyhead::python {
namespace {

constexpr struct {
    const char *name;
    Api api;
} apis[] = {{"cuda", Api::cuda}, {"opencl", Api::opencl}, {"vulkan", Api::vulkan}};

const char *api_text(Api api) {
    for (const auto &known : apis) {
        if (known.api == api) {
            return known.name;
        }
    }
    return "cpu";
}

Api api_named(const std::string &name) {
    for (const auto &known : apis) {
        if (name == known.name) {
            return known.api;
        }
    }
    throw Refusal(POLYHEAD_NO_DEVICE,
                  "device: found '" + name + "', expected cuda, opencl or vulkan, with :INDEX for another than the first");
}

void check(const Status &status) {
    if (!status.ok()) {
        throw Refusal(status.code(), status.message());
    }
}

DevicePointer open(const std::string &text, uint64_t stream) {
    const size_t colon = text.find(':');
    const std::string number = colon == std::string::npos ? "0" : text.substr(colon + 1);
    auto opened = std::make_shared<OpenDevice>();
    opened->api = api_named(text.substr(0, colon));
    if (number.empty() || number.size() > 4 || number.find_first_not_of("0123456789") != std::string::npos) {
        throw Refusal(POLYHEAD_NO_DEVICE, "device: found '" + text + "', expected an index behind the colon");
    }
    opened->index = std::stoi(number);
    opened->stream = stream;
    const WithoutLock others_may_run;
    check(Device::open(opened->api, opened->index, &opened->device, nullptr,
                       reinterpret_cast<void *>(stream))); // NOLINT(performance-no-int-to-ptr): a handle that Python holds as a number
    return opened;
}

std::string name_of(const OpenDevice &device) {
    char text[200];
    polyhead_device_name(device.raw(), text, sizeof text);
    return text;
}

// The number that the device's name ends with: "NVIDIA H200 (cuda 9.0)".
int capability_of(const OpenDevice &device) {
    const std::string name = name_of(device);
    const size_t at = name.rfind("(cuda ");
    int major = 0, minor = 0;
    return at != std::string::npos && std::sscanf(name.c_str() + at, "(cuda %d.%d)", &major, &minor) == 2 ? 10 * major + minor : 0;
}

// The bytes of a contiguous array; refuses shapes that no array has.
size_t checked_bytes(const std::vector<int64_t> &shape, Element element) {
    const auto refuse = [&](size_t i, const char *expected) {
        throw Refusal(POLYHEAD_WRONG_SHAPE,
                      "shape: found " + std::to_string(shape[i]) + " in dimension " + std::to_string(i) + ", expected " + expected);
    };
    int64_t bytes = element_bytes(element);
    for (size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] < 0) {
            refuse(i, "0 or more");
        }
        if (__builtin_mul_overflow(bytes, std::max<int64_t>(shape[i], 1), &bytes)) { // strides of an empty array are numbers, too
            refuse(i, "an array of less than 2^63 bytes");
        }
    }
    return std::find(shape.begin(), shape.end(), 0) == shape.end() ? size_t(bytes) : 0;
}

// Refuses host arrays that one copy cannot move.
void check_same(const DeviceArray &array, Array &host) {
    if (host.on_cuda() || host.tensor().device) {
        throw Refusal(POLYHEAD_WRONG_DEVICE, "array: lies on a device, expected host memory");
    }
    int64_t stride = 1, count = 1;
    bool same = host.tensor().rank == int32_t(array.shape().size()), packed = true;
    for (int i = host.tensor().rank - 1; same && i >= 0; --i) {
        same = host.tensor().shape[i] == array.shape()[size_t(i)];
        packed = packed && (host.tensor().shape[i] == 1 || host.tensor().stride[i] == stride);
        stride *= host.tensor().shape[i];
        count *= host.tensor().shape[i];
    }
    if (count > 0 && (!same || !packed || host.element() != array.element())) {
        throw Refusal(POLYHEAD_WRONG_SHAPE, "array: expected one of the same shape and dtype, and contiguous");
    }
}

// A new host array of numpy with the same elements.
nb::object to_numpy(const DeviceArray &array) {
    const nb::module_ numpy = nb::module_::import_("numpy");
    const char *const bits = name_of_bits(array.element()), *const name = element_name(array.element());
    nb::object host = numpy.attr("empty")(nb::cast(array.shape()), bits ? bits : name);
    const nb::ndarray<> memory = nb::cast<nb::ndarray<>>(host);
    {
        const WithoutLock others_may_run; // the copy waits for the kernels before it
        check(array.device()->device.copy_to_host(array.data(), 0, array.bytes(), memory.data()));
    }
    return bits ? host.attr("view")(nb::module_::import_("ml_dtypes").attr(name)) : host;
}

// Where there is no room, memory of former outputs makes some. With Python's lock.
std::shared_ptr<DeviceArray> new_array(const DevicePointer &device, const std::vector<int64_t> &shape, Element element) {
    try {
        const WithoutLock others_may_run;
        return std::make_shared<DeviceArray>(device, shape, element);
    } catch (const Refusal &) {
        if (!device->free_spares()) {
            throw;
        }
    }
    return std::make_shared<DeviceArray>(device, shape, element);
}

std::shared_ptr<DeviceArray> put(const DevicePointer &device, nb::handle object) {
    Array host("array", object, Access::read);
    if (host.tensor().rank == 0) {
        throw wrong_type("array: expected at least one dimension");
    }
    const std::vector<int64_t> shape(host.tensor().shape, host.tensor().shape + host.tensor().rank);
    const auto array = new_array(device, shape, host.element());
    check_same(*array, host);
    const WithoutLock others_may_run;
    check(device->device.copy_to_device(host.tensor().data, array->bytes(), array->data()));
    return array;
}

nb::object to_dlpack(const std::shared_ptr<DeviceArray> &array, nb::kwargs) {
    if (array->device()->api != Api::cuda) {
        throw nb::buffer_error("only arrays of CUDA devices have DLPack; numpy() copies to the host");
    }
    array->share();
    {
        const WithoutLock others_may_run;
        check(array->device()->device.synchronize()); // whatever stream the consumer uses
    }
    const std::vector<size_t> shape(array->shape().begin(), array->shape().end());
    nb::ndarray<> view(array->data(), shape.size(), shape.data(), nb::cast(array), nullptr, dlpack_type(array->element()),
                       nb::device::cuda::value, array->device()->index);
    return nb::cast(view); // a capsule
}

} // namespace

std::string OpenDevice::text() const {
    return std::string(api_text(api)) + ":" + std::to_string(index);
}

DeviceArray::DeviceArray(DevicePointer device, std::vector<int64_t> shape, Element element, void *memory)
    : device_(std::move(device)), shape_(std::move(shape)), element_(element), bytes_(checked_bytes(shape_, element)), data_(memory) {
    if (!data_) {
        check(device_->device.allocate(bytes_, &data_));
    }
}

DeviceArray::~DeviceArray() {
    if (output_ && !shared_ && PyGILState_Check() && device_->keep(bytes_, data_)) {
        return;
    }
    const WithoutLockIfHeld others_may_run; // a driver may wait for the kernels that use the memory
    device_->device.free(data_);
}

OpenDevice::OpenDevice()
    : number([] {
          static std::atomic<int64_t> devices{0};
          return ++devices;
      }()) {}

void *OpenDevice::spare(size_t bytes) {
    const auto found = std::find_if(spares_.begin(), spares_.end(), [&](const auto &one) { return one.first == bytes; });
    if (found == spares_.end()) {
        return nullptr;
    }
    void *const memory = found->second;
    spares_.erase(found);
    return memory;
}

bool OpenDevice::keep(size_t bytes, void *memory) {
    if (!memory || spares_.size() >= most_spares) {
        return false;
    }
    try {
        spares_.emplace_back(bytes, memory);
    } catch (const std::bad_alloc &) { // then the driver has it back
        return false;
    }
    return true;
}

bool OpenDevice::free_spares() {
    const std::vector<std::pair<size_t, void *>> old = std::exchange(spares_, {});
    for (const auto &one : old) {
        device.free(one.second);
    }
    return !old.empty();
}

std::shared_ptr<DeviceArray> new_output(const DevicePointer &device, const std::vector<int64_t> &shape, Element element) {
    if (!device->keeps_outputs()) {
        return new_array(device, shape, element);
    }
    const size_t bytes = checked_bytes(shape, element);
    void *const memory = device->spare(bytes);
    std::shared_ptr<DeviceArray> array;
    try {
        array = memory ? std::make_shared<DeviceArray>(device, shape, element, memory) : new_array(device, shape, element);
    } catch (const std::bad_alloc &) {
        device->device.free(memory);
        throw;
    }
    array->output_ = true;
    return array;
}

OpenDevice::~OpenDevice() {
    const WithoutLockIfHeld others_may_run; // closing waits for what the device does
    free_spares();
    device = Device();
}

void bind_devices(nb::module_ &module) {
    using namespace nb::literals;
    nb::class_<OpenDevice>(module, "Device", "An open device: \"cuda\", \"cuda:1\", \"opencl:0\"; stream is a CUstream as a number.")
        .def(nb::new_(&open), "name"_a, "stream"_a = 0)
        .def_prop_ro("name", name_of)
        .def_prop_ro("capability", capability_of)
        .def_prop_ro("stream", [](const OpenDevice &d) { return d.stream; })
        .def_prop_ro("api", [](const OpenDevice &d) { return api_text(d.api); })
        .def("__str__", &OpenDevice::text)
        .def("__repr__", [](const OpenDevice &d) { return "<polyhead.Device " + d.text() + ", " + name_of(d) + ">"; })
        .def("synchronize",
             [](const OpenDevice &d) {
                 const WithoutLock others_may_run;
                 check(d.device.synchronize());
             })
        .def(
            "empty",
            [](const DevicePointer &d, const std::vector<int64_t> &shape, const std::string &dtype) {
                return new_array(d, shape, element_named(dtype));
            },
            "shape"_a, "dtype"_a = "float32")
        .def("put", put, "array"_a);
    nb::class_<DeviceArray>(module, "DeviceArray", "A contiguous array in device memory, made by Device.put() and Device.empty().")
        .def_prop_ro("shape", [](const DeviceArray &a) { return nb::tuple(nb::cast(a.shape())); })
        .def_prop_ro("dtype", [](const DeviceArray &a) { return element_name(a.element()); })
        .def_prop_ro("device", [](const DeviceArray &a) { return a.device(); })
        .def("numpy", to_numpy)
        .def("__dlpack__", to_dlpack)
        .def("__dlpack_device__",
             [](const DeviceArray &a) { return nb::make_tuple(a.device()->api == Api::cuda ? 2 : 4, a.device()->index); });
    module.def(
        "device_count", [](const std::string &api) { return Device::count(api_named(api)); }, "api"_a,
        "The number of \"cuda\", \"opencl\" or \"vulkan\" devices that can be opened; 0 without a driver.");
}

} // namespace polyhead::python

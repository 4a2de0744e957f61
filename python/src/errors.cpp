// Makes polyhead.Error, which the Python code of the package defines, from refusals.
#include "errors.h"

namespace polyhead::python {
namespace {

struct Code {
    const char *name;
    int32_t value;
};

constexpr Code codes[] = {
    {"OK", POLYHEAD_OK},
    {"NULL_POINTER", POLYHEAD_NULL_POINTER},
    {"WRONG_SHAPE", POLYHEAD_WRONG_SHAPE},
    {"WRONG_STRIDE", POLYHEAD_WRONG_STRIDE},
    {"WRONG_DTYPE", POLYHEAD_WRONG_DTYPE},
    {"ALIASED", POLYHEAD_ALIASED},
    {"BAD_VALUE", POLYHEAD_BAD_VALUE},
    {"WRONG_OPERATION", POLYHEAD_WRONG_OPERATION},
    {"WRONG_WEIGHTS", POLYHEAD_WRONG_WEIGHTS},
    {"UNSUPPORTED", POLYHEAD_UNSUPPORTED},
    {"OUT_OF_MEMORY", POLYHEAD_OUT_OF_MEMORY},
    {"INTERNAL", POLYHEAD_INTERNAL},
    {"NO_DEVICE", POLYHEAD_NO_DEVICE},
    {"WRONG_DEVICE", POLYHEAD_WRONG_DEVICE},
    {"WRONG_EXECUTOR", POLYHEAD_WRONG_EXECUTOR},
};

void set_error(const Refusal &refusal) {
    const nb::object error = nb::module_::import_("polyhead.error").attr("Error");
    // A sentence may repeat the bytes of a path.
    const nb::object text = nb::steal(PyUnicode_DecodeFSDefault(refusal.what()));
    const nb::object instance = error(text, refusal.code);
    PyErr_SetObject(error.ptr(), instance.ptr());
}

} // namespace

nb::builtin_exception wrong_type(const std::string &sentence) {
    return nb::type_error(sentence.c_str());
}

std::string class_name(nb::handle object) {
    return nb::cast<std::string>(object.type().attr("__name__"));
}

std::string bytes_of_path(nb::handle text) {
    PyObject *bytes = nullptr;
    if (PyUnicode_FSConverter(text.ptr(), &bytes) == 0) {
        throw nb::python_error();
    }
    const nb::object owner = nb::steal(bytes);
    return std::string(PyBytes_AS_STRING(bytes), size_t(PyBytes_GET_SIZE(bytes)));
}

int32_t whole_number(const char *name, nb::handle value) {
    if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr())) {
        throw wrong_type(std::string(name) + ": found " + class_name(value) + ", expected a whole number");
    }
    const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
    if (!number.is_valid()) {
        throw nb::python_error();
    }
    int overflow = 0;
    const long long found = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow != 0 || found < INT32_MIN || found > INT32_MAX) {
        throw Refusal(POLYHEAD_BAD_VALUE, std::string(name) + ": found a number beyond 32 bits, expected -2147483648 to 2147483647");
    }
    return int32_t(found);
}

std::vector<int32_t> whole_numbers(const char *name, nb::handle values) {
    const nb::object list = nb::steal(PySequence_Tuple(values.ptr()));
    if (!list.is_valid()) {
        PyErr_Clear();
        throw wrong_type(std::string(name) + ": found one that cannot be listed, expected whole numbers");
    }
    std::vector<int32_t> numbers;
    for (const nb::handle value : nb::borrow<nb::tuple>(list)) {
        numbers.push_back(whole_number(name, value));
    }
    return numbers;
}

void bind_errors(nb::module_ &module) {
    nb::dict names;
    for (const Code &code : codes) {
        names[code.name] = code.value;
    }
    module.attr("codes") = names;
    nb::register_exception_translator([](const std::exception_ptr &thrown, void *) {
        try {
            std::rethrow_exception(thrown);
        } catch (const Refusal &refusal) {
            set_error(refusal);
        }
    });
}

} // namespace polyhead::python

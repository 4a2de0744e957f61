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
};

void raise(const Refusal &refusal) {
    const nb::object error = nb::module_::import_("polyhead.error").attr("Error");
    const nb::object instance = error(nb::str(refusal.what()), refusal.code);
    PyErr_SetObject(error.ptr(), instance.ptr());
}

} // namespace

nb::builtin_exception wrong_type(const std::string &sentence) {
    return nb::type_error(sentence.c_str());
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
            raise(refusal);
        }
    });
}

} // namespace polyhead::python

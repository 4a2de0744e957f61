// Refusals of the module: a code of the runtime and one sentence, which Python sees as polyhead.Error.
#pragma once

#include <stdexcept>
#include <string>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h> // in every file, because a cast of std::string means something else without it
#include <polyhead/c_api.h>

namespace polyhead::python {

namespace nb = nanobind;

struct Refusal : std::runtime_error {
    Refusal(int32_t code_, const std::string &sentence) : std::runtime_error(sentence), code(code_) {}
    int32_t code;
};

inline void raise_unless_ok(const polyhead_status &status) {
    if (status.code != POLYHEAD_OK) {
        throw Refusal(status.code, status.message);
    }
}

// A TypeError: not a refusal of the runtime but an argument of the wrong Python type.
nb::builtin_exception wrong_type(const std::string &sentence);

void bind_errors(nb::module_ &module);

} // namespace polyhead::python

// Refusals of the module: a code of the runtime and one sentence, which Python sees as polyhead.Error.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h> // in every file, because a cast of std::string means something else without it
#include <polyhead/c_api.h>

#include "../../plan/text.h"

namespace polyhead::python {

namespace nb = nanobind;

struct Refusal : std::runtime_error {
    // The sentence may repeat a path or a word of the caller.
    Refusal(int32_t code_, const std::string &sentence) : std::runtime_error(gen::on_one_line(sentence)), code(code_) {}
    int32_t code;
};

inline void raise_unless_ok(const polyhead_status &status) {
    if (status.code != POLYHEAD_OK) {
        throw Refusal(status.code, status.message);
    }
}

// A TypeError: not a refusal of the runtime but an argument of the wrong Python type.
nb::builtin_exception wrong_type(const std::string &sentence);

// The name of an object's class.
std::string class_name(nb::handle object);

// A path, or another text of the system, as the bytes that Python means by it.
std::string bytes_of_path(nb::handle text);

// A number that an argument must be; a TypeError or a Refusal names the argument.
int32_t whole_number(const char *name, nb::handle value);
// A list of them, which is read once.
std::vector<int32_t> whole_numbers(const char *name, nb::handle values);

void bind_errors(nb::module_ &module);

} // namespace polyhead::python

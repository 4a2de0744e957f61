// Objects of kernels in this process: linked to the runtime that is here, searched for functions, unloaded with everything that they left.
#pragma once

#include <string>
#include <vector>

#include "failure.h"
#include "object_code.h"

namespace polyhead::load {

class LoadedCode {
public:
    LoadedCode() = default;
    ~LoadedCode();
    LoadedCode(const LoadedCode &) = delete;
    LoadedCode &operator=(const LoadedCode &) = delete;

    // The bytes of one object each, whose functions do not call one another's. By ObjectCode where it can, which takes no time; elsewhere
    // by the system's linker and loader.
    Failure load(const std::vector<std::string> &objects);
    // By these alone.
    Failure load_by_system(const std::vector<std::string> &objects);
    void *function(const std::string &name) const;

private:
    ObjectCode code_;
    void *handle_ = nullptr;
};

// Takes out of an object what its function `entry` does not reach, and the names of what is inside, by the system's linker. Files are made
// in `folder`. Returns a sentence or nothing.
std::string shrink_object(const std::string &folder, const std::string &entry, std::string *object);

// The file that this code was loaded from: the program, or the library that it is in.
const std::string &own_file();

} // namespace polyhead::load

// A shared object that was compiled here: opened, searched for functions, unloaded with everything that it left in the process.
#pragma once

#include <string>

namespace polyhead::python {

class SharedObject {
public:
    SharedObject() = default;
    ~SharedObject();
    SharedObject(const SharedObject &) = delete;
    SharedObject &operator=(const SharedObject &) = delete;

    // Throws a Refusal. The file may go afterwards.
    void open(const std::string &path);
    void *symbol(const std::string &name) const;

private:
    void *handle_ = nullptr;
};

} // namespace polyhead::python

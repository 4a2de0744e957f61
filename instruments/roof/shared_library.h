// Functions of a library that is looked for when the program runs, because not every machine has it.
#ifndef POLYHEAD_INSTRUMENTS_SHARED_LIBRARY_H
#define POLYHEAD_INSTRUMENTS_SHARED_LIBRARY_H

#include <dlfcn.h>

namespace roof {

class SharedLibrary {
public:
    explicit SharedLibrary(const char *name) : handle_(dlopen(name, RTLD_NOW | RTLD_GLOBAL)), found_(handle_ != nullptr) {}
    template <class Function> void get(Function *&pointer, const char *name) {
        void *symbol = handle_ ? dlsym(handle_, name) : nullptr;
        pointer = reinterpret_cast<Function *>(symbol);
        found_ &= symbol != nullptr;
    }
    // The library, and everything that was asked for.
    bool found() const { return found_; }

private:
    void *handle_; // stays open: drivers do not like to be unloaded
    bool found_;
};

} // namespace roof
#endif

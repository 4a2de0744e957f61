// Opens and unloads shared objects by the system's loader.
#include "shared_object.h"

#include <algorithm>
#include <cstdint>
#include <dlfcn.h>
#include <link.h>

#include "../../runtime/gpu/apis.h"
#include "errors.h"

namespace polyhead::python {
namespace {

// The bytes of the object that the loader put at `base`.
struct Place {
    uintptr_t base, begin, end;
};

int find_place(dl_phdr_info *object, size_t, void *found) {
    auto *place = static_cast<Place *>(found);
    if (object->dlpi_addr != place->base) {
        return 0;
    }
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const auto &segment = object->dlpi_phdr[i];
        if (segment.p_type == PT_LOAD) {
            place->begin = std::min<uintptr_t>(place->begin, object->dlpi_addr + segment.p_vaddr);
            place->end = std::max<uintptr_t>(place->end, object->dlpi_addr + segment.p_vaddr + segment.p_memsz);
        }
    }
    return 1;
}

// NOLINTBEGIN(performance-no-int-to-ptr): the loader tells addresses as numbers
void unload_device_code(void *handle) {
    link_map *map = nullptr;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
        return;
    }
    Place place{map->l_addr, UINTPTR_MAX, 0};
    if (dl_iterate_phdr(find_place, &place) != 0) {
        runtime::unload_device_code(reinterpret_cast<const void *>(place.begin), reinterpret_cast<const void *>(place.end));
    }
}
// NOLINTEND(performance-no-int-to-ptr)

} // namespace

SharedObject::~SharedObject() {
    if (handle_) {
        unload_device_code(handle_);
        dlclose(handle_);
    }
}

void SharedObject::open(const std::string &path) {
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) {
        throw Refusal(POLYHEAD_INTERNAL, std::string("the compiled kernel cannot be loaded: ") + dlerror());
    }
}

void *SharedObject::symbol(const std::string &name) const {
    return dlsym(handle_, name.c_str());
}

} // namespace polyhead::python

// Loads OpenCL at its first use.
#include "opencl_driver.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <sys/uio.h>
#include <unistd.h>

#include "../status.h"

namespace polyhead::runtime::opencl {

const Driver *driver(polyhead_status *status) noexcept {
    static std::mutex loading;
    static Driver loaded{};
    static bool ready = false;
    polyhead_status ignored;
    status = status ? status : &ignored;
    const std::lock_guard<std::mutex> lock(loading);
    if (ready) {
        return &loaded;
    }
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        refuse(status, POLYHEAD_NO_DEVICE, "opencl: no driver, libOpenCL.so.1 was not found");
        return nullptr;
    }
#define POLYHEAD_OPENCL_LOAD(member, name, result, arguments)                                                                              \
    loaded.member = reinterpret_cast<result(*) arguments>(dlsym(library, name));                                                           \
    if (!loaded.member) {                                                                                                                  \
        refuse(status, POLYHEAD_NO_DEVICE, "opencl: the driver has no function %s, expected OpenCL 1.2 or newer", name);                   \
        dlclose(library);                                                                                                                  \
        return nullptr;                                                                                                                    \
    }
    POLYHEAD_OPENCL_FUNCTIONS(POLYHEAD_OPENCL_LOAD)
#undef POLYHEAD_OPENCL_LOAD
    ready = true;
    return &loaded;
}

const char *error_name(int error) noexcept {
    static const struct {
        int error;
        const char *name;
    } names[] = {{-1, "CL_DEVICE_NOT_FOUND"},
                 {-2, "CL_DEVICE_NOT_AVAILABLE"},
                 {-3, "CL_COMPILER_NOT_AVAILABLE"},
                 {allocation_failure, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
                 {out_of_resources, "CL_OUT_OF_RESOURCES"},
                 {out_of_host_memory, "CL_OUT_OF_HOST_MEMORY"},
                 {-11, "CL_BUILD_PROGRAM_FAILURE"},
                 {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"},
                 {-30, "CL_INVALID_VALUE"},
                 {-32, "CL_INVALID_PLATFORM"},
                 {-33, "CL_INVALID_DEVICE"},
                 {-34, "CL_INVALID_CONTEXT"},
                 {-36, "CL_INVALID_COMMAND_QUEUE"},
                 {-38, "CL_INVALID_MEM_OBJECT"},
                 {-48, "CL_INVALID_KERNEL"},
                 {invalid_buffer_size, "CL_INVALID_BUFFER_SIZE"},
                 {-1001, "no platform was found"}};
    for (const auto &entry : names) {
        if (entry.error == error) {
            return entry.name;
        }
    }
    return "an OpenCL error without a name here";
}

polyhead_status failed(const char *device, const char *what, int error) noexcept {
    const bool memory =
        error == allocation_failure || error == out_of_resources || error == out_of_host_memory || error == invalid_buffer_size;
    return failure(memory ? POLYHEAD_OUT_OF_MEMORY : POLYHEAD_INTERNAL, "device %s: %s: %s (%d)", device, what, error_name(error), error);
}

bool first_word(const void *object, uintptr_t *word) noexcept {
    if (!object || reinterpret_cast<uintptr_t>(object) % sizeof *word != 0) {
        return false;
    }
    // The kernel reads it for us, so that an address of another kind is an error and not a crash.
    iovec to{word, sizeof *word}, from{const_cast<void *>(object), sizeof *word};
    const ssize_t read = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    if (read == static_cast<ssize_t>(sizeof *word)) {
        return true;
    }
    if (read < 0 && (errno == EPERM || errno == ENOSYS)) { // not allowed here: trust the caller
        std::memcpy(word, object, sizeof *word);
        return true;
    }
    return false;
}

} // namespace polyhead::runtime::opencl

// Fuzzes the reader of bundles: what is found under a key is what was stored there, and nothing outside of the file is read.
#include <cstdint>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

#include "load/bundle.h"
#include "sentence.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace polyhead;
    static int number = 0; // another name each time: the block that was read last is remembered by its file
    const int file = ::memfd_create("bundle", MFD_CLOEXEC);
    if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) {
        fuzz::fail("no file", "in memory");
    }
    const std::string path = "/proc/self/fd/" + std::string(static_cast<size_t>(++number % 8), '/') + std::to_string(file);
    for (const char *key : {"a", "b", "c"}) {
        const auto found = load::find_in_bundle(path, key);
        if (found && *found != std::string(20, key[0])) {
            fuzz::fail("bytes that were not stored", *found);
        }
    }
    ::close(file);
    return 0;
}

// Replaces the system's aligned_alloc, pthread_create and fopen, by which the runtime gets memory, threads and files.
#include "failing_system.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <pthread.h>

namespace polyhead::test {
namespace {

struct Door {
    std::atomic<int> left{0}; // requests until the one that is refused; 0: none is
    std::atomic<bool> refuses_all{false}, every{false}, happened{false};
};
Door doors[3];

bool refused(Resource resource) {
    Door &door = doors[static_cast<int>(resource)];
    if (door.refuses_all.load()) {
        return true;
    }
    if (door.left.load() == 0 || door.left.fetch_sub(1) != 1) {
        return false;
    }
    door.happened = true;
    door.refuses_all = door.every.load();
    return true;
}

template <typename Function> Function *next(const char *name) {
    return reinterpret_cast<Function *>(dlsym(RTLD_NEXT, name));
}

} // namespace

Failing::Failing(Resource resource, int n, bool every) : resource_(resource) {
    Door &door = doors[static_cast<int>(resource)];
    door.happened = door.refuses_all = false;
    door.every = every;
    door.left = n;
}

Failing::~Failing() {
    Door &door = doors[static_cast<int>(resource_)];
    door.left = 0;
    door.refuses_all = false;
}

bool Failing::happened() const {
    return doors[static_cast<int>(resource_)].happened;
}

} // namespace polyhead::test

using namespace polyhead::test;

extern "C" void *aligned_alloc(size_t alignment, size_t bytes) noexcept {
    static auto *const real = next<void *(size_t, size_t)>("aligned_alloc");
    return refused(Resource::memory) ? nullptr : real(alignment, bytes);
}

extern "C" int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) noexcept {
    static auto *const real = next<int(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)>("pthread_create");
    return refused(Resource::thread) ? EAGAIN : real(thread, attributes, start, argument);
}

extern "C" FILE *fopen(const char *path, const char *mode) {
    static auto *const real = next<FILE *(const char *, const char *)>("fopen");
    return refused(Resource::file) ? nullptr : real(path, mode);
}

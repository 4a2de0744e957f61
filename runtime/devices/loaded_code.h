// Code of kernels that was loaded into contexts of a device interface, by context and kernel.
#ifndef POLYHEAD_RUNTIME_GPU_LOADED_CODE_H
#define POLYHEAD_RUNTIME_GPU_LOADED_CODE_H

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <utility>

namespace polyhead::runtime {

// Never destroyed (see of()): kernels may run while the program ends. ensure() and with() may throw std::bad_alloc.
template <typename Code> class LoadedCode {
public:
    static LoadedCode &of() {
        static LoadedCode *const all = new LoadedCode;
        return *all;
    }

    // A device on this context was opened; false without memory.
    bool opened(void *context) noexcept {
        try {
            const std::lock_guard<std::mutex> lock(mutex_);
            ++users_[context];
        } catch (const std::bad_alloc &) {
            return false;
        }
        return true;
    }

    // One was closed; after the last, unload(code) for all of that context's.
    template <typename Unload> void closed(void *context, const Unload &unload) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto users = users_.find(context);
        if (users == users_.end() || --users->second > 0) {
            return;
        }
        users_.erase(users);
        for (auto entry = code_.lower_bound({context, 0}); entry != code_.end() && entry->first.first == context;) {
            unload(entry->second.code);
            entry = code_.erase(entry);
        }
    }

    // A library with the bytes from begin to before end leaves the process: unload(context, code) for what its kernels loaded.
    template <typename Unload> void left(const void *begin, const void *end, const Unload &unload) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        const std::less<const void *> before;
        for (auto entry = code_.begin(); entry != code_.end();) {
            if (before(entry->second.place, begin) || !before(entry->second.place, end)) {
                ++entry;
                continue;
            }
            unload(entry->first.first, entry->second.code);
            entry = code_.erase(entry);
        }
    }

    // Calls load(&code) unless that has been done; the kernel's id goes into *state, which Halide keeps in a static variable of it.
    // Returns what load returned, 0 when all is well.
    template <typename Load> int ensure(void *context, void **state, const Load &load) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!*state) {
            *state = reinterpret_cast<void *>(next_id_++); // NOLINT(performance-no-int-to-ptr): an id in a place for a pointer
        }
        const std::pair<void *, uintptr_t> key{context, reinterpret_cast<uintptr_t>(*state)};
        if (code_.find(key) != code_.end()) {
            return 0;
        }
        Code code{};
        const int result = load(&code);
        if (result == 0) {
            code_.emplace(key, Entry{std::move(code), state});
        }
        return result;
    }

    // use(code), or false when the code is not loaded into this context.
    template <typename Use> bool with(void *context, void *state, const Use &use) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = code_.find({context, reinterpret_cast<uintptr_t>(state)});
        if (found != code_.end()) {
            use(found->second.code);
        }
        return found != code_.end();
    }

private:
    struct Entry {
        Code code;
        const void *place; // the kernel's static variable
    };

    LoadedCode() = default;
    std::mutex mutex_;
    uintptr_t next_id_ = 1;
    std::map<std::pair<void *, uintptr_t>, Entry> code_;
    std::map<void *, int> users_; // open devices of a context
};

} // namespace polyhead::runtime
#endif

// Entries of stand-in kernels: the entry of a variant is a plain function, and theirs have a state.
#ifndef POLYHEAD_TESTS_ENTRY_H
#define POLYHEAD_TESTS_ENTRY_H

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <utility>

namespace polyhead::test {

// A function of its own as long as it exists; at most 128 of them at once.
class Entry {
public:
    using Function = int (*)(void **argv);
    using Called = std::function<int(void **argv)>;

    explicit Entry(Called called) : place_(take(std::move(called))) {}
    ~Entry() {
        places[place_] = nullptr;
        taken[place_] = false;
    }
    Entry(const Entry &) = delete;
    Entry &operator=(const Entry &) = delete;

    Function function() const { return functions(std::make_index_sequence<most>())[place_]; }

private:
    static constexpr size_t most = 128;
    size_t place_;

    // Without a lock: a child of fork() would wait for a lock that another thread of its parent held.
    inline static std::array<std::atomic<bool>, most> taken{};
    inline static std::array<Called, most> places{};

    static size_t take(Called called) {
        for (size_t i = 0; i < most; i++) {
            if (!taken[i].exchange(true)) {
                places[i] = std::move(called);
                return i;
            }
        }
        std::abort();
    }
    template <size_t place> static int enter(void **argv) { return places[place](argv); }
    template <size_t... all> static std::array<Function, most> functions(std::index_sequence<all...>) { return {&Entry::enter<all>...}; }
};

} // namespace polyhead::test
#endif

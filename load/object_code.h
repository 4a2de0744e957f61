// Objects of x86-64 put into memory without the system's linker and loader: no file, no other process.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "elf_object.h"

namespace polyhead::load {

class ObjectCode {
public:
    // The address of a function that an object calls and does not have, or null.
    using Resolve = std::function<void *(std::string_view name)>;

    ObjectCode() = default;
    ~ObjectCode();
    ObjectCode(const ObjectCode &) = delete;
    ObjectCode &operator=(const ObjectCode &) = delete;

    // The bytes of one object each, whose functions do not call one another's. Their pages are writable or executable, never both at once.
    // One sentence when that is not possible; then nothing stays.
    std::string load(const std::vector<std::string> &objects, const Resolve &resolve);
    void *function(const std::string &name) const;

    const char *begin() const { return memory_; }
    const char *end() const { return memory_ + bytes_; }

private:
    // Where code, constants and data begin, in pages, and what lies there.
    struct Layout {
        size_t bytes[3] = {}, begin[3] = {};
    };
    struct Placed {
        ElfObject object;
        std::vector<size_t> at;         // of each section, from the beginning of the memory
        std::map<size_t, size_t> slots; // of symbols: a place for an address, among the constants
        std::map<size_t, size_t> stubs; // of symbols: a jump to the address, among the code
    };

    std::string place(const std::vector<std::string> &objects, std::vector<Placed> *placed, Layout *layout);
    std::string relocate(const Placed &placed, const Resolve &resolve);
    std::string relocate_one(const Placed &placed, const ElfRelocation &r, const std::vector<char *> &addresses) const;
    void add_functions(const Placed &placed);
    void write_perf_map() const;

    char *memory_ = nullptr;
    size_t bytes_ = 0;
    std::map<std::string, char *, std::less<>> functions_;
};

} // namespace polyhead::load

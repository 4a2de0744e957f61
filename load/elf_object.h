// A relocatable object of x86-64 as its bytes say it: sections, symbols and relocations. Every number is checked before it is used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace polyhead::load {

struct ElfSection {
    uint32_t type = 0;
    uint64_t flags = 0, size = 0, alignment = 1;
    std::string_view name, bytes; // no bytes where they are all 0

    bool in_memory() const;
    bool executable() const;
    bool writable() const;
};

struct ElfSymbol {
    std::string_view name;
    uint64_t value = 0;
    size_t section = 0; // 0: another object's, `absolute`: none
    bool global = false, function = false;

    static constexpr size_t absolute = SIZE_MAX;
};

struct ElfRelocation {
    size_t section, symbol; // where, and what it refers to
    uint64_t offset;
    uint32_t type;
    int64_t addend;
};

// Views of a text that must live as long.
class ElfObject {
public:
    // One sentence when the bytes are no such object.
    std::string read(std::string_view bytes);

    const std::vector<ElfSection> &sections() const { return sections_; }
    const std::vector<ElfSymbol> &symbols() const { return symbols_; }
    const std::vector<ElfRelocation> &relocations() const { return relocations_; }

private:
    bool read_sections();
    bool read_symbols(size_t table);
    bool read_relocations(size_t table);
    template <class T> bool get(uint64_t at, T *value) const;
    bool text_of(const ElfSection &table, uint64_t at, std::string_view *text) const;

    std::string_view bytes_;
    std::vector<ElfSection> sections_;
    std::vector<uint32_t> links_, infos_; // of the sections
    std::vector<ElfSymbol> symbols_;
    std::vector<ElfRelocation> relocations_;
};

} // namespace polyhead::load

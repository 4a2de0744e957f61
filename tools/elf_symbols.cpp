// Reads and writes the symbol tables of relocatable ELF files in place.
#include "elf_symbols.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <vector>

#include <elf.h>

#include "../plan/text.h"

namespace polyhead::tools {
namespace {

struct Elf32 {
    using Header = Elf32_Ehdr;
    using Section = Elf32_Shdr;
    using Symbol = Elf32_Sym;
};
struct Elf64 {
    using Header = Elf64_Ehdr;
    using Section = Elf64_Shdr;
    using Symbol = Elf64_Sym;
};

bool begins_with(const std::string &text, const char *beginning) {
    return text.rfind(beginning, 0) == 0;
}

// Names of Halide's runtime: those of C, and those of C++ that C++ code in it shares with itself.
bool is_halides(const std::string &name) {
    return begins_with(name, "halide_") || (begins_with(name, "_Z") && name.find("6Halide7Runtime") != std::string::npos);
}

bool is_called_by_kernels(const std::string &name) {
    return begins_with(name, "polyhead_halide_") || begins_with(name, "polyhead_amx_") || begins_with(name, "polyhead_fetch");
}

// A relocatable file of this machine's byte order, somewhere in a text. Everything that the file says is checked before it is used.
template <typename Elf> class Object {
public:
    using Section = typename Elf::Section;
    using Symbol = typename Elf::Symbol;

    // False when the bytes are no such file.
    bool read(std::string *bytes, size_t begin, size_t size) {
        bytes_ = bytes;
        begin_ = begin;
        size_ = size;
        typename Elf::Header header;
        if (!get(0, &header) || header.e_type != ET_REL || header.e_shentsize != sizeof(Section)) {
            return false;
        }
        Section first;
        if (!get(header.e_shoff, &first)) {
            return false;
        }
        const uint64_t count = header.e_shnum != 0 ? header.e_shnum : first.sh_size; // beyond 65,279 it stands there
        for (uint64_t i = 0; i < count; i++) {
            Section section;
            const uint64_t at = header.e_shoff + i * sizeof section;
            if (!get(at, &section)) {
                return false;
            }
            if (section.sh_type == SHT_SYMTAB) {
                symbols_ = section;
                return get(header.e_shoff + section.sh_link * sizeof section, &strings_) && within(strings_.sh_offset, strings_.sh_size) &&
                       within(section.sh_offset, section.sh_size) && (strings_at_ = header.e_shoff + section.sh_link * sizeof section) != 0;
            }
        }
        return true; // an object without symbols
    }

    // Visits every symbol that other objects can see; what the visit changes is written back.
    template <typename Visit> void each(const Visit &visit) {
        for (uint64_t at = symbols_.sh_offset; at + sizeof(Symbol) <= symbols_.sh_offset + symbols_.sh_size; at += sizeof(Symbol)) {
            Symbol symbol;
            get(at, &symbol);
            if (ELF32_ST_BIND(symbol.st_info) != STB_LOCAL) { // the same in both classes
                visit(&symbol, name_of(symbol));
                put(at, symbol);
            }
        }
    }

    // The table of names moves to the end of the file, which must be all of the text, and gets the new names behind the old ones.
    void append_names(const std::string &names) {
        const std::string table = bytes_->substr(strings_.sh_offset, strings_.sh_size) + names;
        strings_.sh_offset = static_cast<decltype(strings_.sh_offset)>(bytes_->size());
        strings_.sh_size = static_cast<decltype(strings_.sh_size)>(table.size());
        *bytes_ += table;
        size_ = bytes_->size();
        put(strings_at_, strings_);
    }
    uint64_t name_bytes() const { return strings_.sh_size; }

private:
    bool within(uint64_t at, uint64_t bytes) const { return at <= size_ && bytes <= size_ - at; }
    template <typename T> bool get(uint64_t at, T *value) const {
        if (!within(at, sizeof *value)) {
            return false;
        }
        std::memcpy(value, bytes_->data() + begin_ + at, sizeof *value);
        return true;
    }
    template <typename T> void put(uint64_t at, const T &value) { std::memcpy(&(*bytes_)[begin_ + at], &value, sizeof value); }
    std::string name_of(const Symbol &symbol) const {
        if (symbol.st_name >= strings_.sh_size) {
            return "";
        }
        const char *name = bytes_->data() + begin_ + strings_.sh_offset + symbol.st_name;
        return std::string(name, strnlen(name, strings_.sh_size - symbol.st_name));
    }

    std::string *bytes_ = nullptr;
    size_t begin_ = 0, size_ = 0;
    uint64_t strings_at_ = 0; // of the section header of the names
    Section symbols_{}, strings_{};
};

template <typename Symbol> void set_visibility(Symbol *symbol, unsigned char visibility) {
    symbol->st_other = static_cast<unsigned char>((symbol->st_other & ~3) | visibility);
}

// Hidden; a symbol that would be unique in the whole process, whatever library it is in, is weak then.
template <typename Symbol> void hide(Symbol *symbol) {
    set_visibility(symbol, STV_HIDDEN);
    if (ELF32_ST_BIND(symbol->st_info) == STB_GNU_UNIQUE) {
        symbol->st_info = ELF32_ST_INFO(STB_WEAK, ELF32_ST_TYPE(symbol->st_info));
    }
}

// What to do with an object, for either class.
struct Action {
    std::function<bool(Object<Elf32> &)> narrow;
    std::function<bool(Object<Elf64> &)> wide;
};

template <typename Do> Action action(Do act) {
    return {[act](Object<Elf32> &object) { return act(object); }, [act](Object<Elf64> &object) { return act(object); }};
}

template <typename Elf> bool act_on(std::string *bytes, size_t begin, size_t size, const std::function<bool(Object<Elf> &)> &act) {
    Object<Elf> object;
    return object.read(bytes, begin, size) && act(object);
}

// True also where the bytes are of another format.
bool act_on_object(std::string *bytes, size_t begin, size_t size, const Action &what) {
    const char *const head = bytes->data() + begin;
    if (size < EI_NIDENT || std::memcmp(head, ELFMAG, SELFMAG) != 0 || head[EI_DATA] != ELFDATA2LSB) {
        return true;
    }
    return head[EI_CLASS] == ELFCLASS64 ? act_on<Elf64>(bytes, begin, size, what.wide) : act_on<Elf32>(bytes, begin, size, what.narrow);
}

// The members of an archive, each with a header of 60 characters.
bool act_on_archive(std::string *bytes, const Action &what) {
    constexpr size_t magic = 8, header = 60, size_at = 48, size_width = 10;
    if (bytes->compare(0, magic, "!<arch>\n") != 0) {
        return false;
    }
    for (size_t at = magic; at < bytes->size();) {
        if (bytes->size() - at < header) {
            return false;
        }
        size_t size = 0;
        for (size_t i = 0; i < size_width && (*bytes)[at + size_at + i] != ' '; i++) {
            const int digit = (*bytes)[at + size_at + i] - '0';
            if (digit < 0 || digit > 9) {
                return false;
            }
            size = 10 * size + static_cast<size_t>(digit);
        }
        if (size > bytes->size() - at - header || !act_on_object(bytes, at + header, size, what)) {
            return false;
        }
        at += header + size + size % 2;
    }
    return true;
}

std::string rewrite(const std::string &path, const std::string &to, const std::function<bool(std::string *)> &edit) {
    std::string bytes;
    if (!gen::read_file(path, &bytes)) {
        return "cannot read '" + path + "': " + std::strerror(errno);
    }
    if (!edit(&bytes)) {
        return "the symbols of " + path + " cannot be read";
    }
    std::ofstream file(to, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    return file ? "" : "cannot write '" + to + "': " + std::strerror(errno);
}

} // namespace

std::string claim_symbols(const std::string &object, bool hidden) {
    const Action claim = action([hidden](auto &elf) {
        std::string names;
        const uint64_t first = elf.name_bytes();
        elf.each([&](auto *symbol, const std::string &name) {
            if (is_halides(name)) {
                symbol->st_name = static_cast<uint32_t>(first + names.size());
                names += "polyhead_" + name + '\0';
            }
            if (hidden && (symbol->st_shndx != SHN_UNDEF || is_halides(name))) {
                hide(symbol);
            }
        });
        if (!names.empty()) {
            elf.append_names(names);
        }
        return true;
    });
    return rewrite(object, object, [&](std::string *bytes) { return act_on_object(bytes, 0, bytes->size(), claim); });
}

std::string hide_symbols(const std::string &archive) {
    const Action hide_all = action([](auto &elf) {
        elf.each([](auto *symbol, const std::string &) {
            if (symbol->st_shndx != SHN_UNDEF) {
                hide(symbol);
            }
        });
        return true;
    });
    return rewrite(archive, archive, [&](std::string *bytes) { return act_on_archive(bytes, hide_all); });
}

std::string show_symbols(const std::string &archive, const std::string &path) {
    const Action show = action([](auto &elf) {
        elf.each([](auto *symbol, const std::string &name) {
            if (is_called_by_kernels(name)) {
                set_visibility(symbol, STV_DEFAULT);
            }
        });
        return true;
    });
    return rewrite(archive, path, [&](std::string *bytes) { return act_on_archive(bytes, show); });
}

} // namespace polyhead::tools

// Reads the tables of a relocatable object.
#include "elf_object.h"

#include <cstring>

#include <elf.h>

namespace polyhead::load {

bool ElfSection::in_memory() const {
    return (flags & SHF_ALLOC) != 0;
}

bool ElfSection::executable() const {
    return (flags & SHF_EXECINSTR) != 0;
}

bool ElfSection::writable() const {
    return (flags & SHF_WRITE) != 0;
}

template <class T> bool ElfObject::get(uint64_t at, T *value) const {
    if (at > bytes_.size() || sizeof *value > bytes_.size() - at) {
        return false;
    }
    std::memcpy(value, bytes_.data() + at, sizeof *value);
    return true;
}

bool ElfObject::text_of(const ElfSection &table, uint64_t at, std::string_view *text) const {
    if (at >= table.bytes.size()) {
        return false;
    }
    const std::string_view rest = table.bytes.substr(at);
    const size_t end = rest.find('\0');
    *text = rest.substr(0, end);
    return end != std::string_view::npos;
}

bool ElfObject::read_sections() {
    constexpr uint64_t most_alignment = 4096;
    Elf64_Ehdr header;
    if (!get(0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_REL || header.e_machine != EM_X86_64 ||
        header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum) {
        return false; // also more sections than 16 bits count, which no kernel has
    }
    std::vector<uint64_t> names;
    for (uint64_t i = 0; i < header.e_shnum; ++i) {
        Elf64_Shdr s;
        const uint64_t at = i * sizeof s;
        if (header.e_shoff > bytes_.size() || !get(header.e_shoff + at, &s)) {
            return false;
        }
        ElfSection section;
        section.type = s.sh_type;
        section.flags = s.sh_flags;
        section.size = s.sh_size;
        section.alignment = s.sh_addralign == 0 ? 1 : s.sh_addralign;
        if ((section.alignment & (section.alignment - 1)) != 0 || section.alignment > most_alignment || s.sh_size > UINT32_MAX) {
            return false;
        }
        if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL) {
            if (s.sh_offset > bytes_.size() || s.sh_size > bytes_.size() - s.sh_offset) {
                return false;
            }
            section.bytes = bytes_.substr(s.sh_offset, s.sh_size);
        }
        sections_.push_back(section);
        links_.push_back(s.sh_link);
        infos_.push_back(s.sh_info);
        names.push_back(s.sh_name);
    }
    for (size_t i = 0; i < sections_.size(); ++i) {
        if (!text_of(sections_[header.e_shstrndx], names[i], &sections_[i].name)) {
            return false;
        }
    }
    return true;
}

bool ElfObject::read_symbols(size_t table) {
    const ElfSection &section = sections_[table];
    if (!symbols_.empty() || links_[table] >= sections_.size() || section.bytes.size() % sizeof(Elf64_Sym) != 0) {
        return false;
    }
    for (size_t at = 0; at < section.bytes.size(); at += sizeof(Elf64_Sym)) {
        Elf64_Sym s;
        std::memcpy(&s, section.bytes.data() + at, sizeof s);
        ElfSymbol symbol;
        symbol.value = s.st_value;
        symbol.global = ELF64_ST_BIND(s.st_info) != STB_LOCAL;
        symbol.function = ELF64_ST_TYPE(s.st_info) == STT_FUNC;
        symbol.section = s.st_shndx == SHN_ABS ? ElfSymbol::absolute : s.st_shndx;
        const bool placed = s.st_shndx < sections_.size() && s.st_value <= sections_[s.st_shndx].size;
        if (ELF64_ST_TYPE(s.st_info) == STT_TLS || !(placed || s.st_shndx == SHN_ABS || s.st_shndx == SHN_UNDEF) ||
            !text_of(sections_[links_[table]], s.st_name, &symbol.name)) {
            return false;
        }
        symbols_.push_back(symbol);
    }
    return true;
}

bool ElfObject::read_relocations(size_t table) {
    const ElfSection &section = sections_[table];
    const size_t of = infos_[table];
    if (of >= sections_.size() || section.bytes.size() % sizeof(Elf64_Rela) != 0) {
        return false;
    }
    for (size_t at = 0; sections_[of].in_memory() && at < section.bytes.size(); at += sizeof(Elf64_Rela)) {
        Elf64_Rela r;
        std::memcpy(&r, section.bytes.data() + at, sizeof r);
        const uint64_t symbol = ELF64_R_SYM(r.r_info);
        if (symbol >= symbols_.size() || sections_[of].type == SHT_NOBITS || r.r_offset > sections_[of].size) {
            return false;
        }
        relocations_.push_back({of, size_t(symbol), r.r_offset, uint32_t(ELF64_R_TYPE(r.r_info)), r.r_addend});
    }
    return true;
}

std::string ElfObject::read(std::string_view bytes) {
    *this = ElfObject();
    bytes_ = bytes;
    bool good = read_sections();
    for (size_t i = 0; good && i < sections_.size(); ++i) {
        good = sections_[i].type != SHT_SYMTAB || read_symbols(i);
    }
    for (size_t i = 0; good && i < sections_.size(); ++i) {
        good = sections_[i].type != SHT_REL && (sections_[i].type != SHT_RELA || read_relocations(i));
    }
    return good ? "" : "the object of a kernel is damaged, or none of x86-64";
}

} // namespace polyhead::load

// Reads the notes and the dynamic section of ELF files.
#include "build_id.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

namespace polyhead::load {
namespace {

namespace fs = std::filesystem;

// A file of which parts are read.
class Elf {
public:
    explicit Elf(const std::string &path) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
        Elf64_Ehdr header{};
        if (!read(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
            header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) {
            return;
        }
        segments_.resize(header.e_phnum);
        if (!read(header.e_phoff, segments_.data(), segments_.size() * sizeof(Elf64_Phdr))) {
            segments_.clear();
        }
    }
    ~Elf() {
        if (file_ >= 0) {
            ::close(file_);
        }
    }
    Elf(const Elf &) = delete;
    Elf &operator=(const Elf &) = delete;

    // The build id, as bytes; empty: it has none.
    std::string build_id() const {
        for (const Elf64_Phdr &segment : segments_) {
            const std::string notes = segment.p_type == PT_NOTE ? part(segment.p_offset, segment.p_filesz) : "";
            Elf64_Nhdr note{};
            for (size_t at = 0; at + sizeof note <= notes.size();) {
                std::memcpy(&note, notes.data() + at, sizeof note);
                const size_t name = at + sizeof note, content = name + aligned(note.n_namesz);
                if (note.n_type == NT_GNU_BUILD_ID && notes.compare(name, sizeof ELF_NOTE_GNU, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0) {
                    return notes.substr(content, note.n_descsz);
                }
                at = content + aligned(note.n_descsz);
            }
        }
        return "";
    }

    // The texts of the dynamic section with this tag.
    std::vector<std::string> texts(int64_t tag) const {
        std::vector<std::string> found;
        const std::vector<Elf64_Dyn> entries = dynamic();
        uint64_t strings = 0;
        for (const Elf64_Dyn &entry : entries) {
            strings = entry.d_tag == DT_STRTAB ? file_offset(entry.d_un.d_ptr) : strings;
        }
        for (const Elf64_Dyn &entry : entries) {
            if (entry.d_tag == tag) {
                constexpr size_t longest = 4096;
                const std::string text = part(strings + entry.d_un.d_val, longest);
                found.push_back(text.substr(0, text.find('\0')));
            }
        }
        return found;
    }

private:
    int file_;
    std::vector<Elf64_Phdr> segments_;

    static size_t aligned(size_t bytes) { return (bytes + 3) / 4 * 4; }

    bool read(uint64_t offset, void *to, size_t bytes) const { return ::pread(file_, to, bytes, off_t(offset)) == ssize_t(bytes); }
    // As much of it as there is.
    std::string part(uint64_t offset, size_t bytes) const {
        std::string text(bytes, 0);
        const ssize_t some = ::pread(file_, text.data(), bytes, off_t(offset));
        text.resize(some > 0 ? size_t(some) : 0);
        return text;
    }
    std::vector<Elf64_Dyn> dynamic() const {
        std::vector<Elf64_Dyn> entries;
        for (const Elf64_Phdr &segment : segments_) {
            if (segment.p_type == PT_DYNAMIC) {
                entries.resize(segment.p_filesz / sizeof(Elf64_Dyn));
                if (!read(segment.p_offset, entries.data(), entries.size() * sizeof(Elf64_Dyn))) {
                    entries.clear();
                }
            }
        }
        return entries;
    }
    uint64_t file_offset(uint64_t address) const {
        for (const Elf64_Phdr &segment : segments_) {
            if (segment.p_type == PT_LOAD && segment.p_vaddr <= address && address < segment.p_vaddr + segment.p_filesz) {
                return address - segment.p_vaddr + segment.p_offset;
            }
        }
        return 0;
    }
};

// The folders in which the loader looks first, for a program in this folder.
std::vector<std::string> search_folders(const Elf &program, const std::string &folder) {
    constexpr char origin[] = "$ORIGIN";
    std::vector<std::string> folders;
    for (const int64_t tag : {int64_t(DT_RPATH), int64_t(DT_RUNPATH)}) {
        for (const std::string &list : program.texts(tag)) {
            for (size_t at = 0; at <= list.size();) {
                const size_t end = std::min(list.find(':', at), list.size());
                std::string one = list.substr(at, end - at);
                if (const size_t place = one.find(origin); place != std::string::npos) {
                    one.replace(place, sizeof origin - 1, folder);
                }
                folders.push_back(one);
                at = end + 1;
            }
        }
    }
    return folders;
}

std::string find_halide(const Elf &program, const std::string &folder) {
    for (const std::string &name : program.texts(DT_NEEDED)) {
        for (const std::string &one : search_folders(program, folder)) {
            std::error_code error;
            if (name.rfind("libHalide", 0) == 0 && fs::exists(one + "/" + name, error)) {
                return one + "/" + name;
            }
        }
    }
    return "";
}

} // namespace

std::string compiler_id(const std::string &program) {
    std::error_code error;
    const std::string path = fs::canonical(program, error).string();
    if (error) {
        return "";
    }
    const Elf compiler(path);
    const std::string halide = find_halide(compiler, fs::path(path).parent_path().string());
    const std::string first = compiler.build_id(), second = halide.empty() ? "" : Elf(halide).build_id();
    return first.empty() || second.empty() ? "" : first + second;
}

bool lacks_halide(const std::string &program) {
    std::error_code error;
    const std::string path = fs::canonical(program, error).string();
    return !error && find_halide(Elf(path), fs::path(path).parent_path().string()).empty();
}

} // namespace polyhead::load

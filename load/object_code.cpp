// Lays out sections, resolves symbols, applies relocations, and makes code executable.
#include "object_code.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../plan/text.h"

namespace polyhead::load {
namespace {

enum Kind { code, constants, data };

Kind kind_of(const ElfSection &section) {
    return section.executable() ? code : section.writable() ? data : constants;
}

size_t aligned(size_t bytes, size_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

bool is_slot(uint32_t relocation) {
    return relocation == R_X86_64_GOTPCREL || relocation == R_X86_64_GOTPCRELX || relocation == R_X86_64_REX_GOTPCRELX;
}

// What must run or be registered when it is loaded, which is the system's loader's work.
bool needs_start(const ElfSection &section) {
    return section.type == SHT_INIT_ARRAY || section.type == SHT_FINI_ARRAY || section.type == SHT_PREINIT_ARRAY ||
           (section.flags & SHF_TLS) != 0 || (section.in_memory() && section.name == ".eh_frame" && section.size > 0);
}

constexpr size_t slot_bytes = 8, stub_bytes = 16, most_bytes = size_t(1) << 30;

// jmp *slot(%rip)
void write_stub(char *stub, const char *slot) {
    const unsigned char jump[] = {0xff, 0x25};
    const auto distance = static_cast<int32_t>(slot - (stub + sizeof jump + sizeof(int32_t)));
    std::memset(stub, 0xcc, stub_bytes);
    std::memcpy(stub, jump, sizeof jump);
    std::memcpy(stub + sizeof jump, &distance, sizeof distance);
}

std::string put_distance(char *at, int64_t distance) {
    const auto narrow = static_cast<int32_t>(distance);
    std::memcpy(at, &narrow, sizeof narrow);
    return narrow == distance ? "" : "the object of a kernel refers to something that is more than 2 GB away";
}

} // namespace

ObjectCode::~ObjectCode() {
    if (memory_) {
        ::munmap(memory_, bytes_);
    }
}

std::string ObjectCode::place(const std::vector<std::string> &objects, std::vector<Placed> *placed, Layout *layout) {
    size_t largest = 0;
    for (const std::string &bytes : objects) {
        Placed one;
        if (std::string error = one.object.read(bytes); !error.empty()) {
            return error;
        }
        for (const ElfSection &section : one.object.sections()) {
            if (needs_start(section)) {
                return "the object of a kernel has a section '" + std::string(section.name) + "', which this loader does not know";
            }
            size_t &used = layout->bytes[kind_of(section)];
            used = section.in_memory() ? aligned(used, section.alignment) : used;
            one.at.push_back(used);
            used += section.in_memory() ? section.size : 0;
            largest = std::max(largest, used);
        }
        for (const ElfRelocation &r : one.object.relocations()) {
            const bool elsewhere = one.object.symbols()[r.symbol].section == 0;
            if (elsewhere || is_slot(r.type)) {
                one.slots.emplace(r.symbol, 0);
            }
            if (elsewhere) {
                one.stubs.emplace(r.symbol, 0);
            }
        }
        placed->push_back(std::move(one));
    }
    for (Placed &one : *placed) {
        for (auto &[symbol, at] : one.slots) {
            at = aligned(layout->bytes[constants], slot_bytes);
            layout->bytes[constants] = at + slot_bytes;
        }
        for (auto &[symbol, at] : one.stubs) {
            at = aligned(layout->bytes[code], stub_bytes);
            layout->bytes[code] = at + stub_bytes;
        }
    }
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    for (const Kind kind : {code, constants, data}) {
        layout->begin[kind] = bytes_;
        largest = std::max(largest, layout->bytes[kind]);
        bytes_ += largest > most_bytes ? 0 : aligned(layout->bytes[kind], page);
    }
    return largest > most_bytes ? "the object of a kernel is larger than 1 GB" : "";
}

std::string ObjectCode::relocate_one(const Placed &placed, const ElfRelocation &r, const std::vector<char *> &addresses) const {
    const ElfSection &section = placed.object.sections()[r.section];
    const ElfSymbol &symbol = placed.object.symbols()[r.symbol];
    char *const at = memory_ + placed.at[r.section] + r.offset;
    const auto distance_to = [&](const char *target) { return static_cast<int64_t>(target - at) + r.addend; };
    const bool elsewhere = symbol.section == 0;
    const size_t width = r.type == R_X86_64_64 ? sizeof(int64_t) : sizeof(int32_t);
    if (section.size - r.offset < width) {
        return "the object of a kernel is damaged: a relocation lies outside of its section";
    }
    if (is_slot(r.type)) {
        return put_distance(at, distance_to(memory_ + placed.slots.at(r.symbol)));
    }
    if (r.type == R_X86_64_64) {
        const uint64_t value = reinterpret_cast<uint64_t>(addresses[r.symbol]) + static_cast<uint64_t>(r.addend);
        std::memcpy(at, &value, sizeof value);
        return "";
    }
    if (r.type == R_X86_64_PLT32 || (r.type == R_X86_64_PC32 && !elsewhere)) {
        return put_distance(at, distance_to(elsewhere ? memory_ + placed.stubs.at(r.symbol) : addresses[r.symbol]));
    }
    return "the object of a kernel has a relocation of kind " + std::to_string(r.type) + " to '" + std::string(symbol.name) +
           "', expected R_X86_64_64, PC32, PLT32 or GOTPCREL";
}

std::string ObjectCode::relocate(const Placed &placed, const Resolve &resolve) {
    const std::vector<ElfSection> &sections = placed.object.sections();
    for (size_t i = 0; i < sections.size(); ++i) {
        if (sections[i].in_memory() && !sections[i].bytes.empty()) {
            std::memcpy(memory_ + placed.at[i], sections[i].bytes.data(), sections[i].bytes.size());
        }
    }
    std::vector<char *> addresses;
    for (const ElfSymbol &symbol : placed.object.symbols()) {
        const bool here = symbol.section != 0 && symbol.section != ElfSymbol::absolute && sections[symbol.section].in_memory();
        addresses.push_back(here ? memory_ + placed.at[symbol.section] + symbol.value : nullptr);
    }
    for (const auto &[symbol, at] : placed.stubs) {
        const std::string_view name = placed.object.symbols()[symbol].name;
        addresses[symbol] = static_cast<char *>(resolve(name));
        if (!addresses[symbol]) {
            return "the object of a kernel calls '" + std::string(name) + "', which this process does not have";
        }
        write_stub(memory_ + at, memory_ + placed.slots.at(symbol));
    }
    for (const auto &[symbol, at] : placed.slots) {
        std::memcpy(memory_ + at, &addresses[symbol], sizeof addresses[symbol]);
    }
    for (const ElfRelocation &r : placed.object.relocations()) {
        if (r.type == R_X86_64_NONE) {
            continue;
        }
        if (!addresses[r.symbol]) {
            return "the object of a kernel is damaged: a relocation refers to nothing in memory";
        }
        if (std::string error = relocate_one(placed, r, addresses); !error.empty()) {
            return error;
        }
    }
    return "";
}

void ObjectCode::add_functions(const Placed &placed) {
    for (const ElfSymbol &symbol : placed.object.symbols()) {
        if (symbol.global && symbol.function && symbol.section != 0 && symbol.section != ElfSymbol::absolute &&
            placed.object.sections()[symbol.section].executable()) {
            functions_.emplace(symbol.name, memory_ + placed.at[symbol.section] + symbol.value);
        }
    }
}

// One line for each function, in the file in which perf looks for code without a file.
void ObjectCode::write_perf_map() const {
    const char *const wanted = std::getenv("POLYHEAD_PERF_MAP");
    if (!wanted || std::strcmp(wanted, "1") != 0) {
        return;
    }
    const std::string path = "/tmp/perf-" + std::to_string(::getpid()) + ".map";
    std::FILE *const file = std::fopen(path.c_str(), "a");
    if (!file) {
        return;
    }
    std::map<const char *, std::string> by_address;
    for (const auto &[name, address] : functions_) {
        by_address.emplace(address, name);
    }
    for (auto one = by_address.begin(); one != by_address.end(); ++one) {
        const auto next = std::next(one);
        const char *const behind = next == by_address.end() ? end() : next->first;
        std::fprintf(file, "%zx %zx %s\n", reinterpret_cast<size_t>(one->first), static_cast<size_t>(behind - one->first),
                     one->second.c_str());
    }
    std::fclose(file);
}

std::string ObjectCode::load(const std::vector<std::string> &objects, const Resolve &resolve) {
    std::vector<Placed> placed;
    Layout layout;
    std::string error = place(objects, &placed, &layout);
    if (!error.empty() || bytes_ == 0) {
        bytes_ = 0;
        return error.empty() ? "the objects of a kernel are empty" : gen::on_one_line(error);
    }
    void *const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return std::string("the memory for a kernel cannot be mapped: ") + std::strerror(errno);
    }
    memory_ = static_cast<char *>(memory);
    for (Placed &one : placed) {
        for (size_t i = 0; i < one.at.size(); ++i) {
            one.at[i] += layout.begin[kind_of(one.object.sections()[i])];
        }
        for (auto &[symbol, at] : one.slots) {
            at += layout.begin[constants];
        }
        for (auto &[symbol, at] : one.stubs) {
            at += layout.begin[code];
        }
        error = error.empty() ? relocate(one, resolve) : error;
        add_functions(one);
    }
    const auto protect = [&](Kind kind, size_t end, int protection) {
        return end == layout.begin[kind] || ::mprotect(memory_ + layout.begin[kind], end - layout.begin[kind], protection) == 0;
    };
    if (error.empty() &&
        !(protect(code, layout.begin[constants], PROT_READ | PROT_EXEC) && protect(constants, layout.begin[data], PROT_READ))) {
        error = std::string("the memory of a kernel cannot be made executable: ") + std::strerror(errno);
    }
    if (!error.empty()) {
        ::munmap(memory_, bytes_);
        memory_ = nullptr;
        bytes_ = 0;
        functions_.clear();
        return gen::on_one_line(error); // it may repeat a name, which may have any bytes
    }
    write_perf_map();
    return "";
}

void *ObjectCode::function(const std::string &name) const {
    const auto found = functions_.find(name);
    return found == functions_.end() ? nullptr : found->second;
}

} // namespace polyhead::load

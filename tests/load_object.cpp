// Objects of kernels in memory without the system's linker and loader: the same bits, pages that are writable or executable, and what is
// refused.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include "instruments/calls/inputs.h"
#include "instruments/calls/problems.h"
#include "load/loaded_code.h"
#include "load/maker.h"
#include "plan/plan.h"
#include "support/catch.h"
#include "tools/compile_process.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr char symbol[] = "polyhead_test_object";

// The object of one variant of a small kernel, for every CPU of this kind.
const std::string &object() {
    static const std::string bytes = [] {
        tools::set_compiler_program(POLYHEAD_COMPILER_PROGRAM);
        Problem problem = sdpa_problem(2, 16);
        std::string error;
        REQUIRE(gen::complete(&problem).empty());
        const std::vector<gen::VariantPlan> plans =
            gen::plan_variants(problem, {gen::resolve_target("x86-64", &error)}, "frame=head_lanes", &error);
        REQUIRE(error.empty());
        load::Made made;
        tools::Limits limits;
        REQUIRE(tools::read_limits(&limits).empty());
        const load::Failure failure = load::make_object({problem, plans[0], symbol, "", {}, {}, false}, limits, &made);
        INFO(failure.sentence);
        REQUIRE(failure.sentence.empty());
        return made.object;
    }();
    return bytes;
}

using Entry = int (*)(void **);

std::string loaded(const std::string &bytes) {
    load::ObjectCode code;
    return code.load({bytes}, [](std::string_view name) {
        return name.rfind("polyhead_", 0) == 0 || name == "memset" || name == "floorf" ? reinterpret_cast<void *>(&std::memset) : nullptr;
    });
}

// The object with another kind in its first relocation of this kind.
std::string with_relocation(uint32_t from, uint32_t to) {
    std::string bytes = object();
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    for (size_t i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;
        std::memcpy(&section, bytes.data() + header.e_shoff + i * sizeof section, sizeof section);
        for (size_t at = 0; section.sh_type == SHT_RELA && at < section.sh_size; at += sizeof(Elf64_Rela)) {
            Elf64_Rela r;
            std::memcpy(&r, bytes.data() + section.sh_offset + at, sizeof r);
            if (ELF64_R_TYPE(r.r_info) == from) {
                r.r_info = ELF64_R_INFO(ELF64_R_SYM(r.r_info), to);
                std::memcpy(&bytes[section.sh_offset + at], &r, sizeof r);
                return bytes;
            }
        }
    }
    FAIL("no such relocation");
    return "";
}

// The permissions of the pages between two addresses, each once.
std::vector<std::string> permissions(const char *begin, const char *end) {
    std::vector<std::string> found;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        unsigned long from = 0, to = 0;
        char what[8] = "";
        if (std::sscanf(line.c_str(), "%lx-%lx %7s", &from, &to, what) == 3 && from < reinterpret_cast<uintptr_t>(end) &&
            to > reinterpret_cast<uintptr_t>(begin)) {
            found.emplace_back(what, 3);
        }
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}

} // namespace

#if defined(__x86_64__) && defined(__linux__) && !defined(POLYHEAD_TEST_SANITIZED)

TEST_CASE("objects: two loaders give one kernel, the same bits, and neither a file nor a process is needed for one of them") {
    REQUIRE(!object().empty());
    ::setenv("TMPDIR", "/dev/null/nowhere", 1); // for the linker of the system
    load::LoadedCode own;
    CHECK(own.load({object()}).sentence.empty());
    load::LoadedCode refused;
    CHECK(!refused.load_by_system({object()}).sentence.empty());
    ::unsetenv("TMPDIR");
    load::LoadedCode systems;
    REQUIRE(systems.load_by_system({object()}).sentence.empty());
    std::vector<std::vector<float>> answers;
    for (const load::LoadedCode *code : {&own, &systems}) {
        polyhead_variant variant{};
        variant.name = symbol;
        variant.target = variant.tiling = "";
        variant.entry = reinterpret_cast<Entry>(code->function(std::string(symbol) + "_argv"));
        REQUIRE(variant.entry);
        variant.abi = POLYHEAD_ABI_VERSION;
        Problem problem = sdpa_problem(2, 16);
        REQUIRE(gen::complete(&problem).empty());
        const polyhead_kernel table{POLYHEAD_SIZES, problem, "object", &variant, nullptr, 1, 0, 0, 0};
        Shape shape;
        shape.seq_len_q = 3;
        shape.seq_len_kv = 37;
        const Inputs inputs(problem, shape);
        polyhead_args args = inputs.args();
        std::vector<float> out(2 * 3 * 16);
        args.out = view(out.data(), {1, 2, 3, 16});
        const polyhead_status status = polyhead_run(&table, &args);
        INFO(status.message);
        REQUIRE(status.code == POLYHEAD_OK);
        answers.push_back(out);
    }
    CHECK(answers[0] == answers[1]);
}

TEST_CASE("objects: no page is writable and executable, and none stays") {
    const char *begin = nullptr, *end = nullptr;
    {
        load::ObjectCode code;
        REQUIRE(code.load({object(), object()}, [](std::string_view) { return reinterpret_cast<void *>(&std::memset); }).empty());
        begin = code.begin();
        end = code.end();
        CHECK(permissions(begin, end) == std::vector<std::string>{"r--", "r-x", "rw-"});
        CHECK(code.function("not there") == nullptr);
    }
    unsigned char in_memory = 0;
    CHECK(::mincore(const_cast<char *>(begin), 1, &in_memory) != 0);
}

TEST_CASE("objects: what the loader does not know is refused with a sentence") {
    CHECK(loaded(object()).empty());
    CHECK(loaded(with_relocation(R_X86_64_PC32, R_X86_64_32S)).find("has a relocation of kind 11 to '") != std::string::npos);
    CHECK(loaded(with_relocation(R_X86_64_PLT32, R_X86_64_PC32)).find("has a relocation of kind 2 to 'polyhead_halide_") !=
          std::string::npos);
    load::ObjectCode code;
    const std::string missing = code.load({object()}, [](std::string_view name) {
        return name == "polyhead_halide_error_bad_type" ? nullptr : reinterpret_cast<void *>(&std::memset);
    });
    CHECK(missing == "the object of a kernel calls 'polyhead_halide_error_bad_type', which this process does not have");
    CHECK(loaded("") == "the object of a kernel is damaged, or none of x86-64");
    CHECK(code.load({}, nullptr) == "the objects of a kernel are empty");
    for (size_t bytes = 0; bytes < object().size(); bytes += 1 + object().size() / 97) {
        CHECK(!loaded(object().substr(0, bytes)).empty()); // its table of sections is at the end
    }
    std::mt19937 random(7);
    for (int i = 0; i < 2000; i++) {
        std::string bytes = object();
        for (int changes = 0; changes < 4; changes++) {
            bytes[random() % bytes.size()] = char(random());
        }
        const std::string sentence = loaded(bytes); // never called
        CHECK(sentence.find('\n') == std::string::npos);
    }
}

TEST_CASE("objects: perf is told where functions are") {
    const std::string path = "/tmp/perf-" + std::to_string(::getpid()) + ".map";
    ::setenv("POLYHEAD_PERF_MAP", "1", 1);
    load::LoadedCode code;
    REQUIRE(code.load({object()}).sentence.empty());
    ::unsetenv("POLYHEAD_PERF_MAP");
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    ::unlink(path.c_str());
    char line[128];
    std::snprintf(line, sizeof line, "%zx ", reinterpret_cast<size_t>(code.function(std::string(symbol) + "_argv")));
    CHECK(text.str().find(line) != std::string::npos);
    CHECK(text.str().find(std::string(" ") + symbol + "_argv\n") != std::string::npos);
}

#endif

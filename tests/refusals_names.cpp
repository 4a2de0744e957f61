// Names and targets that polyhead-generate refuses: every row of its tables, and headers of accepted names through the compilers.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>

#include <unistd.h>

#include <Halide.h>

#include "plan/named_targets.h"
#include "plan/target_features.h"
#include "tools/library.h"
#include "tools/reserved_names.h"

#include "instruments/calls/problems.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace fs = std::filesystem;

namespace {

std::string refused(std::vector<const char *> arguments) {
    tools::Request request;
    std::string help;
    arguments.insert(arguments.begin(), "polyhead-generate");
    return tools::parse_request(static_cast<int>(arguments.size()), arguments.data(), &request, &help);
}

std::string refused_target(const std::string &target, bool untested = false) {
    std::vector<const char *> words = {"k", "--op", "sdpa", "--num-heads", "1", "--head-dim", "4", "--target", target.c_str()};
    if (untested) {
        words.push_back("--untested-target");
    }
    return refused(words);
}

std::vector<std::string> words_of(std::string_view text) {
    std::istringstream stream{std::string(text)};
    std::vector<std::string> words;
    for (std::string word; stream >> word;) {
        words.push_back(word);
    }
    return words;
}

// NAME.h of a kernel with one variant, whose code is nowhere.
std::string header_of(const std::string &name) {
    std::string error;
    tools::Library library;
    library.name = name;
    library.problem = sdpa_problem(1, 8);
    tools::LibraryVariant variant;
    variant.plan = gen::plan_variants(library.problem, {"x86-64-linux"}, "", &error).at(0);
    variant.name = tools::variant_name(name, 0);
    variant.compiled.symbol = tools::variant_symbol(name, library.problem, {variant.plan}, 0);
    library.variants.push_back(variant);
    return tools::header_text(library);
}

struct Folder {
    Folder() : path(fs::temp_directory_path() / ("polyhead_names_" + std::to_string(getpid()))) { fs::create_directories(path); }
    ~Folder() { fs::remove_all(path); }
    fs::path path;
};

} // namespace

TEST_CASE("generator: a kernel of gradients beside its forward kernel") {
    tools::Request request;
    request.name = "k";
    request.problem = sdpa_problem(4, 16);
    request.problem.sinks = request.problem.grad_sinks = 1;
    request.backward = true;
    request.tiling = "q_tile=16";
    std::vector<tools::Request> kernels;
    REQUIRE(tools::complete_requests(request, &kernels).empty());
    REQUIRE(kernels.size() == 2);
    const Problem &forward = kernels[0].problem, &backward = kernels[1].problem;
    CHECK(forward.op == POLYHEAD_SDPA);
    CHECK(forward.lse == 1);
    CHECK(forward.grad_sinks == 0);
    CHECK(kernels[0].tiling == "q_tile=16");
    CHECK(kernels[1].name == "k_backward");
    CHECK(backward.op == POLYHEAD_SDPA_BACKWARD);
    CHECK(backward.lse == 0);
    CHECK(backward.grad_sinks == 1);
    CHECK(kernels[1].tiling.empty());
    const auto refusal = [&](const std::function<void(tools::Request &)> &change) {
        tools::Request changed = request;
        change(changed);
        return tools::complete_requests(changed, &kernels);
    };
    CHECK(refusal([](tools::Request &r) { r.problem.op = POLYHEAD_SDPA_BACKWARD; }) ==
          "backward: found op sdpa_backward, expected sdpa, mha or linear");
    CHECK(refusal([](tools::Request &r) { r.problem.page_size = 16; }) == "backward: page_size is not a parameter of op sdpa_backward");
    CHECK(refusal([](tools::Request &r) { r.name = "k_"; }) ==
          "name: found 'k__backward', expected a C identifier without leading or double underscores");
}

TEST_CASE("generator: every reserved name is refused") {
    int count = 0;
    for (const tools::ReservedNames &row : tools::reserved_names()) {
        CHECK(row.words.front() == ' ');
        CHECK(row.words.back() == ' ');
        for (const std::string &name : words_of(row.words)) {
            const std::string sentence = refused({name.c_str(), "--op", "sdpa", "--num-heads", "1", "--head-dim", "4"});
            if (sentence != "name: found '" + name + "', expected another name: it is " + std::string(row.what)) {
                FAIL_CHECK(name << ": " << sentence);
            }
            count++;
        }
    }
    CHECK(count > 2000);
    for (const char *name :
         {"", "2d", "a b", "a-b", "_x", "x__y", "../up", "k\xc3\xa4se", "polyhead_x", "POLYHEAD_OK", "halide_malloc", "a\nb"}) {
        const std::string sentence = refused({name, "--op", "sdpa", "--num-heads", "1", "--head-dim", "4"});
        INFO(name);
        CHECK(sentence.rfind("name: found '", 0) == 0);
        CHECK(sentence.find('\n') == std::string::npos);
    }
}

TEST_CASE("generator: headers of accepted names compile as C99 and C++17, beside the headers of the system") {
    const Folder folder;
    const char *const names[] = {
        "k",    "attention", "Class", "main_", "Std",    "vector",           "optional", "Kernel",       "Problem",        "view",
        "run",  "status",    "sdpa",  "x_",    "tokens", "memory_attention", "isolated", "string_match", "int8_attention", "E",
        "GPT2", "value",     "query"};
    std::ofstream both(folder.path / "both.h");
    // As the user of the header may: what NAME.h includes must not meet NAME, before it or after it.
    for (const char *name : names) {
        CHECK(refused({name, "--op", "sdpa", "--num-heads", "1", "--head-dim", "4"}).empty());
        std::ofstream(folder.path / (std::string(name) + ".h")) << header_of(name);
        both << "#include \"" << name << ".h\"\n";
    }
    both << "#include <errno.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <math.h>\n#include <time.h>\n#include <pthread.h>\n";
    both.close();
    for (const std::string language : {"c", "c++"}) {
        const fs::path file = folder.path / (language == "c" ? "uses.c" : "uses.cpp");
        std::ofstream uses(file);
        uses << "#include \"both.h\"\n"
             << (language == "c" ? "" : "#include <cmath>\n#include <cstdlib>\n#include <vector>\n")
             << "int all(void);\nint all(void) {\n    return 0";
        for (const char *name : names) {
            uses << " + " << (language == "c" ? "" : "::") << name << ".num_variants";
        }
        uses << ";\n}\n";
        uses.close();
        const std::string command = (language == "c" ? POLYHEAD_TEST_CC " -std=c99" : POLYHEAD_TEST_CXX " -std=c++17") +
                                    std::string(" -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -I'") + folder.path.string() +
                                    "' -I'" POLYHEAD_TEST_INCLUDE "' '" + file.string() + "'";
        INFO(command);
        CHECK(std::system(command.c_str()) == 0);
    }
}

TEST_CASE("generator: every public header compiles alone, without a warning") {
    const Folder folder;
    int count = 0;
    for (const fs::directory_entry &entry : fs::directory_iterator(POLYHEAD_TEST_INCLUDE "/polyhead")) {
        const std::string name = entry.path().filename().string();
        for (const bool c : {true, false}) {
            if (c && name.rfind("c_", 0) != 0) {
                continue; // of C++
            }
            const fs::path file = folder.path / (c ? "alone.c" : "alone.cpp");
            std::ofstream(file) << "#include <polyhead/" << name << ">\n";
            const std::string command =
                (c ? POLYHEAD_TEST_CC " -std=c99" : POLYHEAD_TEST_CXX " -std=c++17 -Wold-style-cast") +
                std::string(" -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Werror -fsyntax-only "
                            "-I'" POLYHEAD_TEST_INCLUDE "' '") +
                file.string() + "'";
            INFO(command);
            CHECK(std::system(command.c_str()) == 0);
            count++;
        }
    }
    CHECK(count >= 12);
}

TEST_CASE("generator: every feature of Halide has a row, and is taken or refused by it") {
    for (int i = 0; i < Halide::Target::FeatureEnd; i++) {
        const std::string name = Halide::Target::feature_to_name(static_cast<Halide::Target::Feature>(i));
        const gen::FeatureRule *rule = gen::feature_rule(name);
        INFO(name);
        REQUIRE(rule != nullptr);
        CHECK((rule->use == gen::FeatureUse::allowed) == (rule->reason[0] == 0));
        const std::string architecture = rule->architecture ? rule->architecture : "x86";
        const gen::Target target{architecture, "linux", 64, "", {name}, architecture == "riscv" ? 128 : 0};
        const bool refused = rule->use == gen::FeatureUse::refused, untested = rule->use == gen::FeatureUse::untested,
                   run = target.architecture == "x86" || target.architecture == "arm";
        CHECK(gen::refused_features("t", target).empty() == !refused);
        CHECK(gen::untested_part(target).empty() == (run && !untested));
        if (refused) {
            CHECK(gen::refused_features("t", target).find("found " + name + ", expected") != std::string::npos);
        }
    }
}

TEST_CASE("generator: RISC-V without vectors of a known length is refused") {
    for (const char *text : {"riscv-64-linux", "riscv-64-linux-rvv", "riscv-64-linux-vector_bits_256"}) {
        CHECK(refused_target(text, true) ==
              "target '" + std::string(text) +
                  "': expected rvv and vector_bits_N, such as riscv-64-linux-rvv-vector_bits_256: Halide makes no "
                  "other code for RISC-V");
    }
}

TEST_CASE("generator: a feature of another architecture is refused by name") {
    for (const auto &[text, of] :
         {std::pair("x86-64-linux-sve2", "arm"), std::pair("arm-64-linux-avx2", "x86"), std::pair("riscv-64-linux-vsx", "powerpc")}) {
        gen::Target target;
        std::string sentence;
        CHECK(!gen::parse_target(text, &target, &sentence));
        CHECK(sentence.find(std::string("expected no such feature, because it is one of ") + of) != std::string::npos);
    }
}

namespace {

// Words of a target in any order, some of them not Halide's.
std::string random_target_text(std::mt19937 *random) {
    const std::vector<std::string> heads = {"x86", "arm", "riscv", "wasm", "hexagon", "powerpc"},
                                   systems = {"linux", "osx", "windows", "noos"};
    std::vector<std::string> words = {heads[(*random)() % heads.size()], (*random)() % 4 == 0 ? "32" : "64",
                                      systems[(*random)() % systems.size()]};
    const std::vector<std::string> others = {"tune_znver3", "tune_generic", "vector_bits_256", "vector_bits_", "trace_all",
                                             "trace_loads", "32",           "linux",           "ssse3",        ""};
    for (unsigned count = (*random)() % 6; count > 0; count--) {
        words.push_back((*random)() % 8 == 0
                            ? others[(*random)() % others.size()]
                            : Halide::Target::feature_to_name(Halide::Target::Feature((*random)() % Halide::Target::FeatureEnd)));
    }
    if ((*random)() % 8 == 0) {
        words.erase(words.begin() + long((*random)() % 3));
    }
    std::shuffle(words.begin(), words.end(), *random);
    std::string text;
    for (const std::string &word : words) {
        text += (text.empty() ? "" : "-") + word;
    }
    return text;
}

} // namespace

TEST_CASE("generator: targets are read and written as Halide reads and writes them") {
    std::mt19937 random(41);
    int taken = 0;
    for (int i = 0; i < 20000; i++) {
        const std::string text = random_target_text(&random);
        INFO(text);
        gen::Target target;
        std::string sentence;
        const bool known = gen::parse_target(text, &target, &sentence) || sentence.find("is not known") == std::string::npos;
        bool halide = false;
        try { // it asks some numbers for what they are
            halide = Halide::Target::validate_target_string(text);
        } catch (const std::exception &) {
        }
        if (text == "x86-64") { // a level of the psABI
            continue;
        }
        REQUIRE(known == halide);
        if (sentence.empty()) {
            REQUIRE(target.to_string() == Halide::Target(text).to_string());
            taken++;
        }
    }
    CHECK(taken > 1000);
}

TEST_CASE("generator: a capability that Halide has no name for is compiled as the nearest that it has one for") {
    gen::Target target;
    std::string sentence;
    REQUIRE(gen::parse_target("x86-64-linux-cuda-cuda_capability_80-cuda_capability_90a", &target, &sentence));
    CHECK(gen::refuse_target(target.to_string(), false, &sentence).empty());
    CHECK(target.for_halide().to_string() == "x86-64-linux-cuda-cuda_capability_86");
    const gen::Machine machine = gen::machine_of(target);
    CHECK((machine.capability == 90 && machine.exact && machine.shared_on_request() == 227 << 10));
    const gen::Target older = gen::parsed_target("x86-64-linux-cuda-cuda_capability_80");
    CHECK(older.for_halide().to_string() == older.to_string());
    CHECK((gen::machine_of(older).capability == 80 && !gen::machine_of(older).exact));
    CHECK(gen::machine_of(older).shared_on_request() == 99 << 10);
}

TEST_CASE("generator: levels of the psABI are targets that ask a CPU for what their code uses") {
    const auto level = [](const std::string &text) {
        std::string sentence;
        gen::Target target;
        REQUIRE(gen::parse_target(text, &target, &sentence));
        CHECK(gen::refuse_target(text, false, &sentence).empty());
        return target;
    };
    CHECK(level("x86-64").to_string() == "x86-64-linux");
    CHECK(gen::cpu_features_of(level("x86-64")) == 0);
    CHECK(gen::cpu_features_of(level("x86-64-v2")) == POLYHEAD_CPU_SSE41);
    CHECK(level("x86-64-v3").to_string() == "x86-64-linux-avx-avx2-f16c-fma-sse41");
    CHECK(gen::cpu_features_of(level("x86-64-v4")) == contract::cpu_level::skylake);
    CHECK(level("x86-64-v4-enable_backtraces").has("enable_backtraces"));
    for (const gen::PsabiLevel &row : gen::psabi_levels) {
        CHECK(std::string(gen::psabi_level_of(level(row.name))) == row.name);
    }
    CHECK(std::string(gen::psabi_level_of(gen::parsed_target("x86-64-linux-avx"))) == "x86-64-v3");
    for (const char *none : {"x86-64-linux-avx512_zen4", "x86-64-linux-cuda", "arm-64-linux"}) {
        CHECK(gen::psabi_level_of(gen::parsed_target(none)) == nullptr);
    }
    for (const char *text : {"x86-64-v5", "x86-64-v", "x86-64-v33", "x86-64-", "portable-avx2", "portable2"}) {
        gen::Target target;
        std::string sentence;
        CHECK(!gen::parse_target(text, &target, &sentence));
        CHECK(sentence == "target '" + std::string(text) +
                              "' is not known: expected host, portable, x86-64-v3 or a Halide target such as x86-64-linux-avx2-fma-f16c");
    }
}

TEST_CASE("generator: portable is every level, best first, and level 4 with dot products where a kernel has them") {
    const auto names = [](Problem problem) {
        std::vector<std::string> targets;
        CHECK(gen::read_targets("portable", false, problem, &targets).empty());
        std::string text;
        for (const std::string &target : targets) {
            const gen::Target parsed = gen::parsed_target(target);
            const char *const level = gen::psabi_level_of(parsed);
            text += (text.empty() ? "" : " ") + std::string(level                                 ? level
                                                            : parsed.has("avx512_zen4")           ? "amd"
                                                            : parsed.has("avx512_sapphirerapids") ? "intel"
                                                                                                  : "other");
        }
        return text;
    };
    const std::string levels = "x86-64-v4 x86-64-v3 x86-64-v2 x86-64";
    Problem problem{};
    problem.op = POLYHEAD_SDPA;
    problem.num_heads = 2;
    problem.head_dim = 16;
    CHECK(names(problem) == levels);
    problem.dtype = POLYHEAD_F16; // no instruction multiplies it as it is stored
    CHECK(names(problem) == levels);
    problem.dtype = POLYHEAD_BF16;
    CHECK(names(problem) == "intel amd " + levels);
    problem.dtype = POLYHEAD_F32;
    problem.int8_cache = 1;
    CHECK(names(problem) == "intel amd " + levels);
    std::vector<std::string> targets;
    CHECK(gen::read_targets("x86-64-v3,,x86-64", false, problem, &targets).empty());
    CHECK(targets.size() == 2);
    targets.clear();
    CHECK(gen::read_targets(",", false, problem, &targets) == "target: found no target, expected at least one");
}

TEST_CASE("generator: host is what Halide finds, as far as dispatch finds it, too") {
    std::string error;
    const gen::Target ours = gen::parsed_target(gen::resolve_target("host", &error));
    const Halide::Target theirs = Halide::get_host_target();
    CHECK(gen::parsed_target(theirs.to_string()).same_machine(ours));
    for (const std::string &feature : ours.features) {
        INFO(feature);
        CHECK((theirs.has_feature(Halide::Target::feature_from_name(feature)) || feature == "avxvnni"));
    }
    const uint64_t needed = gen::cpu_features_of(ours);
    CHECK((needed & ~polyhead_cpu_features()) == 0);
}

TEST_CASE("generator: targets whose code was never run are made only where that is asked for") {
    for (const char *target : {"arm-64-linux-sve2-vector_bits_256", "arm-64-linux-sve-vector_bits_128", "arm-64-linux-arm_dot_prod",
                               "arm-64-linux-armv8a", "arm-32-linux", "x86-32-linux", "riscv-64-linux-rvv-vector_bits_128",
                               "powerpc-64-linux-vsx", "arm-64-osx-metal", "x86-64-linux-webgpu", "host-asan", "host-tsan"}) {
        INFO(target);
        const std::string sentence = refused_target(target);
        CHECK(sentence.rfind(std::string("target '") + target + "' is not tested (", 0) == 0);
        CHECK(sentence.find("--untested-target") != std::string::npos);
        CHECK(refused_target(target, true).empty());
    }
    for (const char *target :
         {"host", "x86-64-linux", "x86-64-linux-avx2-fma-f16c", "x86-64-windows", "x86-64-osx", "arm-64-linux", "arm-64-osx",
          "x86-64-linux-cuda-cuda_capability_80", "x86-64-linux-vulkan", "x86-64-linux-enable_backtraces"}) {
        INFO(target);
        CHECK(refused_target(target).empty());
    }
    for (const char *target : {"x86-64-linux-trace_all", "x86-64-linux-profile", "host-c_plus_plus_name_mangling",
                               "x86-64-linux-avx512_knl", "host-no_asserts", "host-debug", "x86-64-linux-msan"}) {
        INFO(target);
        CHECK(refused_target(target, true).find(", expected no such feature, because ") != std::string::npos);
    }
}

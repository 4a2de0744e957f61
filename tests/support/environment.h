// Switches of the test run, from the environment.
#ifndef POLYHEAD_TESTS_ENVIRONMENT_H
#define POLYHEAD_TESTS_ENVIRONMENT_H

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

namespace polyhead::test {

// POLYHEAD_TEST_ALL=1: everything, to close a piece of work; otherwise the quick tier.
inline bool test_all() {
    const char *value = std::getenv("POLYHEAD_TEST_ALL");
    return value != nullptr && *value != '\0' && std::string(value) != "0";
}

// POLYHEAD_CPU_FEATURES: whether it limits the CPU features of this machine.
inline bool lesser_machine() {
    const char *value = std::getenv("POLYHEAD_CPU_FEATURES");
    return value != nullptr && *value != '\0';
}

// In sweeps over several targets, a run with limited CPU features tests only the target `host`: with POLYHEAD_TEST_ALL=1 a run without the
// limit makes and runs the same code for all other targets.
inline bool swept_by_the_whole_machine(const std::string &target) {
    return test_all() && lesser_machine() && target != "host";
}

// POLYHEAD_TEST_BUDGET: about how many multiply-adds a kernel may do in one check, for devices that are emulated; absent = no limit.
inline double test_budget() {
    const char *value = std::getenv("POLYHEAD_TEST_BUDGET");
    return value == nullptr || *value == '\0' ? std::numeric_limits<double>::infinity() : std::strtod(value, nullptr);
}

// A number of any text (FNV-1a).
inline uint64_t text_seed(const std::string &text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : text) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    }
    return hash >> 16;
}

// POLYHEAD_SWEEP_SEED: a commit hash or a number; rotates the random part of the quick tier.
inline std::string sweep_seed_text() {
    const char *value = std::getenv("POLYHEAD_SWEEP_SEED");
    return value == nullptr || *value == '\0' ? "1" : value;
}

} // namespace polyhead::test
#endif

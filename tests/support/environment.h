// Switches of the test run, from the environment.
#ifndef POLYHEAD_TESTS_ENVIRONMENT_H
#define POLYHEAD_TESTS_ENVIRONMENT_H

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

namespace polyhead::test {

// POLYHEAD_TEST_ALL: 1 is what --all runs: everything, but every second row of a sweep, because a row is a kernel to compile; the commit
// decides which. `third` is the quick tier with a third of those rows, for a run with limited CPU features beside it. `every` is 1 with
// all rows. Otherwise the quick tier.
inline std::string test_all_text() {
    const char *value = std::getenv("POLYHEAD_TEST_ALL");
    return value == nullptr || *value == '\0' ? "0" : value;
}

inline bool test_third() {
    return test_all_text() == "third";
}

inline bool test_all() {
    return test_all_text() != "0" && !test_third();
}

// One of how many rows a sweep takes; 0 in the quick tier, whose sweeps say themselves how many they take.
inline int sweep_step() {
    return test_all_text() == "every" ? 1 : test_all() ? 2 : test_third() ? 6 : 0;
}

// How many random problems a sweep takes.
inline int sweep_count(int quick, int all) {
    return sweep_step() == 0 ? quick : std::max(quick, all / sweep_step());
}

// In sweeps over several targets, a third takes only the target `host`: the run of everything makes and runs the same code for the others.
inline bool left_to_all(const std::string &target) {
    return test_third() && target != "host";
}

// POLYHEAD_TEST_BUDGET: about how many multiply-adds a kernel may do in one check, for devices that are emulated; absent = no limit.
inline double test_budget() {
    const char *value = std::getenv("POLYHEAD_TEST_BUDGET");
    return value == nullptr || *value == '\0' ? std::numeric_limits<double>::infinity() : std::strtod(value, nullptr);
}

// Code that is built with a sanitizer is several times slower.
constexpr bool sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
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

// Whether number i of a list is one of those of this run: all with --all, otherwise every `step`-th, which rotate.
inline bool in_sample(size_t i, uint64_t step) {
    return test_all() || (text_seed(sweep_seed_text()) + i) % step == 0;
}

} // namespace polyhead::test
#endif

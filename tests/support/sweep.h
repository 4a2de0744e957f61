// What all sweeps share: which numbers a run takes, the seed of each, and how one is repeated.
#ifndef POLYHEAD_TESTS_SWEEP_H
#define POLYHEAD_TESTS_SWEEP_H

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "catch.h"
#include "check.h"
#include "environment.h"
#include "instruments/calls/problems.h"
#include "shapes.h"

namespace polyhead::test {

inline std::vector<int> first_numbers(int count) {
    std::vector<int> numbers;
    for (int i = 0; i < count; i++) {
        numbers.push_back(i);
    }
    return numbers;
}

// The numbers begin <= n < end of a list of problems that never changes: one of every sweep_step() neighbours, or
// in the quick tier `sample` neighbours. Which ones rotates with POLYHEAD_SWEEP_SEED.
inline std::vector<int> rotating_numbers(int begin, int end, int sample) {
    const int count = end - begin, step = sweep_step();
    const int first = static_cast<int>(text_seed(sweep_seed_text()) % static_cast<uint64_t>(step == 0 ? count : step));
    std::vector<int> numbers;
    if (step == 0) {
        for (int i = 0; i < sample; i++) {
            numbers.push_back(begin + (first + i) % count);
        }
    } else {
        for (int i = first; i < count; i += step) {
            numbers.push_back(begin + i);
        }
    }
    return numbers;
}

// Calls visit(number, seed) for each number, or only for that of POLYHEAD_SWEEP_ONLY, under the words that repeat it. The seed depends
// on POLYHEAD_SWEEP_SEED, the name of the sweep and the number.
template <class Visit> void for_each_of_sweep(const std::string &name, const std::vector<int> &numbers, Visit visit) {
    const std::string seed_text = sweep_seed_text();
    const char *only = std::getenv("POLYHEAD_SWEEP_ONLY");
    for (int number : numbers) {
        if (only == nullptr || std::to_string(number) == only) {
            INFO("repeat: POLYHEAD_SWEEP_SEED=" << seed_text << " POLYHEAD_SWEEP_ONLY=" << number
                                                << " POLYHEAD_TEST_ALL=" << test_all_text());
            std::string text = seed_text + "/";
            text.append(name).append(std::to_string(number));
            visit(number, text_seed(text));
        }
    }
}

// Number i of the shapes for a problem. The first has no keys at all: every row is an empty row.
inline Shape sweep_shape(const Problem &problem, int i, uint64_t seed, Random &random) {
    const Shape shape = random_shape(problem, random);
    return i == 0 && problem.seq_len_kv == 0 ? plain_shape(problem, 2, is_mha(problem) && problem.cross == 0 ? 0 : 3, 0, seed) : shape;
}

// A line per problem, so that a long run shows where it is and how near the tolerance it came.
inline void print_swept(const std::string &name, int number, int shapes, double worst, const std::string &line) {
    std::printf("%s %d: %d shapes, largest error %.2f of the tolerance: %s\n", name.c_str(), number, shapes, worst, line.c_str());
    std::fflush(stdout);
}

} // namespace polyhead::test
#endif

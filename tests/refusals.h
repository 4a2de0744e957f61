// What tests of refused problems share.
#ifndef POLYHEAD_TESTS_REFUSALS_H
#define POLYHEAD_TESTS_REFUSALS_H

#include <string>
#include <vector>

#include <polyhead/polyhead.h>

#include "support/catch.h"

namespace polyhead::test {

// A layer of which nothing else is set.
inline Problem layer(int embed_dim, int num_heads) {
    Problem p = polyhead_problem_of(POLYHEAD_MHA);
    p.embed_dim = embed_dim;
    p.num_heads = num_heads;
    return p;
}

// One line, with each of these parts.
inline void check_sentence(const std::string &sentence, const std::vector<std::string> &parts) {
    CHECK(sentence.find('\n') == std::string::npos);
    for (const std::string &part : parts) {
        INFO("sentence: " << sentence << "\nmissing: " << part);
        CHECK(sentence.find(part) != std::string::npos);
    }
}

} // namespace polyhead::test
#endif

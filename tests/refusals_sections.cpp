// Sections of a rotation that a generator refuses, and those that it takes.
#include <string>
#include <vector>

#include "plan/problem.h"

#include "instruments/calls/problems.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// A head of 32 pairs.
Problem with_sections(int32_t kind, int32_t first, int32_t second, int32_t third) {
    Problem p = sdpa_problem(4, 64);
    p.rope = POLYHEAD_ROPE_HALF_SPLIT;
    p.rope_sections = kind;
    p.section_1 = first, p.section_2 = second, p.section_3 = third;
    return p;
}

void refused(Problem p, const std::string &sentence) {
    CHECK(gen::complete(&p) == sentence);
}

} // namespace

TEST_CASE("generator: wrong sections of a rotation are refused in one sentence") {
    constexpr int32_t contiguous = POLYHEAD_SECTIONS_CONTIGUOUS, interleaved = POLYHEAD_SECTIONS_INTERLEAVED,
                      parts = POLYHEAD_SECTIONS_PARTS;
    for (const Problem &taken : {with_sections(contiguous, 16, 8, 8), with_sections(contiguous, 31, 1, 0), with_sections(parts, 1, 30, 1),
                                 with_sections(interleaved, 11, 11, 10), with_sections(interleaved, 30, 1, 1)}) {
        refused(taken, "");
    }
    const std::string all = ", because all sections have rotary_dim / 2 pairs",
                      each = ", because each direction has pairs of rotary_dim / 2", third = ", because every third pair belongs to it";
    Problem p = with_sections(contiguous, 16, 8, 8);
    p.rope = POLYHEAD_NO_ROPE;
    refused(p, "rope_sections is not allowed without rope");
    p.rope_sections = 0;
    refused(p, "section_1 16 is not allowed: expected 0 without rope_sections");
    refused(with_sections(0, 0, 8, 0), "section_2 8 is not allowed: expected 0 without rope_sections");
    refused(with_sections(4, 16, 8, 8), "rope_sections 4 is not allowed: expected none, contiguous, interleaved or parts");
    refused(with_sections(contiguous, 0, 16, 16), "section_1 0 is not allowed: expected 1 to 31" + each);
    refused(with_sections(parts, 16, 0, 16), "section_2 0 is not allowed: expected 1 to 16" + each);
    refused(with_sections(contiguous, 16, 8, 4), "section_3 4 is not allowed: expected 8" + all);
    refused(with_sections(contiguous, 24, 8, 4), "section_3 4 is not allowed: expected 0" + all);
    refused(with_sections(contiguous, 24, 8, 289), "section_3 289 is not allowed: expected 0 to 288");
    p = with_sections(contiguous, 1, 0, 0);
    p.rotary_dim = 2;
    refused(p, "rope_sections 1 is not allowed: expected 0, because rotary_dim / 2 is less than 2 pairs");
    p = with_sections(interleaved, 1, 1, 0);
    p.rotary_dim = 4;
    refused(p, "rope_sections 2 is not allowed: expected 0, because rotary_dim / 2 is less than 3 pairs");
    refused(with_sections(interleaved, 24, 8, 0), "section_3 0 is not allowed: expected 1 to 10" + third);
    refused(with_sections(interleaved, 10, 12, 10), "section_2 12 is not allowed: expected 1 to 11" + third);
    refused(with_sections(interleaved, 11, 10, 11), "section_3 11 is not allowed: expected 1 to 10" + third);
}

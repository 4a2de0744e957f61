// Rotation by positions in two or three directions: which pairs belong to which direction, where they lie, what is refused. Header only.
#ifndef POLYHEAD_CONTRACT_ROPE_SECTIONS_H
#define POLYHEAD_CONTRACT_ROPE_SECTIONS_H

#include <cstdint>
#include <cstdio>

#include <polyhead/c_problem.h>

namespace polyhead::contract {

struct RopeSections {
    int32_t kind = POLYHEAD_NO_SECTIONS; // polyhead_rope_sections
    int32_t pairs[3] = {};               // of each direction

    // Positions of a token.
    constexpr int32_t directions() const noexcept { return kind == POLYHEAD_NO_SECTIONS ? 1 : pairs[2] > 0 ? 3 : 2; }
    // Pairs of the directions before this one, where they lie one after another.
    constexpr int32_t before(int32_t direction) const noexcept { return (direction > 0 ? pairs[0] : 0) + (direction > 1 ? pairs[1] : 0); }
    constexpr int32_t direction_of(int32_t pair) const noexcept {
        if (kind == POLYHEAD_NO_SECTIONS) {
            return 0;
        }
        if (kind == POLYHEAD_SECTIONS_INTERLEAVED) {
            const int32_t rest = pair % 3;
            return rest > 0 && pair < 3 * pairs[rest] ? rest : 0;
        }
        return pair < before(1) ? 0 : pair < before(2) ? 1 : 2;
    }
    // Entries of a direction lie together, and a pair is not two neighbours: parts have first entries and second ones of their own.
    constexpr bool splits_parts(bool neighbours) const noexcept { return kind == POLYHEAD_SECTIONS_PARTS && !neighbours; }
};

inline RopeSections sections_of(const polyhead_problem &p) noexcept {
    return {p.rope_sections, {p.section_1, p.section_2, p.section_3}};
}

// The first number of sections that is wrong. name null: none is.
struct SectionsFault {
    const char *name = nullptr;
    int32_t found = 0;
    char expected[96] = {};
};

// Of a rotation of so many pairs.
inline SectionsFault fault_of(const RopeSections &s, int32_t pairs) noexcept {
    SectionsFault fault;
    const auto holds = [&](int32_t number, int32_t least, int32_t most, const char *because) {
        static constexpr const char *names[] = {"section_1", "section_2", "section_3"};
        const int32_t found = s.pairs[number];
        if (!fault.name && (found < least || found > most)) {
            fault.name = names[number];
            fault.found = found;
            least < most ? std::snprintf(fault.expected, sizeof fault.expected, "%d to %d%s", least, most, because)
                         : std::snprintf(fault.expected, sizeof fault.expected, "%d%s", most, because);
        }
    };
    if (s.kind == POLYHEAD_NO_SECTIONS) {
        for (int32_t number = 0; number < 3; ++number) {
            holds(number, 0, 0, " without rope_sections");
        }
        return fault;
    }
    if (const int32_t directions = s.kind == POLYHEAD_SECTIONS_INTERLEAVED ? 3 : 2; pairs < directions) {
        fault.name = "rope_sections";
        fault.found = s.kind;
        std::snprintf(fault.expected, sizeof fault.expected, "0, because rotary_dim / 2 is less than %d pairs", directions);
        return fault;
    }
    holds(0, 1, pairs - 1, ", because each direction has pairs of rotary_dim / 2");
    holds(1, 1, pairs - s.pairs[0], ", because each direction has pairs of rotary_dim / 2");
    if (s.kind == POLYHEAD_SECTIONS_INTERLEAVED) { // pairs 3j + 1 and 3j + 2 exist
        holds(1, 1, (pairs + 1) / 3, ", because every third pair belongs to it");
        holds(2, 1, pairs / 3, ", because every third pair belongs to it");
    }
    holds(2, pairs - s.pairs[0] - s.pairs[1], pairs - s.pairs[0] - s.pairs[1], ", because all sections have rotary_dim / 2 pairs");
    return fault;
}

} // namespace polyhead::contract
#endif

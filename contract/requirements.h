// What a variant asks of the machine and of a call, or where it is the better one: one row each, in the order of polyhead_variant.
#ifndef POLYHEAD_CONTRACT_REQUIREMENTS_H
#define POLYHEAD_CONTRACT_REQUIREMENTS_H

#include <cstdint>

#include <polyhead/c_api.h>

// X(type, name). The fields of polyhead_variant between `context` and `min_seq_len_q`; 0 asks for nothing. What the generator passes on,
// and what stands in NAME.h and NAME.json, is made from the rows. The runtime holds a machine to them in dispatch.cpp.
#define POLYHEAD_REQUIREMENTS(X)                                                                                                           \
    X(uint64_t, cpu_features)                                                                                                              \
    X(int32_t, api)                                                                                                                        \
    X(int32_t, capability)                                                                                                                 \
    X(int32_t, shared_bytes)                                                                                                               \
    X(int32_t, alignment)
// The fields at its end: tables of earlier headers lack them (Rows::later()).
#define POLYHEAD_LATER_REQUIREMENTS(X)                                                                                                     \
    X(int32_t, capability_exact)                                                                                                           \
    X(int32_t, few_blocks_of)

namespace polyhead::contract {

struct Requirements {
#define POLYHEAD_FIELD(type, name) type name = 0;
    POLYHEAD_REQUIREMENTS(POLYHEAD_FIELD)
    POLYHEAD_LATER_REQUIREMENTS(POLYHEAD_FIELD)
#undef POLYHEAD_FIELD
};

// Calls each(name, value) for the rows of one table, and for every row.
#define POLYHEAD_EACH(type, name) each(#name, facts.name);
template <class Facts, class Each> void for_each_first_requirement(Facts &facts, const Each &each) {
    POLYHEAD_REQUIREMENTS(POLYHEAD_EACH)
}
template <class Facts, class Each> void for_each_later_requirement(Facts &facts, const Each &each) {
    POLYHEAD_LATER_REQUIREMENTS(POLYHEAD_EACH)
}
#undef POLYHEAD_EACH
template <class Facts, class Each> void for_each_requirement(Facts &facts, const Each &each) {
    for_each_first_requirement(facts, each);
    for_each_later_requirement(facts, each);
}

inline void require(const Requirements &requirements, polyhead_variant *variant) noexcept {
#define POLYHEAD_COPY(type, name) variant->name = requirements.name;
    POLYHEAD_REQUIREMENTS(POLYHEAD_COPY)
    POLYHEAD_LATER_REQUIREMENTS(POLYHEAD_COPY)
#undef POLYHEAD_COPY
}

} // namespace polyhead::contract
#endif

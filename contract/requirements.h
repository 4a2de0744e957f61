// What a variant asks of the machine and of a call: one row each, in the order of polyhead_variant.
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

namespace polyhead::contract {

struct Requirements {
#define POLYHEAD_FIELD(type, name) type name = 0;
    POLYHEAD_REQUIREMENTS(POLYHEAD_FIELD)
#undef POLYHEAD_FIELD
};

// Calls each(name, value) for every row.
template <class Facts, class Each> void for_each_requirement(Facts &facts, const Each &each) {
#define POLYHEAD_EACH(type, name) each(#name, facts.name);
    POLYHEAD_REQUIREMENTS(POLYHEAD_EACH)
#undef POLYHEAD_EACH
}

// What a device must have: its compute capability times 10, exactly that or at least that; and for which calls the variant is the better
// one. A library that does not know what is added to the number finds no device that is new enough.
struct CapabilityNeeded {
    int32_t number = 0; // 0: none
    bool exact = false;
    int32_t few_blocks_of = 0; // queries of a block, of which the call has fewer blocks than the device has multiprocessors; 0: any call
    bool has(int32_t capability) const { return exact ? capability == number : capability >= number; }
};
inline CapabilityNeeded needed_capability(int32_t capability) noexcept {
    return {capability % POLYHEAD_FEW_BLOCKS & ~POLYHEAD_EXACT_CAPABILITY, (capability & POLYHEAD_EXACT_CAPABILITY) != 0,
            capability / POLYHEAD_FEW_BLOCKS};
}

inline void require(const Requirements &requirements, polyhead_variant *variant) noexcept {
#define POLYHEAD_COPY(type, name) variant->name = requirements.name;
    POLYHEAD_REQUIREMENTS(POLYHEAD_COPY)
#undef POLYHEAD_COPY
}

} // namespace polyhead::contract
#endif

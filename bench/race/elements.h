// Numbers as elements of tensors that are kept as bytes.
#ifndef BENCH_RACE_ELEMENTS_H
#define BENCH_RACE_ELEMENTS_H

#include <cstdint>
#include <cstring>

#include <polyhead/c_problem.h>

#include "../../instruments/reference/half.h"

namespace bench {

inline void store_element(int32_t dtype, float number, char *to) {
    if (dtype == POLYHEAD_F32) {
        std::memcpy(to, &number, sizeof number);
        return;
    }
    const uint16_t bits = polyhead::test::to_storage_bits(number, dtype);
    std::memcpy(to, &bits, sizeof bits);
}

inline float load_element(int32_t dtype, const char *from) {
    if (dtype == POLYHEAD_F32) {
        float number = 0;
        std::memcpy(&number, from, sizeof number);
        return number;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, from, sizeof bits);
    return polyhead::test::from_storage_bits(bits, dtype);
}

} // namespace bench
#endif

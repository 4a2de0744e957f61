// The conversions between float and 16 bits, over every pattern, every midpoint and its neighbours, against plain arithmetic.
#include <cmath>
#include <limits>

#include "instruments/reference/half.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// Value of a finite pattern from its fields; fraction_bits 10 is f16, 7 is bf16.
double value_of(uint16_t bits, int fraction_bits) {
    const int exponent_bits = 15 - fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1), fraction = bits & ((1 << fraction_bits) - 1);
    const double significand = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
    const double magnitude = std::ldexp(significand, std::max(exponent, 1) - bias - fraction_bits);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

struct Format {
    int fraction_bits;
    uint16_t infinite;
    float (*value)(uint16_t bits);
    uint16_t (*bits)(float value);
};

// Those of the tests, and those of the library.
const Format formats[] = {
    {10, 0x7c00, from_f16, [](float x) { return test::to_f16(x); }},
    {7, 0x7f80, from_bf16, [](float x) { return test::to_bf16(x); }},
    {10, 0x7c00, [](uint16_t bits) { return to_float(f16{bits}); }, [](float x) { return polyhead::to_f16(x).bits; }},
    {7, 0x7f80, [](uint16_t bits) { return to_float(bf16{bits}); }, [](float x) { return polyhead::to_bf16(x).bits; }}};

int count_wrong_values(const Format &format) {
    int wrong = 0;
    for (uint32_t pattern = 0; pattern <= 0xffff; pattern++) {
        const uint16_t bits = static_cast<uint16_t>(pattern);
        const float value = format.value(bits);
        const uint16_t magnitude = bits & 0x7fff;
        if (magnitude > format.infinite) {
            const uint16_t back = format.bits(value);
            wrong += !std::isnan(value) || (back & 0x7fff) <= format.infinite || ((back ^ bits) & 0x8000) != 0;
        } else if (magnitude == format.infinite) {
            wrong += !std::isinf(value) || std::signbit(value) != ((bits & 0x8000) != 0) || format.bits(value) != bits;
        } else {
            wrong += static_cast<double>(value) != value_of(bits, format.fraction_bits) || std::signbit(value) != ((bits & 0x8000) != 0) ||
                     format.bits(value) != bits;
        }
    }
    return wrong;
}

// Between two neighbours: the midpoint goes to the even one, a float beside it to the nearer one. Both signs.
int count_wrong_roundings(const Format &format) {
    int wrong = 0;
    for (uint32_t pattern = 0; pattern < format.infinite; pattern++) {
        const uint16_t low = static_cast<uint16_t>(pattern), high = static_cast<uint16_t>(pattern + 1);
        // The neighbour of the largest number is the power of two that is out of range: from there on infinite.
        const double above = high == format.infinite ? 2 * value_of(low, format.fraction_bits) - value_of(low - 1, format.fraction_bits)
                                                     : value_of(high, format.fraction_bits);
        const double middle = (value_of(low, format.fraction_bits) + above) / 2;
        const float midpoint = static_cast<float>(middle); // exact: 16-bit numbers have at least one bit less than floats
        wrong += static_cast<double>(midpoint) != middle;
        const float down = std::nextafter(midpoint, 0.0f), up = std::nextafter(midpoint, std::numeric_limits<float>::infinity());
        for (uint16_t sign : {uint16_t(0), uint16_t(0x8000)}) {
            const float direction = sign != 0 ? -1.0f : 1.0f;
            wrong += format.bits(direction * midpoint) != (sign | ((low & 1) == 0 ? low : high));
            wrong += format.bits(direction * down) != (sign | low);
            wrong += format.bits(direction * up) != (sign | high);
        }
    }
    return wrong;
}

} // namespace

TEST_CASE("half: every pattern has its value and comes back") {
    for (const Format &format : formats) {
        INFO("format " << &format - formats);
        CHECK(count_wrong_values(format) == 0);
    }
}

TEST_CASE("half: rounding is to nearest, ties to even, between all neighbours") {
    for (const Format &format : formats) {
        INFO("format " << &format - formats);
        CHECK(count_wrong_roundings(format) == 0);
    }
}

TEST_CASE("half: numbers out of range, tiny numbers and f32") {
    const float infinite = std::numeric_limits<float>::infinity(), tiny = std::numeric_limits<float>::denorm_min();
    CHECK(test::to_f16(65504.0f) == 0x7bff);
    CHECK(test::to_f16(65519.0f) == 0x7bff);
    CHECK(test::to_f16(65520.0f) == 0x7c00);
    CHECK(test::to_f16(-1e30f) == 0xfc00);
    CHECK(test::to_f16(infinite) == 0x7c00);
    CHECK(test::to_f16(tiny) == 0);
    CHECK(test::to_f16(-tiny) == 0x8000);
    CHECK(test::to_bf16(std::numeric_limits<float>::max()) == 0x7f80);
    CHECK(test::to_bf16(-infinite) == 0xff80);
    CHECK(test::to_bf16(tiny) == 0);
    CHECK(std::isnan(from_bf16(test::to_bf16(bits_float(0x7f800001u))))); // a NaN in the low half alone
    CHECK(std::isnan(from_f16(test::to_f16(bits_float(0xff800001u)))));
    CHECK(round_to(0.1f, POLYHEAD_F32) == 0.1f);
    CHECK(round_to(0.1f, POLYHEAD_F16) == 0.0999755859375f);
    CHECK(round_to(0.1f, POLYHEAD_BF16) == 0.10009765625f);
}

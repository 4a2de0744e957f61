// Values of instructions: whole numbers, floats, halves, conversions, comparisons, bits.
#include "instruments/emulators/ptx/numbers.h"
#include "test_program.h"

#include <cmath>
#include <limits>

using namespace polyhead::test;
using polyhead::cuda_driver::bits_as;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr uint32_t nan_bits = 0x7fffffffu;

uint32_t bits(float x) {
    return bits_as<uint32_t>(x);
}
std::string word(uint32_t value) {
    return std::to_string(value);
}

// Executes one statement with %r1, %r2, %r3 set and gives %r4.
uint32_t result(const std::string &statement, uint32_t a, uint32_t b = 0, uint32_t c = 0) {
    const CUdeviceptr out = upload(std::vector<uint32_t>(1, 0));
    Grid one;
    one.block[0] = 1;
    const CUresult ran = run("mov.b32 %r1, " + word(a) + ";\nmov.b32 %r2, " + word(b) + ";\nmov.b32 %r3, " + word(c) +
                                 ";\nmov.b32 %r4, 0;\n" + statement + "\nst.global.b32 [%d0], %r4;\nret;",
                             out, 0, one);
    INFO(statement << ": " << polyhead_cuda_driver_error());
    REQUIRE(ran == CUDA_SUCCESS);
    const uint32_t value = download<uint32_t>(out, 1)[0];
    cuMemFree_v2(out);
    return value;
}
float real(const std::string &statement, float a, float b = 0, float c = 0) {
    return bits_as<float>(result(statement, bits(a), bits(b), bits(c)));
}

} // namespace

TEST_CASE("whole numbers", "[cuda_driver]") {
    const Fresh fresh;
    REQUIRE(result("add.s32 %r4, %r1, %r2;", 0xffffffffu, 2) == 1);
    REQUIRE(result("sub.s32 %r4, %r1, %r2;", 1, 3) == 0xfffffffeu);
    REQUIRE(result("mul.lo.s32 %r4, %r1, %r2;", 0x10001u, 0x10001u) == 0x20001u);
    REQUIRE(result("mul.hi.u32 %r4, %r1, %r2;", 0xffffffffu, 0xffffffffu) == 0xfffffffeu);
    REQUIRE(result("mul.hi.s32 %r4, %r1, %r2;", 0xffffffffu, 5) == 0xffffffffu);
    REQUIRE(result("mad.lo.s32 %r4, %r1, %r2, %r3;", 7, 6, 0xffffffffu) == 41);
    REQUIRE(result("mul.wide.s32 %d2, %r1, %r2;\nshr.u64 %d3, %d2, 32;\ncvt.u32.u64 %r4, %d3;", 0xffffffffu, 1) == 0xffffffffu);
    REQUIRE(result("mul.wide.u32 %d2, %r1, %r2;\nshr.u64 %d3, %d2, 32;\ncvt.u32.u64 %r4, %d3;", 0xffffffffu, 2) == 1);
    REQUIRE(result("mad.wide.u32 %d2, %r1, %r2, 5;\ncvt.u32.u64 %r4, %d2;", 3, 4) == 17);
    REQUIRE(result("min.s32 %r4, %r1, %r2;", 0xffffffffu, 1) == 0xffffffffu);
    REQUIRE(result("min.u32 %r4, %r1, %r2;", 0xffffffffu, 1) == 1);
    REQUIRE(result("max.s32 %r4, %r1, %r2;", 0xffffffffu, 1) == 1);
    REQUIRE(result("div.s32 %r4, %r1, %r2;", static_cast<uint32_t>(-7), 2) == static_cast<uint32_t>(-3));
    REQUIRE(result("rem.s32 %r4, %r1, %r2;", static_cast<uint32_t>(-7), 2) == 0xffffffffu);
    REQUIRE(result("div.u32 %r4, %r1, %r2;", 7, 0) == 0xffffffffu);
    REQUIRE(result("neg.s32 %r4, %r1;", 5) == static_cast<uint32_t>(-5));
    REQUIRE(result("abs.s32 %r4, %r1;", static_cast<uint32_t>(-5)) == 5);
}

TEST_CASE("bits", "[cuda_driver]") {
    const Fresh fresh;
    REQUIRE(result("shl.b32 %r4, %r1, %r2;", 3, 4) == 48);
    REQUIRE(result("shl.b32 %r4, %r1, %r2;", 3, 32) == 0);
    REQUIRE(result("shr.s32 %r4, %r1, %r2;", 0x80000000u, 40) == 0xffffffffu);
    REQUIRE(result("shr.u32 %r4, %r1, %r2;", 0x80000000u, 31) == 1);
    REQUIRE(result("not.b32 %r4, %r1;", 5) == ~5u);
    REQUIRE(result("lop3.b32 %r4, %r1, %r2, %r3, 0xEA;", 0xff00u, 0x0ff0u, 1) == ((0xff00u & 0x0ff0u) | 1u));
    REQUIRE(result("prmt.b32 %r4, %r1, %r2, 0x5410;", 0x33221100u, 0x77665544u) == 0x55441100u);
    REQUIRE(result("prmt.b32 %r4, %r1, %r2, 0x888B;", 0x80000000u, 0) == 0x000000ffu);
    REQUIRE(result("shf.l.wrap.b32 %r4, %r1, %r2, 8;", 0xaabbccddu, 0x11223344u) == 0x223344aau);
    REQUIRE(result("shf.r.clamp.b32 %r4, %r1, %r2, 40;", 1, 0x11223344u) == 0x11223344u);
    REQUIRE(result("bfe.u32 %r4, %r1, 8, 8;", 0x11223344u) == 0x33);
    REQUIRE(result("bfe.s32 %r4, %r1, 8, 8;", 0x1122f344u) == 0xfffffff3u);
    REQUIRE(result("bfi.b32 %r4, %r1, %r2, 8, 8;", 0x5a, 0x11223344u) == 0x11225a44u);
    REQUIRE(result("popc.b32 %r4, %r1;", 0xf0f0u) == 8);
    REQUIRE(result("clz.b32 %r4, %r1;", 1) == 31);
    REQUIRE(result("clz.b32 %r4, %r1;", 0) == 32);
    REQUIRE(result("brev.b32 %r4, %r1;", 1) == 0x80000000u);
}

TEST_CASE("floats round once", "[cuda_driver]") {
    const Fresh fresh;
    const float a = 1.0f + 0x1p-12f;
    REQUIRE(real("fma.rn.f32 %r4, %r1, %r2, %r3;", a, a, -1.0f - 0x1p-11f) == 0x1p-24f);
    REQUIRE(real("mul.f32 %r4, %r1, %r2;", a, a) == 1.0f + 0x1p-11f);
    REQUIRE(real("add.rn.f32 %r4, %r1, %r2;", 1.0f, 0x1p-24f) == 1.0f);
    REQUIRE(real("div.rn.f32 %r4, %r1, %r2;", 1.0f, 3.0f) == 1.0f / 3.0f);
    REQUIRE(real("rcp.approx.ftz.f32 %r4, %r1;", 4.0f) == 0.25f);
    REQUIRE(real("sqrt.rn.f32 %r4, %r1;", 2.0f) == std::sqrt(2.0f));
    REQUIRE(real("ex2.approx.ftz.f32 %r4, %r1;", -3.0f) == 0.125f);
    REQUIRE(real("ex2.approx.ftz.f32 %r4, %r1;", -infinity) == 0.0f);
    REQUIRE(real("lg2.approx.f32 %r4, %r1;", 8.0f) == 3.0f);
    REQUIRE(real("neg.f32 %r4, %r1;", 2.0f) == -2.0f);
    REQUIRE(real("copysign.f32 %r4, %r1, %r2;", -1.0f, 5.0f) == -5.0f);
    REQUIRE(real("fma.rn.f32 %r4, %r1, %r2, 0f3F800000;", 2.0f, 3.0f) == 7.0f);
    REQUIRE(real("add.sat.f32 %r4, %r1, %r2;", 2.0f, 3.0f) == 1.0f);
    REQUIRE(real("add.sat.f32 %r4, %r1, %r2;", infinity, -infinity) == 0.0f);
}

TEST_CASE("subnormal numbers are flushed where the opcode says so and only there", "[cuda_driver]") {
    const Fresh fresh;
    const float tiny = 0x1p-130f;
    REQUIRE(real("mul.f32 %r4, %r1, %r2;", tiny, 0x1p10f) == 0x1p-120f);
    REQUIRE(real("mul.ftz.f32 %r4, %r1, %r2;", tiny, 0x1p10f) == 0.0f);
    REQUIRE(result("mul.ftz.f32 %r4, %r1, %r2;", bits(-0x1p-100f), bits(0x1p-40f)) == 0x80000000u);
    REQUIRE(real("ex2.approx.f32 %r4, %r1;", -130.0f) == tiny);
    REQUIRE(real("ex2.approx.ftz.f32 %r4, %r1;", -130.0f) == 0.0f);
}

TEST_CASE("minimum, maximum and comparisons of NaN", "[cuda_driver]") {
    const Fresh fresh;
    REQUIRE(result("max.f32 %r4, %r1, %r2;", nan_bits, bits(2.0f)) == bits(2.0f));
    REQUIRE(result("min.f32 %r4, %r1, %r2;", bits(2.0f), nan_bits) == bits(2.0f));
    REQUIRE(std::isnan(bits_as<float>(result("max.NaN.f32 %r4, %r1, %r2;", nan_bits, bits(2.0f)))));
    REQUIRE(result("min.f32 %r4, %r1, %r2;", bits(0.0f), bits(-0.0f)) == bits(-0.0f));
    REQUIRE(result("max.f32 %r4, %r1, %r2;", bits(-0.0f), bits(0.0f)) == bits(0.0f));
    const auto holds = [](const char *comparison, uint32_t a, uint32_t b) {
        return result(std::string("setp.") + comparison + " %p1, %r1, %r2;\nselp.b32 %r4, 1, 0, %p1;", a, b) == 1;
    };
    const uint32_t one = bits(1.0f), two = bits(2.0f);
    for (const char *ordered : {"eq.f32", "ne.f32", "lt.f32", "le.f32", "gt.f32", "ge.f32", "num.f32"}) {
        REQUIRE_FALSE(holds(ordered, nan_bits, one));
    }
    for (const char *unordered : {"equ.f32", "neu.f32", "ltu.f32", "leu.f32", "gtu.f32", "geu.f32", "nan.f32"}) {
        REQUIRE(holds(unordered, one, nan_bits));
    }
    REQUIRE((holds("lt.f32", one, two) && holds("ltu.f32", one, two) && holds("neu.f32", one, two) && holds("num.f32", one, two)));
    REQUIRE_FALSE((holds("gt.f32", one, two) || holds("geu.f32", one, two) || holds("equ.f32", one, two) || holds("nan.f32", one, two)));
    REQUIRE((holds("lt.s32", 0xffffffffu, 1) && holds("hi.u32", 0xffffffffu, 1) && holds("ne.b32", 1, 2) && holds("ge.u32", 2, 2)));
    REQUIRE_FALSE(holds("lt.u32", 0xffffffffu, 1));
}

TEST_CASE("conversions", "[cuda_driver]") {
    const Fresh fresh;
    REQUIRE(result("cvt.rzi.s32.f32 %r4, %r1;", bits(-2.75f)) == static_cast<uint32_t>(-2));
    REQUIRE(result("cvt.rni.s32.f32 %r4, %r1;", bits(2.5f)) == 2);
    REQUIRE(result("cvt.rmi.s32.f32 %r4, %r1;", bits(-2.25f)) == static_cast<uint32_t>(-3));
    REQUIRE(result("cvt.rpi.s32.f32 %r4, %r1;", bits(2.25f)) == 3);
    REQUIRE(result("cvt.rzi.s32.f32 %r4, %r1;", bits(1e20f)) == 0x7fffffffu);
    REQUIRE(result("cvt.rzi.s32.f32 %r4, %r1;", bits(-infinity)) == 0x80000000u);
    REQUIRE(result("cvt.rzi.s32.f32 %r4, %r1;", nan_bits) == 0);
    REQUIRE(result("cvt.rzi.u32.f32 %r4, %r1;", bits(-1.0f)) == 0);
    REQUIRE(real("cvt.rmi.ftz.f32.f32 %r4, %r1;", -1.5f) == -2.0f);
    REQUIRE(real("cvt.rni.f32.f32 %r4, %r1;", 3.5f) == 4.0f);
    REQUIRE(real("cvt.sat.f32.f32 %r4, %r1;", 3.5f) == 1.0f);
    REQUIRE(result("cvt.rn.f32.s32 %r4, %r1;", 0xffffffffu) == bits(-1.0f));
    REQUIRE(result("cvt.rn.f32.u32 %r4, %r1;", 0xffffffffu) == bits(4294967296.0f));
    REQUIRE(result("cvt.sat.u8.s32 %r4, %r1;", 300) == 255);
    REQUIRE(result("cvt.s32.s8 %r4, %r1;", 0x80) == 0xffffff80u);
    REQUIRE(result("cvt.u16.u32 %h1, %r1;\ncvt.u32.u16 %r4, %h1;", 0x12345678u) == 0x5678u);
    REQUIRE(result("cvt.s64.s32 %d2, %r1;\nshr.u64 %d2, %d2, 32;\ncvt.u32.u64 %r4, %d2;", 0x80000000u) == 0xffffffffu);
    REQUIRE(result("cvt.f64.f32 %d2, %r1;\nadd.f64 %d2, %d2, 0d3FF0000000000000;\ncvt.rn.f32.f64 %r4, %d2;", bits(1.5f)) == bits(2.5f));
}

TEST_CASE("halves", "[cuda_driver]") {
    const Fresh fresh;
    const auto half = [](float x) { return result("cvt.rn.f16.f32 %h1, %r1;\ncvt.u32.u16 %r4, %h1;", bits(x)); };
    REQUIRE(half(1.0f) == 0x3c00);
    REQUIRE(half(-2.0f) == 0xc000);
    REQUIRE(half(65504.0f) == 0x7bff);
    REQUIRE(half(65520.0f) == 0x7c00);
    REQUIRE(half(1.0f + 0x1p-11f) == 0x3c00); // a tie goes to even
    REQUIRE(half(1.0f + 0x3p-11f) == 0x3c02);
    REQUIRE(half(0x1p-24f) == 1);
    REQUIRE(half(0x1p-25f) == 0);
    REQUIRE(half(2047.5f) == 0x6800); // the carry moves into the exponent
    REQUIRE(result("cvt.rn.bf16.f32 %h1, %r1;\ncvt.u32.u16 %r4, %h1;", bits(1.0f + 0x1p-8f)) == 0x3f80);
    REQUIRE(result("cvt.rn.f16x2.f32 %r4, %r1, %r2;", bits(1.0f), bits(2.0f)) == 0x3c004000u);
    REQUIRE(result("fma.rn.f16x2 %r4, %r1, %r2, %r3;", 0x3c004000u, 0x40004000u, 0x3c003c00u) == 0x42004500u);
    REQUIRE(result("add.f16x2 %r4, %r1, %r2;", 0x7bff0001u, 0x7bff0001u) == 0x7c000002u);
    REQUIRE(result("max.f16x2 %r4, %r1, %r2;", 0x7e00bc00u, 0x3c008000u) == 0x3c008000u);
    for (uint32_t value : {0u, 1u, 0x3ffu, 0x400u, 0x3c00u, 0x7bffu, 0x7c00u, 0x7e00u, 0x8000u, 0x8001u, 0xc000u, 0xfc00u}) {
        const uint32_t wide = result("cvt.u16.u32 %h1, %r1;\ncvt.f32.f16 %r4, %h1;", value);
        REQUIRE(wide == bits(polyhead::cuda_driver::half_to_float(static_cast<uint16_t>(value))));
    }
    for (uint32_t value = 0; value < 0x10000; value += 37) { // there and back
        const uint16_t h = static_cast<uint16_t>(value);
        const float x = polyhead::cuda_driver::half_to_float(h);
        REQUIRE((std::isnan(x) || polyhead::cuda_driver::float_to_half(x) == h));
    }
    // One rounding: the product alone would round to a tie.
    REQUIRE(polyhead::cuda_driver::half_fma(0x3c01, 0x3c01, 0x0001) ==
            polyhead::cuda_driver::double_to_half((1 + 0x1p-10) * (1 + 0x1p-10) + 0x1p-24));
}

// The products that machines have an instruction for: one row each. How a row becomes an Expr stands in generators/products.cpp.
#ifndef POLYHEAD_MACHINES_PRODUCTS_H
#define POLYHEAD_MACHINES_PRODUCTS_H

#include <cstdint>
#include <string>

#include <polyhead/c_api.h>

namespace polyhead::gen {

// What is multiplied and summed.
enum class Number : uint8_t { f32, bf16, f16, tf32, u8, s8, s16, s32 };

// Who holds the operands and the sums of one instruction: a lane of a vector, a warp of a GPU, four of its warps, or a core with registers
// for tiles.
enum class Holder : uint8_t { lane, warp, group, core };

// How code asks for it.
enum class Form : uint8_t {
    pattern, // an Expr in which compilers see the instruction
    named,   // a function of Halide's runtime, `function`, of which a vector becomes the instruction
    helpers, // functions of libpolyhead whose names begin with `function`: they multiply whole operands
    written, // a call, `function`, in whose place a pass over the code of a device writes the instruction (device_calls.h)
};

struct Product {
    const char *name; // of the instruction
    int32_t dtype;    // polyhead_dtype: elements of this type are multiplied as they are stored
    Number a, b, sum; // `a` is the stored operand
    int m, n, k;      // of one instruction and holder
    Holder held_by;
    Form form;
    const char *function;
    uint64_t cpu_features; // of targets whose code may have it
    uint64_t required;     // CPU features beyond those of a target: a variant with the product requires them
    int capability = 0;    // CUDA compute capability x 10 of targets whose code may have it; 0: of a CPU
    bool exact = false;    // no device of another capability has it

    constexpr bool sums_floats() const { return sum == Number::f32; }
    // The helper function for an operation: "polyhead_amx_scores".
    std::string helper(const char *operation) const { return function + std::string(operation); }
    // A float is the sum of so many numbers that the instruction takes: a product of two floats is three instructions, and what the lower
    // parts give with each other is left out.
    constexpr int parts() const { return a == Number::tf32 ? 2 : 1; }
    // Lanes that hold it together, and their 32-bit registers that hold elements as they are stored, operands in parts, and sums.
    constexpr int holders() const { return held_by == Holder::group ? 128 : 32; }
    constexpr int element_bytes() const { return a == Number::tf32 ? 4 : 2; }
    constexpr int stored_words_of_a() const { return m * k * element_bytes() / 4 / holders(); }
    constexpr int stored_words_of_b() const { return n * k * element_bytes() / 4 / holders(); }
    constexpr int words_of_a() const { return stored_words_of_a() * parts(); }
    constexpr int words_of_b() const { return stored_words_of_b() * parts(); }
    constexpr int sums_of_lane() const { return m * n / holders(); }
};

// Of the products for a type and a holder the fastest comes first. That of a group has any number of columns, 8 and its multiples: n is
// what a lane has registers for at once, and $1 in the name is how many there are.
inline constexpr Product products[] = {
    // name, dtype, a, b, sum, m, n, k, held by, form, function, CPU features of targets, required, capability, exact
    {"wgmma.mma_async.sync.aligned.m64n$1k16.f32.f16.f16", POLYHEAD_F16, Number::f16, Number::f16, Number::f32, 64, 8, 16, Holder::group,
     Form::written, "group_multiply_f16", 0, 0, 90, true},
    {"wgmma.mma_async.sync.aligned.m64n$1k16.f32.bf16.bf16", POLYHEAD_BF16, Number::bf16, Number::bf16, Number::f32, 64, 8, 16,
     Holder::group, Form::written, "group_multiply_bf16", 0, 0, 90, true},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", POLYHEAD_F16, Number::f16, Number::f16, Number::f32, 16, 8, 16, Holder::warp,
     Form::written, "multiply_f16", 0, 0, 80},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", POLYHEAD_BF16, Number::bf16, Number::bf16, Number::f32, 16, 8, 16, Holder::warp,
     Form::written, "multiply_bf16", 0, 0, 80},
    {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", POLYHEAD_F32, Number::tf32, Number::tf32, Number::f32, 16, 8, 8, Holder::warp,
     Form::written, "multiply_tf32x3", 0, 0, 80},
    {"vdpbf16ps", POLYHEAD_BF16, Number::bf16, Number::bf16, Number::f32, 1, 1, 2, Holder::lane, Form::named, "dpbf16ps",
     POLYHEAD_CPU_AVX512_BF16_VNNI, 0},
    {"tdpbf16ps", POLYHEAD_BF16, Number::bf16, Number::bf16, Number::f32, 16, 16, 32, Holder::core, Form::helpers, "polyhead_amx_",
     POLYHEAD_CPU_AVX512_BF16_VNNI, POLYHEAD_CPU_AMX},
    {"vpdpbusd", POLYHEAD_I8, Number::u8, Number::s8, Number::s32, 1, 1, 4, Holder::lane, Form::named, "dpbusd",
     POLYHEAD_CPU_AVX512_BF16_VNNI, 0},
    {"vpmaddwd", POLYHEAD_I8, Number::s16, Number::s16, Number::s32, 1, 1, 2, Holder::lane, Form::pattern, nullptr, POLYHEAD_CPU_SSE41, 0},
};

// The fastest product of stored elements that a target with these CPU features has, or null: elements become floats.
constexpr const Product *product_of(int32_t dtype, Holder held_by, uint64_t cpu_features) {
    for (const Product &product : products) {
        if (product.dtype == dtype && product.held_by == held_by && (product.cpu_features & ~cpu_features) == 0) {
            return &product;
        }
    }
    return nullptr;
}

// The same, of the warps of a device of this capability; 0: it has none. in_parts: of elements in parts, too.
constexpr const Product *warp_product_of(int32_t dtype, int capability, bool in_parts = false) {
    for (const Product &product : products) {
        if (product.dtype == dtype && product.held_by == Holder::warp && product.capability <= capability &&
            (product.parts() == 1 || in_parts)) {
            return &product;
        }
    }
    return nullptr;
}

// The same, of four warps of a device of this capability, in code that no other runs.
constexpr const Product *group_product_of(int32_t dtype, int capability) {
    for (const Product &product : products) {
        if (product.dtype == dtype && product.held_by == Holder::group && product.capability == capability) {
            return &product;
        }
    }
    return nullptr;
}

} // namespace polyhead::gen
#endif

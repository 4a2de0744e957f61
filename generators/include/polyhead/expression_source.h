// For a C++ file of Halide Exprs as a user expression (EXPRESSION_SOURCE of polyhead_add_kernel): the only header that such a file needs.
//
//     #include <polyhead/expression_source.h>
//
//     const char *declarations() { return "tensor bias: f32[h, 129]"; }
//
//     Halide::Expr score(const polyhead::Scope &s) {
//         return s.score + s.element("bias", {s.h, Halide::clamp(s.kv - s.p, -64, 64) + 64});
//     }
//
// The file defines score(), mask() or both, and declarations() when it reads tensors. One file makes one expression.
#ifndef POLYHEAD_EXPRESSION_SOURCE_H
#define POLYHEAD_EXPRESSION_SOURCE_H

#include <functional>
#include <string>
#include <vector>

#include <Halide.h>

#define POLYHEAD_EXPRESSION_SOURCE_VERSION (1000000 * HALIDE_VERSION_MAJOR + 1000 * HALIDE_VERSION_MINOR + 2)

namespace polyhead {

// What an expression may mention; docs/guides/expressions.md says what the names mean.
struct Scope {
    Halide::Expr score;                                            // f32
    Halide::Expr b, h, q, kv, p, seq_len_q, seq_len_kv, kv_length; // int32
    // An element of a declared tensor, outermost index first: f32, int32 or bool.
    std::function<Halide::Expr(const std::string &tensor, const std::vector<Halide::Expr> &index)> element;
    std::function<Halide::Expr(Halide::Expr)> exp, tanh; // of f32, as the kernel computes them
    // Of five int32: f32 in [0, 1), the same on every machine.
    std::function<Halide::Expr(Halide::Expr seed, Halide::Expr b, Halide::Expr h, Halide::Expr q, Halide::Expr kv)> uniform;
};

// What the generator finds in the file.
struct ExpressionSource {
    int version;
    const char *(*declarations)();
    Halide::Expr (*score)(const Scope &);
    Halide::Expr (*mask)(const Scope &);
};

} // namespace polyhead

#ifndef POLYHEAD_EXPRESSION_SOURCE_READER
// Defined by the file, or not: weak, so that those left out are null.
__attribute__((weak)) const char *declarations();                       // statements of the language that declare tensors
__attribute__((weak)) Halide::Expr score(const polyhead::Scope &scope); // f32
__attribute__((weak)) Halide::Expr mask(const polyhead::Scope &scope);  // bool: true takes part

extern "C" __attribute__((visibility("default"))) void polyhead_expression_source(polyhead::ExpressionSource *source) {
    *source = {POLYHEAD_EXPRESSION_SOURCE_VERSION, declarations, score, mask};
}
#endif
#endif

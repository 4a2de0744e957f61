// User expressions: a small text language that changes the score of a query and a key, or says whether they take part.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <Halide.h>

namespace polyhead::gen {

namespace language {
struct Program; // what the text says, checked
}

// A tensor that an expression declares; extents as in polyhead_declaration.
struct ExpressionTensor {
    std::string name;
    int dtype;
    int rank;
    int extents[4];
};

// What an expression may mention. All Exprs are scalar in Halide's sense; frames vectorise them.
struct ExpressionScope {
    Halide::Expr score;                            // f32, natural units, after scale and softcap
    Halide::Expr b, h, q, kv, position;            // int32; position is p of the query
    Halide::Expr seq_len_q, seq_len_kv, kv_length; // int32
    // An element of a declared tensor, outermost index first: f32, int32 or bool.
    std::function<Halide::Expr(size_t tensor, const std::vector<Halide::Expr> &index)> element;
    std::function<Halide::Expr(Halide::Expr)> exp, tanh; // of f32, as the machine computes them
};

// A parsed and checked text; copies share it.
class Expression {
public:
    // Parses the text; returns "" or "ORIGIN:LINE:COLUMN: sentence". origin is the user's file, or "expression".
    static std::string parse(const std::string &text, const std::string &origin, Expression *expression);

    const std::vector<ExpressionTensor> &tensors() const;
    bool changes_score() const;
    bool masks() const;
    uint32_t facts() const;                                 // bits POLYHEAD_EXPRESSION_
    Halide::Expr score(const ExpressionScope &scope) const; // f32; scope.score where the text has no score
    Halide::Expr mask(const ExpressionScope &scope) const;  // bool: takes part; true where the text has no mask

    // Block skipping. Keys from keys_begin up to but not including keys_end can take part in row (b, q); neither falls with q,
    // either may lie outside of 0 .. seq_len_kv. Undefined Expr: no such bound can be derived. Derived from conjuncts of the mask that
    // compare kv with a term a*q + c, where a >= 0 and c mentions neither q nor kv nor h nor score (numbers, b, lengths, tensors indexed by
    // b); docs/guides/expressions.md has the list. score, h and kv of the scope are not read.
    Halide::Expr keys_end(const ExpressionScope &scope) const;
    Halide::Expr keys_begin(const ExpressionScope &scope) const;

private:
    std::shared_ptr<const language::Program> program_;
};

} // namespace polyhead::gen

// User expressions: a small text language that changes the score of a query and a key, or says whether they take part.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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
    bool gradient = false; // the text asks for it: `grad NAME`

    std::string gradient_name() const { return "grad_" + name; }
};

// A parsed and checked text; copies share it. generators/expressions/ has its values and the bounds that follow from it.
class Expression {
public:
    // Parses the text; returns "" or "ORIGIN:LINE:COLUMN: sentence". origin is the user's file, or "expression".
    static std::string parse(const std::string &text, const std::string &origin, Expression *expression);

    const std::vector<ExpressionTensor> &tensors() const;
    bool changes_score() const;
    bool masks() const;
    bool has_slope() const; // the score is a text, and no function of C++, which has no derivative
    uint32_t facts() const; // bits POLYHEAD_EXPRESSION_
    const language::Program *program() const { return program_.get(); } // null: there is no text

private:
    std::shared_ptr<const language::Program> program_;
};

} // namespace polyhead::gen

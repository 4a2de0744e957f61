// User expressions: statements, each on a line or behind a `;`.
#include "program.h"

#include <algorithm>
#include <charconv>

#include <polyhead/c_api.h>

#include "../../contract/expression_text.h"
#include "parser.h"
#include "sources.h"

namespace polyhead::gen::language {
namespace {

constexpr size_t most_tensors = 8, most_name = 40;
// C compilers need not take longer strings, and headers carry the text.
constexpr size_t most_characters = 4000;

class ProgramParser {
public:
    ProgramParser(const std::string &text, Program *program, Complaint *complaint)
        : parser_(tokens_of(text, complaint), complaint), program_(program) {}

    void read() {
        while (!parser_.failed() && parser_.peek().kind != Token::end) {
            if (parser_.peek().kind == Token::separator) {
                parser_.take();
                continue;
            }
            statement();
            if (parser_.peek().kind != Token::separator && parser_.peek().kind != Token::end) {
                parser_.fail_expecting("an operator or the end of the statement");
            }
        }
        if (!program_->score && !program_->mask) {
            parser_.fail(parser_.peek().place, "the text ends without score = ... or mask = ...");
        }
        program_->tensors = parser_.tensors;
    }

private:
    ExpressionParser parser_;
    Program *program_;

    void statement() {
        if (parser_.is("tensor")) {
            parser_.take();
            tensor();
        } else if (parser_.is("let")) {
            parser_.take();
            const Token name = parser_.take_new_name();
            const NodePtr value = assigned();
            parser_.lets[name.text] = value;
        } else if (parser_.is("score")) {
            result("score", &program_->score);
        } else if (parser_.is("mask")) {
            result("mask", &program_->mask);
        } else if (parser_.is("source")) {
            source();
        } else if (parser_.is("grad")) {
            parser_.take();
            gradient();
        } else {
            parser_.fail_expecting("tensor, let, score, mask or grad");
        }
    }

    // A C++ file that gives score, mask or both, and reads the tensors declared before.
    void source() {
        parser_.take();
        if (parser_.peek().kind != Token::word) {
            parser_.fail_expecting("the name of a source");
            return;
        }
        const Token name = parser_.take();
        program_->tensors = parser_.tensors;
        const Program before = *program_;
        if (!add_source(name.text, program_)) {
            parser_.fail(name.place, "source '" + name.text + "' is C++ that was not given, expected --expression-source and " +
                                         "--expression-library (EXPRESSION_SOURCE in CMake)");
        } else if ((before.score && before.score != program_->score) || (before.mask && before.mask != program_->mask)) {
            parser_.fail(name.place, "the source defines score or mask again, expected each of them once");
        }
    }

    // Of a tensor that is declared before. A kernel that computes no gradients takes no notice of it, so that one text serves both.
    void gradient() {
        const Token name = parser_.take();
        const auto found = std::find_if(parser_.tensors.begin(), parser_.tensors.end(),
                                        [&](const ExpressionTensor &tensor) { return tensor.name == name.text; });
        if (found == parser_.tensors.end()) {
            parser_.fail(name.place, "grad: found '" + name.text + "', expected a tensor that is declared above");
        } else if (found->dtype != POLYHEAD_F32) {
            parser_.fail(name.place, "grad: '" + name.text + "' holds no numbers of f32, which alone have a gradient");
        } else {
            found->gradient = true;
        }
    }

    NodePtr assigned() { return parser_.expect("=") ? parser_.expression() : nullptr; }

    void result(const std::string &name, NodePtr *value) {
        const Token word = parser_.take();
        if (*value) {
            parser_.fail(word.place, name + " is given twice, expected it once");
        }
        const NodePtr found = parser_.failed() ? nullptr : assigned();
        if (!found) {
            return;
        }
        if (name == "mask" && found->type != Type::boolean) {
            parser_.fail(word.place, std::string("mask is ") + type_name(found->type) + ", expected bool");
        } else if (name == "score" && found->type == Type::boolean) {
            parser_.fail(word.place, "score is bool, expected a number");
        }
        *value = name == "score" ? Typing().converted_to_real(found) : found;
    }

    void tensor() {
        const Token name = parser_.take_new_name();
        ExpressionTensor tensor{name.text, 0, 0, {}};
        if (!parser_.failed() && parser_.tensors.size() == most_tensors) {
            parser_.fail(name.place, "'" + name.text + "' is one tensor too many, expected at most " + std::to_string(most_tensors));
        }
        if (!parser_.failed() && name.text.size() > most_name) {
            parser_.fail(name.place, "the name of a tensor has " + std::to_string(name.text.size()) + " characters, expected at most " +
                                         std::to_string(most_name));
        }
        if (!parser_.failed() && parser_.expect(":") && dtype(&tensor) && parser_.is("[")) {
            do {
                parser_.take();
                dimension(&tensor);
            } while (!parser_.failed() && parser_.is(","));
            parser_.expect("]");
        }
        parser_.tensors.push_back(tensor);
    }

    bool dtype(ExpressionTensor *tensor) {
        for (const auto &[name, value] : {std::pair{"f32", POLYHEAD_F32}, {"i32", POLYHEAD_I32}, {"bool", POLYHEAD_BOOL}}) {
            if (parser_.is(name)) {
                parser_.take();
                tensor->dtype = value;
                return true;
            }
        }
        parser_.fail_expecting("f32, i32 or bool");
        return false;
    }

    void dimension(ExpressionTensor *tensor) {
        static const std::pair<const char *, int> names[] = {{"*", POLYHEAD_EXTENT_FREE},
                                                             {"b", POLYHEAD_EXTENT_B},
                                                             {"h", POLYHEAD_EXTENT_H},
                                                             {"q", POLYHEAD_EXTENT_Q},
                                                             {"kv", POLYHEAD_EXTENT_KV}};
        if (tensor->rank == 4) {
            parser_.fail(parser_.peek().place, "'" + tensor->name + "' has more than 4 dimensions");
            return;
        }
        int &extent = tensor->extents[tensor->rank++];
        for (const auto &[name, value] : names) {
            if (parser_.is(name)) {
                parser_.take();
                extent = value;
                return;
            }
        }
        const Token token = parser_.peek();
        const char *last = token.text.data() + token.text.size();
        const auto [end, error] = std::from_chars(token.text.data(), last, extent);
        if (token.kind != Token::number || end != last || error != std::errc() || extent < 1) {
            parser_.fail_expecting("an extent: b, h, q, kv, * or a number from 1");
            return;
        }
        parser_.take();
    }
};

} // namespace

std::string read_program(const std::string &text, Program *program) {
    Complaint complaint;
    const size_t length = contract::one_line(text.c_str()).size();
    if (length > most_characters) {
        complaint.sentence = "the text has " + std::to_string(length) + " characters without comments and blanks, expected at most " +
                             std::to_string(most_characters);
    } else {
        ProgramParser(text, program, &complaint).read();
    }
    const Place &place = complaint.place;
    return complaint.sentence.empty() ? "" : std::to_string(place.line) + ":" + std::to_string(place.column) + ": " + complaint.sentence;
}

} // namespace polyhead::gen::language

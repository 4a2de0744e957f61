// User expressions: what is refused, where, and in which words.
#include "contract/expression_text.h"
#include "support/catch.h"
#include "support/expression_probe.h"

using namespace polyhead;

namespace {

struct Refused {
    std::string text;
    const char *sentence; // how it begins, with line and column
};

// let aN = (aN-1 % h) / h + q, for N from 1.
std::string lets_of_remainders(int count) {
    std::string text;
    for (int i = 1; i <= count; i++) {
        text += "let a" + std::to_string(i) + " = (a" + std::to_string(i - 1) + " % h) / h + q\n";
    }
    return text;
}

std::string repeated(const std::string &text, int times) {
    std::string result;
    for (int i = 0; i < times; i++) {
        result += text;
    }
    return result;
}

const Refused refused[] = {
    {"", "1:1: the text ends without score = ... or mask = ..."},
    {" # nothing\n", "2:1: the text ends without score = ... or mask = ..."},
    {"tensor t: f32[b]\nlet x = t[b]", "2:13: the text ends without"},
    {"score", "1:6: found the end of the text, expected '='"},
    {"score =", "1:8: found the end of the text, expected a number, a name or '('"},
    {"score =\nmask = true", "1:8: found the end of the line, expected a number"},
    {"score = 1 2", "1:11: found '2', expected an operator or the end of the statement"},
    {"score = 1 mask = true", "1:11: found 'mask', expected an operator"},
    {"bias = 3", "1:1: found 'bias', expected tensor, let, score, mask or grad"},
    {"source far_1234", "1:8: source 'far_1234' is C++ that was not given, expected --expression-source and --expression-library"},
    {"source", "1:7: found the end of the text, expected the name of a source"},
    {"tensor source: f32", "1:8: 'source' is a reserved word"},
    {"grad t; tensor t: f32; score = t", "1:6: grad: found 't', expected a tensor that is declared above"},
    {"tensor t: i32; score = t; grad t", "1:32: grad: 't' holds no numbers of f32, which alone have a gradient"},
    {"score = 1; grad", "1:16: grad: found 'the end of the text', expected a tensor that is declared above"},
    {"3 = score", "1:1: found '3', expected tensor, let, score, mask or grad"},
    {"score = 1; score = 2", "1:12: score is given twice, expected it once"},
    {"mask = true\nmask = false", "2:1: mask is given twice, expected it once"},
    // Names
    {"score = scale * score", "1:9: unknown name 'scale'; known are score, b, h, q, kv, p, seq_len_q, seq_len_kv, kv_length, functions"},
    {"score = select(kv > p, -inf, score)", "1:25: unknown name 'inf'; mask = ... says which keys take part"},
    {"mask = x\nlet x = true", "1:8: unknown name 'x'"},
    {"let x = x + 1\nscore = x", "1:9: unknown name 'x'"},
    {"let q = 1", "1:5: 'q' is a reserved word, expected another name"},
    {"let mask = true", "1:5: 'mask' is a reserved word"},
    {"tensor exp: f32[b]", "1:8: 'exp' is a reserved word"},
    {"let a = 1\nlet a = 2", "2:5: 'a' is declared already, expected a new name"},
    {"let a = 1\ntensor a: f32", "2:8: 'a' is declared already"},
    {"let = 3", "1:5: found '=', expected a name"},
    {"score = let", "1:9: found 'let', expected a number, a name or '('"},
    {"score = 1 + not 2", "1:13: found 'not', expected a number"},
    // Characters and numbers
    {"score = score ^ 2", "1:15: found '^', which the language does not have"},
    {"mask = q < 2 && kv < 3", "1:14: found '&', which the language does not have; it is written `and`"},
    {"mask = q < 2 | kv < 3", "1:14: found '|', which the language does not have; it is written `or`"},
    {"mask = !true", "1:8: found '!', which the language does not have; it is written `not`"},
    {"score = \"s\"", "1:9: found '\"'"},
    {"score = 2\xc3\x97"
     "3",
     "1:10: found '\xc3\x97', which"},
    {"# \xc3\xa9\xc3\xa9\nlet \xc3\xa9 = 1", "2:5: found '\xc3\xa9', which"},
    {"score = 1\x01", "1:10: found control character 1, which"},
    {"score = 1.2.3", "1:9: '1.2.3' is not a number"},
    {"score = 12abc", "1:9: '12abc' is not a number"},
    {"score = 0x10", "1:9: '0x10' is not a number"},
    {"score = 2.5f", "1:9: '2.5f' is not a number"},
    {"score = 1e", "1:9: '1e' is not a number"},
    {"score = 2147483648", "1:9: 2147483648 is beyond 32 bits, expected at most 2147483647, or 2147483648.0 for a float"},
    {"score = 1e39", "1:9: 1e39 is beyond the range of f32"},
    // Types
    {"mask = score", "1:1: mask is float, expected bool"},
    {"mask = q", "1:1: mask is int, expected bool"},
    {"score = kv < q", "1:1: score is bool, expected a number"},
    {"score = score + (kv < q)", "1:15: '+' takes numbers, found bool"},
    {"mask = 0 < kv < q", "1:15: '<' takes numbers, found bool"},
    {"mask = (kv < q) == true", "1:17: '==' takes numbers, found bool"},
    {"mask = kv and true", "1:11: 'and' joins bools, found int"},
    {"mask = true or score", "1:13: 'or' joins bools, found float"},
    {"mask = not kv", "1:8: 'not' takes a bool, found int"},
    {"score = -true", "1:9: '-' takes a number, found bool"},
    {"mask = q = kv", "1:10: found '=', expected '==' to compare"},
    {"score = select(q, 1, 2)", "1:16: select: argument 1 is int, expected bool"},
    {"score = select(q < 1, true, 2)", "1:9: select: chooses between bool and int, expected two numbers or two bools"},
    {"score = max(1, true)", "1:16: max: argument 2 is bool, expected a number"},
    {"score = exp(true)", "1:13: exp: argument 1 is bool, expected a number"},
    // Calls and brackets
    {"score = uniform(1, 2, 3, 4)", "1:9: uniform: found 4 arguments, expected 5"},
    {"score = uniform(1, b, h, q, score)", "1:29: uniform: argument 5 is float, expected int; floor() makes one"},
    {"mask = uniform(1, b, h, q, kv < 1)", "1:28: uniform: argument 5 is bool, expected a number"},
    {"score = uniform", "1:16: found the end of the text, expected '(' after uniform"},
    {"score = exp(1, 2)", "1:9: exp: found 2 arguments, expected 1"},
    {"score = min(1)", "1:9: min: found 1 arguments, expected 2 or more"},
    {"score = clamp(1, 2)", "1:9: clamp: found 2 arguments, expected 3"},
    {"score = exp()", "1:9: exp: found 0 arguments, expected 1"},
    {"score = exp(1,)", "1:15: found ')', expected a number"},
    {"score = exp 3", "1:13: found '3', expected '(' after exp"},
    {"score = (1 + 2", "1:15: found the end of the text, expected ')'"},
    {"score = (1 + 2\nmask = true", "2:1: found 'mask', expected ')'"},
    {"score = (1; 2)", "1:11: found ';', expected ')'"},
    {"score = 1)", "1:10: found ')', expected an operator or the end of the statement"},
    {"score = min(1 2)", "1:15: found '2', expected ',' or ')'"},
    // Tensors
    {"tensor t f32[b]", "1:10: found 'f32', expected ':'"},
    {"tensor t: f64[b]", "1:11: found 'f64', expected f32, i32 or bool"},
    {"tensor t: f32[b", "1:16: found the end of the text, expected ']'"},
    {"tensor t: f32[]", "1:15: found ']', expected an extent: b, h, q, kv, * or a number from 1"},
    {"tensor t: f32[0]", "1:15: found '0', expected an extent"},
    {"tensor t: f32[b, 2.5]", "1:18: found '2.5', expected an extent"},
    {"tensor t: f32[p]", "1:15: found 'p', expected an extent"},
    {"tensor t: f32[b, h, q, kv, 1]", "1:28: 't' has more than 4 dimensions"},
    {"tensor t: f32[b]\nscore = t", "2:9: 't': found 0 indices, expected 1"},
    {"tensor t: f32[b]\nscore = t[b, h]", "2:9: 't': found 2 indices, expected 1"},
    {"tensor t: f32\nscore = t[0]", "2:9: 't': found 1 indices, expected 0"},
    {"tensor t: f32[b, 9]\nscore = t[b, score]", "2:14: 't': index 2 is float, expected int; floor() makes one"},
    {"tensor t: f32[b]\nscore = t[q < 1]", "2:11: 't': index 1 is bool, expected int"},
    {"tensor t: bool[b]\nscore = t[b] + 1", "2:14: '+' takes numbers, found bool"},
    {"tensor a: f32; tensor b1: f32; tensor c: f32; tensor d: f32; tensor e: f32; tensor f: f32; tensor g: f32; tensor i: f32\n"
     "tensor j: f32",
     "2:8: 'j' is one tensor too many, expected at most 8"},
    {"tensor " + repeated("a", 41) + ": f32", "1:8: the name of a tensor has 41 characters, expected at most 40"},
    // Sizes
    {"score = " + repeated("(", 201) + "1" + repeated(")", 201), "1:210: brackets and signs are nested more than 200 deep"},
    {"score = " + repeated("-", 201) + "1", "1:210: brackets and signs are nested more than 200 deep"},
    {"mask = " + repeated("not ", 201) + "true", "1:812: brackets and signs are nested more than 200 deep"},
    // An integer divisor that may be negative is looked at several times, so these 13 lines are 8^13 operations.
    {"let a0 = q\n" + lets_of_remainders(13) + "mask = kv <= a13", "5:14: more than 2000 operations, counting those of a let"},
    {"score = " + repeated("abs(", 201) + "1" + repeated(")", 201), "1:813: brackets and signs are nested more than 200 deep"},
    {"let a0 = score + score" +
         [] {
             std::string lets;
             for (int i = 1; i < 40; i++) {
                 const std::string before = "a" + std::to_string(i - 1);
                 lets += "\nlet a" + std::to_string(i) + " = " + before + " + " + before;
             }
             return lets;
         }(),
     "10:13: more than 2000 operations, counting those of a let wherever it is used"},
    {"score = 1" + repeated("+1", 2000), "1:1: the text has 4007 characters without comments and blanks, expected at most 4000"},
};

} // namespace

TEST_CASE("expressions: wrong texts are refused in one sentence that says where") {
    for (const Refused &c : refused) {
        INFO(c.text);
        gen::Expression expression;
        const std::string said = gen::Expression::parse(c.text, "dir/user file.txt", &expression),
                          expected = "dir/user file.txt:" + std::string(c.sentence);
        CHECK(said.substr(0, expected.size()) == expected);
        CHECK(said.find('\n') == std::string::npos);
        CHECK(!expression.masks());
        CHECK(!expression.changes_score());
    }
}

TEST_CASE("expressions: as much as is allowed is taken") {
    for (const std::string &text : std::initializer_list<std::string>{
             "score = " + repeated("(", 190) + "1" + repeated(")", 190), "score = 1" + repeated("+1", 990), "score = 2147483647",
             "score = 3.4e38", "score = 1 # " + repeated("a comment is no text ", 1000),
             "tensor " + repeated("a", 40) + ": f32[b, h, q, kv]; score = 1"}) {
        gen::Expression expression;
        CHECK(gen::Expression::parse(text, "expression", &expression) == "");
    }
}

TEST_CASE("expressions: texts are compared without comments and blanks") {
    using contract::one_line;
    using contract::same_expression;
    CHECK(one_line("") == "");
    CHECK(one_line(nullptr) == "");
    CHECK(one_line("\n # only this; comment \r\n ;; ") == "");
    CHECK(one_line("tensor t : f32[ b,\n 129 ] # 129 of them\n\n score = score + t[b, q]; mask = not  x\r\n") ==
          "tensor t:f32[b,129];score=score+t[b,q];mask=not x");
    CHECK(one_line("score = min(1, # one\n 2)") == "score=min(1,2)");
    CHECK(one_line("a\nb") == "a;b");
    CHECK(one_line(")\n(a\nb)\nc") == ");(a b);c");
    CHECK(same_expression("mask = kv<q", "\n mask=kv < q # causal\n"));
    CHECK(same_expression("mask = not x", "mask=not\tx"));
    CHECK(!same_expression("mask = not x", "mask=notx"));
    CHECK(!same_expression("mask = a; score = 1", "mask = a score = 1"));
    CHECK(!same_expression("mask = a", "mask = ab"));
    CHECK(!same_expression("mask = a", nullptr));
    CHECK(same_expression("", nullptr));
}

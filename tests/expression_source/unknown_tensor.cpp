// A user expression in C++ that compiles and is refused by the generator: it declares no tensor of this name.
#include <polyhead/expression_source.h>

const char *declarations() {
    return "tensor bias: f32[h]";
}

Halide::Expr score(const polyhead::Scope &s) {
    return s.score + s.element("biaz", {s.h});
}

// A user expression in C++ that compiles and is refused by the generator: a score is no bool.
#include <polyhead/expression_source.h>

Halide::Expr score(const polyhead::Scope &s) {
    return s.score > 0.0f;
}

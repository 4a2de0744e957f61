// A user expression in C++ with a mistake: the compiler's message names this file and line 5.
#include <polyhead/expression_source.h>

Halide::Expr score(const polyhead::Scope &s) {
    return s.no_such_value * 2;
}

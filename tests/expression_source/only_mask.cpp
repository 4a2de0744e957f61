// A user expression in C++ that has a mask only, with a part in text, from which bounds are derived.
#include <polyhead/expression_source.h>

const char *declarations() {
    return "score = score * 2";
}

Halide::Expr mask(const polyhead::Scope &s) {
    return s.kv <= s.p;
}

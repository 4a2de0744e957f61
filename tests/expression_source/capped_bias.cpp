// A user expression in C++: what test.cpp writes as text too.
#include <polyhead/expression_source.h>

const char *declarations() {
    return "tensor bias: f32[h, 17]\ntensor last: i32[b]\ntensor gain: f32";
}

Halide::Expr score(const polyhead::Scope &s) {
    const Halide::Expr distance = Halide::clamp(s.kv - s.p, -8, 8) + 8;
    return s.tanh(s.score * s.element("gain", {})) +
           (s.element("bias", {s.h, distance}) + s.uniform(s.element("last", {s.b}), s.b, s.h, s.q, s.kv));
}

Halide::Expr mask(const polyhead::Scope &s) {
    return s.kv <= s.element("last", {s.b}) + s.q && s.kv < s.kv_length;
}

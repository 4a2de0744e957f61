// Query and key as they are multiplied.
#include "operands.h"

namespace polyhead::gen {

using Halide::Expr;

Expr Operands::query_factor() const {
    // softcap divides before tanh; an expression sees natural scores; all other logits are in units of log2 e.
    const Expr scale = in().number("softmax_scale");
    return problem().softcap != 0 ? scale / in().number("softcap") : in().natural_logits() ? scale : scale * log2_e;
}

Expr Operands::plain_query(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    return in().inputs.query(d, q, h, b) * query_factor();
}

Expr Operands::rotated_query(const Expr &part, const Expr &pair, const Expr &q, const Expr &h, const Expr &b) const {
    return rotation_.rotated(part, pair, rotation_.query_rows(q, b), [&](const Expr &entry) { return plain_query(entry, q, h, b); });
}

Expr Operands::rotated_plain_query(const Expr &part, const Expr &pair, const Expr &q, const Expr &h, const Expr &b) const {
    return rotation_.rotated(part, pair, rotation_.query_rows(q, b), [&](const Expr &entry) { return in().inputs.query(entry, q, h, b); });
}

Expr Operands::rotated_key(const Expr &part, const Expr &pair, const Expr &kv, const Expr &kv_head, const Expr &b) const {
    return rotation_.rotated(part, pair, rotation_.key_rows(kv, b),
                             [&](const Expr &entry) { return in().inputs.keys.key(entry, kv, kv_head, b); });
}

Expr Operands::scaled_query(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    if (!rotation_.active()) {
        return plain_query(d, q, h, b);
    }
    const auto [part, pair] = rotation_.place(d);
    const Expr value = rotated_query(part, pair, q, h, b);
    return rotation_.dim() == problem().head_dim ? value : Halide::select(rotation_.turns(d), value, plain_query(d, q, h, b));
}

Expr Operands::key(const Expr &d, const Expr &kv, const Expr &kv_head, const Expr &b) const {
    if (!rotation_.active()) {
        return in().inputs.keys.key(d, kv, kv_head, b);
    }
    const auto [part, pair] = rotation_.place(d);
    const Expr value = rotated_key(part, pair, kv, kv_head, b);
    return rotation_.dim() == problem().head_dim ? value
                                                 : Halide::select(rotation_.turns(d), value, in().inputs.keys.key(d, kv, kv_head, b));
}

} // namespace polyhead::gen

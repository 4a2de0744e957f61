// Query and key as they are multiplied: in the unit of scores, and rotated.
#pragma once

#include "rotation.h"

namespace polyhead::gen {

class Operands : public FormulaPart {
public:
    Operands(const std::shared_ptr<const FormulaContext> &context, Rotation rotation)
        : FormulaPart(context), rotation_(std::move(rotation)) {}

    // What brings the query, or a score, into the unit of scores.
    Expr query_factor() const;
    // Query in the unit of scores, and key; before rotation, and a part of a rotated pair, and any entry of either.
    Expr plain_query(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const;
    Expr rotated_query(const Expr &part, const Expr &pair, const Expr &q, const Expr &h, const Expr &b) const;
    Expr rotated_plain_query(const Expr &part, const Expr &pair, const Expr &q, const Expr &h, const Expr &b) const; // in no unit
    Expr rotated_key(const Expr &part, const Expr &pair, const Expr &kv, const Expr &kv_head, const Expr &b) const;
    Expr scaled_query(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const;
    Expr key(const Expr &d, const Expr &kv, const Expr &kv_head, const Expr &b) const;

private:
    Rotation rotation_;
};

} // namespace polyhead::gen

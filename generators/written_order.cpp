// Sums and products of floats that are rounded in the order in which they are written.
#include "written_order.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Internal::Add;
using Halide::Internal::Call;
using Halide::Internal::Div;
using Halide::Internal::Mul;
using Halide::Internal::Sub;

namespace {

bool is_sum(const Expr &e) {
    return e.type().is_float() && (e.as<Add>() || e.as<Sub>());
}

bool is_product(const Expr &e) {
    return e.type().is_float() && (e.as<Mul>() || e.as<Div>());
}

// Whether LLVM could round a sum in two ways: it may change the order of three terms, or make a multiply-add of either of two products.
bool sums_are_ambiguous(const Expr &a, const Expr &b) {
    return is_sum(a) || is_sum(b) || (is_product(a) && is_product(b));
}

bool products_are_ambiguous(const Expr &a, const Expr &b) {
    return is_product(a) || is_product(b);
}

// What LLVM must not take apart.
Expr strict(Call::IntrinsicOp operation, const Expr &a, const Expr &b) {
    return Call::make(a.type(), operation, {a, b}, Call::PureIntrinsic);
}

// Visits what is used twice once, so that it stays shared.
class WrittenOrder : public Halide::Internal::IRGraphMutator {
public:
    explicit WrittenOrder(const Expr &kept) : kept_(kept) {}
    using IRGraphMutator::mutate;
    Expr mutate(const Expr &e) override { return e.same_as(kept_) ? e : IRGraphMutator::mutate(e); }

private:
    const Expr &kept_;

    using IRGraphMutator::visit;
    Expr visit(const Add *op) override { return ordered(op, Call::strict_add, sums_are_ambiguous); }
    Expr visit(const Sub *op) override { return ordered(op, Call::strict_sub, sums_are_ambiguous); }
    Expr visit(const Mul *op) override { return ordered(op, Call::strict_mul, products_are_ambiguous); }
    Expr visit(const Div *op) override { return ordered(op, Call::strict_div, products_are_ambiguous); }

    template <class Operation>
    Expr ordered(const Operation *op, Call::IntrinsicOp operation, bool (*ambiguous)(const Expr &, const Expr &)) {
        const Expr a = mutate(op->a), b = mutate(op->b);
        return ambiguous(a, b) ? strict(operation, a, b) : Operation::make(a, b);
    }
};

} // namespace

Expr add_in_order(const Expr &a, const Expr &b) {
    return sums_are_ambiguous(a, b) ? strict(Call::strict_add, a, b) : a + b;
}

Expr rounded_sum(const Expr &a, const Expr &b) {
    return strict(Call::strict_add, a, b);
}

Expr rounded_product(const Expr &a, const Expr &b) {
    return strict(Call::strict_mul, a, b);
}

Expr in_written_order(const Expr &expr, const Expr &kept) {
    return WrittenOrder(kept).mutate(expr);
}

} // namespace polyhead::gen

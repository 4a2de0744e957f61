// User expressions: which keys a mask leaves to a row, from its comparisons of kv.
//
// A comparison is solved for kv, so `p - kv < 128` says kv >= p - 127. `and` takes the tighter of its sides, `or` the wider. What is
// left on the other side must not fall with q, so that the first and the last row of a tile bound the tile.
#include "values.h"

#include "../../plan/language/program.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace polyhead::gen::language {

using Halide::Expr;

namespace {

// How a number moves with q; unknown also when it mentions kv, h or the score.
enum class Direction { fixed, rising, falling, unknown };

Direction reversed(Direction d) {
    return d == Direction::rising ? Direction::falling : d == Direction::falling ? Direction::rising : d;
}

Direction joined(Direction a, Direction b) {
    return a == Direction::fixed || a == b ? b : b == Direction::fixed ? a : Direction::unknown;
}

bool mentions_kv(const Node &node) {
    const bool is_kv = node.op == Op::variable && static_cast<Variable>(node.index) == Variable::kv;
    return is_kv || std::any_of(node.args.begin(), node.args.end(), [](const NodePtr &arg) { return mentions_kv(*arg); });
}

Direction direction_of_variable(Variable variable) {
    switch (variable) {
    case Variable::q:
    case Variable::position:
        return Direction::rising;
    case Variable::b:
    case Variable::seq_len_q:
    case Variable::seq_len_kv:
    case Variable::kv_length:
        return Direction::fixed;
    default:
        return Direction::unknown;
    }
}

// A literal, also behind a sign; 0 for anything else.
int64_t literal(const Node &node) {
    if (node.op == Op::negate) {
        return -literal(*node.args[0]);
    }
    return node.op == Op::number && node.type == Type::integer ? node.integer : 0;
}

Direction direction_of(const Node &node) {
    if (node.op == Op::variable) {
        return direction_of_variable(static_cast<Variable>(node.index));
    }
    std::vector<Direction> args;
    for (const NodePtr &arg : node.args) {
        args.push_back(direction_of(*arg));
    }
    if (std::all_of(args.begin(), args.end(), [](Direction d) { return d == Direction::fixed; })) {
        return Direction::fixed;
    }
    if (node.type != Type::integer) { // floats are rounded
        return Direction::unknown;
    }
    switch (node.op) {
    case Op::add:
    case Op::minimum:
    case Op::maximum:
        return joined(args[0], args[1]);
    case Op::subtract:
        return joined(args[0], reversed(args[1]));
    case Op::negate:
        return reversed(args[0]);
    case Op::select:
        return args[0] == Direction::fixed ? joined(args[1], args[2]) : Direction::unknown;
    case Op::multiply:
        if (const int64_t factor = literal(*node.args[0]); factor != 0) {
            return factor > 0 ? args[1] : reversed(args[1]);
        }
        [[fallthrough]];
    case Op::divide: {
        const int64_t factor = literal(*node.args[1]);
        return factor > 0 ? args[0] : factor < 0 ? reversed(args[0]) : Direction::unknown;
    }
    default:
        return Direction::unknown;
    }
}

// No number of this node is larger than this, whatever its sign. Lengths and positions are far below 2^26, elements of tensors anything.
double magnitude_of(const Node &node) {
    double sum = 0, largest = 0, product = 1;
    for (const NodePtr &arg : node.args) {
        const double magnitude = magnitude_of(*arg);
        sum += magnitude;
        largest = std::max(largest, magnitude);
        product *= magnitude;
    }
    switch (node.op) {
    case Op::number:
        return node.integer;
    case Op::variable:
        return 1 << 26;
    case Op::add:
    case Op::subtract:
        return sum;
    case Op::multiply:
        return product;
    case Op::element:
    case Op::floor:
        return std::numeric_limits<int32_t>::max();
    default:
        return largest;
    }
}

// One side of a comparison while kv is isolated on the other. Sums that the user did not write saturate where they might overflow.
struct Term {
    Expr value;
    Direction direction = Direction::unknown;
    double magnitude = 0;
};

constexpr double far_from_overflow = 1 << 30;

Term known(int32_t value) {
    return {Expr(value), Direction::fixed, std::abs(double(value))};
}

Term sum(const Term &a, const Term &b) {
    const Direction direction = joined(a.direction, b.direction);
    if (direction == Direction::unknown) {
        return {};
    }
    const double magnitude = a.magnitude + b.magnitude;
    return {magnitude < far_from_overflow ? a.value + b.value : Halide::saturating_add(a.value, b.value), direction, magnitude};
}

Term difference(const Term &a, const Term &b) {
    const Direction direction = joined(a.direction, reversed(b.direction));
    if (direction == Direction::unknown) {
        return {};
    }
    const double magnitude = a.magnitude + b.magnitude;
    return {magnitude < far_from_overflow ? a.value - b.value : Halide::saturating_sub(a.value, b.value), direction, magnitude};
}

Term quotient(const Term &a, int32_t divisor) {
    return a.direction == Direction::unknown ? Term() : Term{a.value / divisor, a.direction, a.magnitude};
}

Term product(const Term &a, int32_t factor) {
    if (a.direction == Direction::unknown) {
        return {};
    }
    const int32_t most = std::numeric_limits<int32_t>::max() / factor;
    const Expr value = a.magnitude * factor < far_from_overflow ? a.value : Halide::clamp(a.value, -most, most);
    return {value * factor, a.direction, a.magnitude * factor};
}

struct TermBounds {
    Term first, last; // inclusive
};

Term chosen(const Term &a, const Term &b, bool larger) {
    const Direction direction = joined(a.direction, b.direction);
    return {larger ? Halide::max(a.value, b.value) : Halide::min(a.value, b.value), direction, std::max(a.magnitude, b.magnitude)};
}

// What both sides allow, or what either allows.
TermBounds combined(const TermBounds &a, const TermBounds &b, bool both) {
    const auto combine = [both](const Term &x, const Term &y, bool larger) {
        if (x.value.defined() && y.value.defined()) {
            return chosen(x, y, larger);
        }
        return !both ? Term() : x.value.defined() ? x : y;
    };
    return {combine(a.first, b.first, both), combine(a.last, b.last, !both)};
}

class Bounds {
public:
    explicit Bounds(const ExpressionScope &scope) : scope_(scope) {}

    // Of a condition, or of its contrary.
    TermBounds of(const Node &node, bool contrary) const {
        switch (node.op) {
        case Op::negation:
            return of(*node.args[0], !contrary);
        case Op::conjunction:
        case Op::disjunction:
            return combined(of(*node.args[0], contrary), of(*node.args[1], contrary), (node.op == Op::conjunction) != contrary);
        case Op::less:
        case Op::less_equal: {
            const bool strict = (node.op == Op::less) != contrary;
            return contrary ? ordered(*node.args[1], *node.args[0], strict) : ordered(*node.args[0], *node.args[1], strict);
        }
        case Op::equal:
            return contrary ? TermBounds()
                            : combined(ordered(*node.args[0], *node.args[1], false), ordered(*node.args[1], *node.args[0], false), true);
        default:
            return {};
        }
    }

private:
    const ExpressionScope &scope_;

    Term term(const Node &node) const {
        const Direction direction = direction_of(node);
        return direction == Direction::unknown ? Term() : Term{value_of(node, scope_), direction, magnitude_of(node)};
    }

    // a <= b, or a < b.
    TermBounds ordered(const Node &a, const Node &b, bool strict) const {
        if (a.type != Type::integer || mentions_kv(a) == mentions_kv(b)) {
            return {};
        }
        const Term one = known(strict ? 1 : 0);
        return mentions_kv(a) ? isolate(a, difference(term(b), one), true) : isolate(b, sum(term(a), one), false);
    }

    // x <= limit, or x >= limit, where x contains kv.
    TermBounds isolate(const Node &x, const Term &limit, bool upper) const {
        if (limit.direction == Direction::unknown) {
            return {};
        }
        if (x.op == Op::variable) {
            const Term usable = limit.direction == Direction::falling ? Term() : limit;
            return upper ? TermBounds{{}, usable} : TermBounds{usable, {}};
        }
        if (x.op == Op::negate) {
            return isolate(*x.args[0], difference(known(0), limit), !upper);
        }
        if (x.op == Op::absolute) {
            return !upper ? TermBounds()
                          : combined(isolate(*x.args[0], limit, true), isolate(*x.args[0], difference(known(0), limit), false), true);
        }
        return x.args.size() == 2 ? isolate_one_of(*x.args[0], *x.args[1], x.op, limit, upper) : TermBounds();
    }

    TermBounds isolate_one_of(const Node &a, const Node &b, Op op, const Term &limit, bool upper) const {
        const bool in_a = mentions_kv(a), in_b = mentions_kv(b);
        if (op == Op::maximum || op == Op::minimum) { // below a limit is a maximum of which both are, above it such a minimum
            const bool both = (op == Op::maximum) == upper;
            return !both ? TermBounds()
                         : combined(in_a ? isolate(a, limit, upper) : TermBounds(), in_b ? isolate(b, limit, upper) : TermBounds(), true);
        }
        if (in_a && in_b) {
            return {};
        }
        if (op == Op::add) {
            return in_a ? isolate(a, difference(limit, term(b)), upper) : isolate(b, difference(limit, term(a)), upper);
        }
        if (op == Op::subtract) {
            return in_a ? isolate(a, sum(limit, term(b)), upper) : isolate(b, difference(term(a), limit), !upper);
        }
        return in_a || op == Op::multiply ? isolate_scaled(in_a ? a : b, literal(in_a ? b : a), op, limit, upper) : TermBounds();
    }

    // x * n and x / n, rounded down, for a literal n from 1 and an x so small that no limit beyond int32 / n matters.
    TermBounds isolate_scaled(const Node &x, int64_t n, Op op, const Term &limit, bool upper) const {
        if (n < 1 || n > 1 << 20 || magnitude_of(x) > far_from_overflow) {
            return {};
        }
        const int32_t factor = static_cast<int32_t>(n);
        if (op == Op::multiply) {
            return isolate(x, quotient(upper ? limit : sum(limit, known(factor - 1)), factor), upper);
        }
        if (op == Op::divide) {
            return isolate(x, upper ? sum(product(limit, factor), known(factor - 1)) : product(limit, factor), upper);
        }
        return {};
    }
};

} // namespace

KeyBounds key_bounds(const Node &mask, const ExpressionScope &scope) {
    const TermBounds bounds = Bounds(scope).of(mask, false);
    const Term end = bounds.last.value.defined() ? sum(bounds.last, known(1)) : Term();
    return {bounds.first.value, end.value};
}

} // namespace polyhead::gen::language

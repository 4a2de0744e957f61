// User expressions: what the indices of a read depend on.
#include "reads.h"

#include <algorithm>
#include <set>

#include "../../contract/tensors.h"

namespace polyhead::gen::language {

namespace {

// Sums of a head that are kept for a tensor whose elements follow pairs: a task has them in its cache, and adds them up for each tile.
constexpr int64_t most_elements = 1 << 16;

bool is_variable(const Node &node, Variable variable) {
    return node.op == Op::variable && Variable(node.index) == variable;
}

bool mentions(const Node &node, Variable variable) {
    return is_variable(node, variable) ||
           std::any_of(node.args.begin(), node.args.end(), [=](const NodePtr &arg) { return mentions(*arg, variable); });
}

bool mentions_query(const Node &node) {
    return mentions(node, Variable::q) || mentions(node, Variable::position);
}

// By how much a number grows for the next key of the next query; undefined where that is not the same for all pairs.
std::optional<int64_t> growth(const Node &node) {
    std::vector<std::optional<int64_t>> of;
    for (const NodePtr &arg : node.args) {
        of.push_back(growth(*arg));
    }
    const auto literal = [&](size_t i) { return node.args[i]->op == Op::number && node.type == Type::integer; };
    if (node.op == Op::variable) {
        return is_variable(node, Variable::score)                        ? std::optional<int64_t>()
               : is_variable(node, Variable::kv) || mentions_query(node) ? std::optional<int64_t>(1)
                                                                         : std::optional<int64_t>(0);
    }
    if (std::all_of(of.begin(), of.end(), [](const auto &one) { return one == int64_t(0); })) {
        return 0;
    }
    if (std::any_of(of.begin(), of.end(), [](const auto &one) { return !one; })) {
        return {};
    }
    switch (node.op) {
    case Op::less:
    case Op::less_equal:
    case Op::equal: // of numbers that keep their distance
        return *of[0] == *of[1] ? std::optional<int64_t>(0) : std::optional<int64_t>();
    case Op::minimum:
    case Op::maximum:
        return *of[0] == *of[1] ? of[0] : std::optional<int64_t>();
    case Op::negate:
        return -*of[0];
    case Op::add:
        return *of[0] + *of[1];
    case Op::subtract:
        return *of[0] - *of[1];
    case Op::multiply:
        return literal(0)   ? std::optional(node.args[0]->integer * *of[1])
               : literal(1) ? std::optional(node.args[1]->integer * *of[0])
                            : std::optional<int64_t>();
    case Op::to_real:
        return of[0];
    default:
        return {};
    }
}

void collect(const Node &node, const std::vector<ExpressionTensor> &tensors, std::set<const Node *> *seen,
             std::vector<const Node *> *reads) {
    if (!seen->insert(&node).second) {
        return;
    }
    for (const NodePtr &arg : node.args) {
        collect(*arg, tensors, seen, reads);
    }
    if (node.op == Op::element && tensors[node.index].gradient) {
        reads->push_back(&node);
    }
}

Follows followed_by(const Node &read) {
    const auto any = [&](auto &&condition) {
        return std::any_of(read.args.begin(), read.args.end(), [&](const NodePtr &index) { return condition(*index); });
    };
    const bool query = any(mentions_query), key = any([](const Node &index) { return mentions(index, Variable::kv); });
    return !query && !key                                                        ? Follows::nothing
           : !query                                                              ? Follows::keys
           : !key                                                                ? Follows::queries
           : !any([](const Node &index) { return growth(index) != int64_t(0); }) ? Follows::diagonals
                                                                                 : Follows::pairs;
}

} // namespace

int TableRead::elements() const {
    int64_t count = 1;
    for (const int extent : extents) {
        count = std::min(count * extent, most_elements + 1);
    }
    return int(count);
}

std::vector<TableRead> table_reads(const Program &program, const Problem &problem) {
    std::set<const Node *> seen;
    std::vector<const Node *> nodes;
    if (program.score) {
        collect(*program.score, program.tensors, &seen, &nodes);
    }
    std::vector<TableRead> reads;
    for (const Node *node : nodes) {
        TableRead read{node, node->index, followed_by(*node), {1, 1, 1, 1}};
        for (size_t i = 0; read.follows == Follows::pairs && i < node->args.size(); i++) {
            const Node &index = *node->args[i];
            if (mentions_query(index) || mentions(index, Variable::kv)) {
                read.extents[i] = contract::fixed_extent(program.tensors[node->index].extents[i], problem);
            }
        }
        reads.push_back(read);
    }
    return reads;
}

std::string table_refusal(const Program &program, const Problem &problem) {
    for (const TableRead &read : table_reads(program, problem)) {
        const std::string subject = "expression: grad " + program.tensors[read.tensor].name + ": ";
        const auto by_score = [](const NodePtr &index) { return mentions(*index, Variable::score); };
        if (std::any_of(read.node->args.begin(), read.node->args.end(), by_score)) {
            return subject + "an index follows the score, expected indices of b, h, q, kv, lengths and tensors";
        }
        const auto *const free = std::find(std::begin(read.extents), std::end(read.extents), 0);
        if (free != std::end(read.extents)) {
            return subject + "dimension " + std::to_string(free - read.extents) +
                   " has no fixed extent, expected a number, because each task adds up the gradients of all elements that its queries "
                   "and keys may read";
        }
        if (read.elements() > most_elements) {
            return subject + "queries and keys of a head may read more than " + std::to_string(most_elements) +
                   " elements, expected at most that, because each task has sums of its own; score_bias has a gradient of any size";
        }
    }
    return "";
}

} // namespace polyhead::gen::language

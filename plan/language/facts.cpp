// User expressions: what they read.
#include <polyhead/c_api.h>

#include "program.h"

namespace polyhead::gen::language {

namespace {

uint32_t fact_of(Variable which) {
    return which == Variable::b ? POLYHEAD_EXPRESSION_BATCH_ROW : which == Variable::seq_len_kv ? POLYHEAD_EXPRESSION_KEY_LENGTH : 0;
}

// b as the index of a dimension that is divided as the batch is.
bool follows_batch(const Node &index, int extent) {
    return extent == POLYHEAD_EXTENT_B && index.op == Op::variable && Variable(index.index) == Variable::b;
}

} // namespace

uint32_t facts_of(const Node &node, const std::vector<ExpressionTensor> &tensors) {
    uint32_t facts = node.op == Op::variable ? fact_of(Variable(node.index)) : node.op == Op::source ? node.source->facts : 0;
    for (size_t i = 0; i < node.args.size(); i++) {
        const bool divided = node.op == Op::element && follows_batch(*node.args[i], tensors[node.index].extents[i]);
        facts |= divided ? 0 : facts_of(*node.args[i], tensors);
    }
    return facts;
}

} // namespace polyhead::gen::language

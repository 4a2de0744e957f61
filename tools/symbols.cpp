// The symbol of a kernel's code: a name with a hash of everything that caller and code must agree on.
#include "../contract/problem_fields.h"
#include "../contract/weight_layout.h"
#include "../plan/text.h"
#include "library.h"

namespace polyhead::tools {
namespace {

// Every text ends with a byte that no text holds, so that two lists of texts never run into each other.
class Hash {
public:
    void add(const std::string &text) { value_ = gen::text_hash(text + '\xff', value_); }
    void add(int64_t number) { add(std::to_string(number)); }
    std::string text() const { return gen::hexadecimal(value_); }

private:
    uint64_t value_ = gen::hash_basis;
};

} // namespace

std::string variant_name(const std::string &kernel, size_t index) {
    return "polyhead_" + kernel + "_" + std::to_string(index);
}

std::string variant_symbol(const std::string &kernel, const polyhead_problem &problem, const std::vector<gen::VariantPlan> &plans,
                           size_t index) {
    Hash hash;
    hash.add(POLYHEAD_VERSION);
    hash.add(POLYHEAD_ABI_VERSION);
    hash.add(POLYHEAD_HALIDE_VERSION);
    for (const contract::ProblemField &field : contract::problem_fields) {
        hash.add(problem.*field.value);
    }
    hash.add(problem.expression ? problem.expression : "");
    hash.add(contract::weight_layout_id(problem));
    for (const gen::VariantPlan &plan : plans) {
        hash.add(std::string(plan.frame->name()));
        hash.add(plan.target);
        hash.add(plan.tiling.to_string());
        hash.add(plan.min_seq_len_q);
        hash.add(plan.max_seq_len_q);
        hash.add(plan.few_blocks_of);
        hash.add(plan.min_group_size);
        hash.add(plan.max_group_size);
    }
    return "polyhead_" + kernel + "_" + hash.text() + "_" + std::to_string(index);
}

} // namespace polyhead::tools

// Builders of test problems and their command lines.
#include "problems.h"

#include <algorithm>

#include "../../contract/problem_fields.h"

namespace polyhead::test {

Problem sdpa_problem(int num_heads, int head_dim, int num_kv_heads, int head_dim_v) {
    Problem problem = polyhead_problem_of(POLYHEAD_SDPA);
    problem.num_heads = num_heads;
    problem.num_kv_heads = num_kv_heads == 0 ? num_heads : num_kv_heads;
    problem.head_dim = head_dim;
    problem.head_dim_v = head_dim_v == 0 ? head_dim : head_dim_v;
    return problem;
}

Problem mha_problem(int embed_dim, int num_heads, int num_kv_heads, int head_dim, int head_dim_v) {
    Problem problem = sdpa_problem(num_heads, head_dim == 0 ? embed_dim / num_heads : head_dim, num_kv_heads, head_dim_v);
    problem.op = POLYHEAD_MHA;
    problem.embed_dim = problem.kdim = problem.vdim = embed_dim;
    return problem;
}

Problem linear_problem(int embed_dim, int out_features) {
    Problem problem = polyhead_problem_of(POLYHEAD_LINEAR);
    problem.embed_dim = embed_dim;
    problem.out_features = out_features;
    return problem;
}

Problem backward_problem(int num_heads, int head_dim, int num_kv_heads, int head_dim_v) {
    Problem problem = sdpa_problem(num_heads, head_dim, num_kv_heads, head_dim_v);
    problem.op = POLYHEAD_SDPA_BACKWARD;
    return problem;
}

std::string generate_line(const Problem &problem) {
    return "polyhead generate NAME " + contract::flags_of(problem);
}

Problem call_problem(const polyhead_kernel &kernel) {
    constexpr int kv_heads = 3, any_group = 3;
    int group_size = contract::group_size_of(kernel.problem);
    if (kernel.problem.free_group_size != 0) { // one that the first variant serves
        const polyhead_variant &first = kernel.variants[0];
        group_size = first.max_group_size > 0 ? std::max(first.min_group_size, 1) : std::max(first.min_group_size + 2, any_group);
    }
    return contract::with_heads(kernel.problem, kv_heads * group_size, kv_heads);
}

int64_t in_whole_pages(const Problem &problem, int64_t keys) {
    const int64_t page_size = std::max(problem.page_size, 1);
    return (keys + page_size - 1) / page_size * page_size;
}

bool is_sdpa(const Problem &problem) {
    return contract::by_heads(problem);
}
bool is_backward(const Problem &problem) {
    return contract::is_backward(problem);
}
bool is_mha(const Problem &problem) {
    return problem.op == POLYHEAD_MHA;
}
bool is_linear(const Problem &problem) {
    return problem.op == POLYHEAD_LINEAR;
}

} // namespace polyhead::test

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

std::string generate_line(const Problem &problem) {
    return "polyhead generate NAME " + contract::flags_of(problem);
}

Problem call_problem(const polyhead_kernel &kernel) {
    constexpr int kv_heads = 3;
    return contract::with_heads(kernel.problem, kv_heads * contract::group_size_of(kernel.problem));
}

int64_t in_whole_pages(const Problem &problem, int64_t keys) {
    const int64_t page_size = std::max(problem.page_size, 1);
    return (keys + page_size - 1) / page_size * page_size;
}

bool is_sdpa(const Problem &problem) {
    return problem.op == POLYHEAD_SDPA;
}
bool is_mha(const Problem &problem) {
    return problem.op == POLYHEAD_MHA;
}
bool is_linear(const Problem &problem) {
    return problem.op == POLYHEAD_LINEAR;
}

} // namespace polyhead::test

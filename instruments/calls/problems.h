// Problems for tests: builders with the defaults of the generator, and the command line that generates one.
#ifndef POLYHEAD_INSTRUMENTS_PROBLEMS_H
#define POLYHEAD_INSTRUMENTS_PROBLEMS_H

#include <cstdint>
#include <string>

#include <polyhead/polyhead.h>

namespace polyhead::test {

// Bare attention; num_kv_heads 0 means num_heads, head_dim_v 0 means head_dim.
Problem sdpa_problem(int num_heads, int head_dim, int num_kv_heads = 0, int head_dim_v = 0);
// A self-attention layer without biases; num_kv_heads 0 means num_heads, head_dim 0 means embed_dim / num_heads.
Problem mha_problem(int embed_dim, int num_heads, int num_kv_heads = 0, int head_dim = 0, int head_dim_v = 0);
Problem linear_problem(int embed_dim, int out_features);
// The gradients of bare attention.
Problem backward_problem(int num_heads, int head_dim, int num_kv_heads = 0, int head_dim_v = 0);

// What a test calls this kernel with: its problem, where heads are free with three key/value heads.
Problem call_problem(const polyhead_kernel &kernel);

// "polyhead generate NAME --op sdpa ..." of this problem.
std::string generate_line(const Problem &problem);

// So many keys, or as many more as fill the last page.
int64_t in_whole_pages(const Problem &problem, int64_t keys);

bool is_sdpa(const Problem &problem); // or its gradients: tensors by heads
bool is_backward(const Problem &problem);
bool is_mha(const Problem &problem);
bool is_linear(const Problem &problem);

} // namespace polyhead::test
#endif

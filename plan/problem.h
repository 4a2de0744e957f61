// Problem at generation time: defaults filled in, and refusals in one sentence.
#pragma once

#include <string>

#include <polyhead/c_api.h>

namespace polyhead::gen {

using Problem = polyhead_problem;

std::string dtype_name(int dtype);

// Why this problem cannot be generated, or empty. Names the parameter, the value found and what is allowed.
std::string refusal(const Problem &problem);

// Fills what was left 0 (num_kv_heads, head_dim, head_dim_v, kdim, vdim, seq_len_kv of a self-attention layer, rotary_dim), then refuses or
// not.
std::string complete(Problem *problem);

} // namespace polyhead::gen

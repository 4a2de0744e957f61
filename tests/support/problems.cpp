// Builders of test problems and their command lines.
#include "problems.h"

#include <algorithm>

#include "../../runtime/weight_layout.h"

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

namespace {

std::string broadcast_flag(const char *name, int32_t broadcast) {
    static const char *const dims[] = {"", "q", "kv", "q,kv"};
    return broadcast == 0 ? "" : std::string(" --") + name + "-broadcast " + dims[broadcast & 3];
}

std::string modifier_flags(const Problem &p) {
    static const char *const masks[] = {"", " --mask bool", " --mask additive"},
                             *const ropes[] = {"", " --rope interleaved", " --rope half_split"},
                             *const stages[] = {"", " --scores scaled", " --scores capped", " --scores logits", " --scores weights"};
    std::string flags;
    flags += p.window != 0 ? " --window" : "";
    flags += p.position_offsets != 0 ? " --position-offsets" : "";
    flags += masks[p.mask] + broadcast_flag("mask", p.mask_broadcast);
    flags += (p.score_bias != 0 ? " --score-bias" : "") + broadcast_flag("score-bias", p.score_bias_broadcast);
    flags += p.additive_in_storage != 0 ? " --additive-in-storage" : "";
    flags += p.softcap != 0 ? " --softcap" : "";
    flags += p.alibi != 0 ? " --alibi" : "";
    flags += p.sinks != 0 ? " --sinks" : "";
    flags += ropes[p.rope];
    flags += p.rope != 0 && p.rotary_dim != 0 ? " --rotary-dim " + std::to_string(p.rotary_dim) : "";
    flags += p.head_gate != 0 ? " --head-gate" : "";
    flags += stages[p.scores];
    flags += p.weights_mean != 0 ? " --weights-mean" : "";
    // Single quotes, as a shell reads them back.
    flags += p.expression != nullptr && p.expression[0] != '\0' ? std::string(" --expression '") + p.expression + "'" : "";
    return flags;
}

} // namespace

std::string generate_line(const Problem &p) {
    std::string line = "polyhead generate NAME --op ";
    const auto number = [&line](const char *name, int value) { line += std::string(" --") + name + " " + std::to_string(value); };
    line += is_linear(p) ? "linear" : is_mha(p) ? "mha" : "sdpa";
    if (!is_sdpa(p)) {
        number("embed-dim", p.embed_dim);
    }
    if (is_linear(p)) {
        number("out-features", p.out_features);
    } else {
        if (p.group_size != 0) {
            number("group-size", p.group_size);
        } else {
            number("num-heads", p.num_heads);
            number("num-kv-heads", p.num_kv_heads);
        }
        number("head-dim", p.head_dim);
        number("head-dim-v", p.head_dim_v);
        line += p.value_in_key != 0 ? " --value-in-key" : "";
        line += p.page_size != 0 ? " --page-size " + std::to_string(p.page_size) : "";
    }
    if (p.cross != 0) {
        line += " --cross";
        number("kdim", p.kdim);
        number("vdim", p.vdim);
    }
    if (!is_sdpa(p)) {
        line += p.bias != 0 ? " --bias" : " --no-bias";
    }
    if (p.causal != 0) {
        line += p.causal == POLYHEAD_TOP_LEFT ? " --causal top_left" : " --causal bottom_right";
    }
    line += p.kv_lengths != 0 ? " --kv-lengths" : "";
    line += p.cache != 0 ? " --cache" : "";
    line += p.lse != 0 ? " --lse" : "";
    line += p.dtype == POLYHEAD_F16 ? " --dtype f16" : p.dtype == POLYHEAD_BF16 ? " --dtype bf16" : "";
    line += p.f32_weights != 0 ? " --f32-weights" : "";
    if (!is_linear(p)) {
        line += modifier_flags(p);
    }
    if (p.seq_len_q != 0) {
        number("seq-len-q", p.seq_len_q);
    }
    if (p.seq_len_kv != 0) {
        number("seq-len-kv", p.seq_len_kv);
    }
    return line;
}

Problem call_problem(const polyhead_kernel &kernel) {
    constexpr int kv_heads = 3;
    return runtime::with_heads(kernel.problem, kv_heads * runtime::group_size_of(kernel.problem));
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

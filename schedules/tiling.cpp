// Tiling: text form, and the reasoned defaults for each frame and machine.
#include "tiling.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace polyhead::gen {

std::string Tiling::to_string() const {
    std::ostringstream text;
    const char *space = "";
#define POLYHEAD_PRINT(name, meaning, ...)                                                                                                 \
    if (name != 0) {                                                                                                                       \
        text << space << #name << '=' << name;                                                                                             \
        space = " ";                                                                                                                       \
    }
    POLYHEAD_TILING_KNOBS(POLYHEAD_PRINT)
#undef POLYHEAD_PRINT
    return text.str();
}

std::string Tiling::set(const std::string &knob, const std::string &value) {
    char *end = nullptr;
    const long number = std::strtol(value.c_str(), &end, 10);
    if (value.empty() || *end != 0 || number < 0 || number > (1 << 20)) {
        return "tiling: " + knob + " is '" + value + "', expected a whole number from 0 to 1048576";
    }
#define POLYHEAD_SET(name, meaning, ...)                                                                                                   \
    if (knob == #name) {                                                                                                                   \
        name = static_cast<int>(number);                                                                                                   \
        return "";                                                                                                                         \
    }
    POLYHEAD_TILING_KNOBS(POLYHEAD_SET)
#undef POLYHEAD_SET
    std::string known;
#define POLYHEAD_NAME(name, meaning, ...) known += std::string(known.empty() ? "" : ", ") + #name;
    POLYHEAD_TILING_KNOBS(POLYHEAD_NAME)
#undef POLYHEAD_NAME
    return "tiling: unknown knob '" + knob + "', expected one of " + known;
}

std::string Tiling::set_all(const std::string &text) {
    std::istringstream words(text);
    std::string word;
    while (words >> word) {
        const size_t equals = word.find('=');
        if (equals == std::string::npos) {
            return "tiling: '" + word + "' is not knob=value";
        }
        const std::string refusal = set(word.substr(0, equals), word.substr(equals + 1));
        if (!refusal.empty()) {
            return refusal;
        }
    }
    return "";
}

namespace {

void fill(int &knob, int value) {
    if (knob == 0) {
        knob = value;
    }
}

int round_up(int value, int multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

// The panel of value columns with the least padding, of equals the widest: padding is work thrown away.
int value_panel_for(int head_dim_v, int most) {
    int best = std::min(head_dim_v, most);
    for (int panel = best - 1; panel >= most / 2 && panel >= 1; panel--) {
        if (round_up(head_dim_v, panel) < round_up(head_dim_v, best)) {
            best = panel;
        }
    }
    return best;
}

bool reads_tiles_of_pairs(const Problem &p) {
    return (p.mask != POLYHEAD_NO_MASK && (p.mask_broadcast & POLYHEAD_BROADCAST_Q) == 0) ||
           (p.score_bias != 0 && (p.score_bias_broadcast & POLYHEAD_BROADCAST_Q) == 0);
}

// Two vectors of queries: 2 x 8 scores + 2 query vectors of 32 registers (AVX-512), 2 x 5 of 16 (AVX2). Half a tile computes less that
// causal, a window or the end of a length then throws away, and needs 9 loads for 8 multiply-adds: level where those take a cycle each (8
// heads, d 64, 1 thread, Zen 4: 0.88 of the time at 64 x 64 causal, 0.98 at 1024 x 1024 causal, 0.93 at 197 x 197, 0.99 at 1024 x 1024; 12
// heads, 1024 x 1024, window 256/0 and bias 0.98), too many where two pass at once. Tiles over pairs are turned 2 % faster in 32 rows, and
// each tile rotates its keys (RoPE): 12 heads, 1024 x 1024 take 0.95 of the time with 32, causal 0.93, with the window 0.88.
int queries_of_tile(const Problem &p, const Machine &machine) {
    const bool short_rows = p.causal != POLYHEAD_NOT_CAUSAL || p.window != 0;
    const bool half = machine.slow_vectors && p.rope == POLYHEAD_NO_ROPE && (short_rows || !reads_tiles_of_pairs(p));
    return half ? machine.lanes : 2 * machine.lanes;
}

// A chunk of 128 keys keeps logits and probs (16 KB each at 32 queries) beside the key panel in L1 and L2. Twice as many save a merge
// where that is as many bytes, or the keys are known or causal (AVX2, 512 x 512 causal: 6 %); a fixed length is cut into equal chunks.
int keys_of_chunk(const Problem &p, const Tiling &t, const Machine &machine) {
    const int most = t.q_tile <= machine.lanes || p.seq_len_kv > 0 || p.causal != POLYHEAD_NOT_CAUSAL ? 256 : 128;
    const int chunks = (p.seq_len_kv + most - 1) / most;
    return round_up(chunks > 0 ? (p.seq_len_kv + chunks - 1) / chunks : most, t.key_panel);
}

void query_lanes_defaults(Tiling &t, const Problem &p, const Machine &machine) {
    const bool many = machine.registers == 32;
    fill(t.q_tile, queries_of_tile(p, machine));
    const int vectors = std::max(1, t.q_tile / machine.lanes);
    const int most = std::max(1, many ? 16 / std::max(2, vectors) : 10 / vectors);
    fill(t.key_panel, many ? most : 4);
    fill(t.value_panel, value_panel_for(p.head_dim_v, most));
    fill(t.kv_tile, keys_of_chunk(p, t, machine));
    fill(t.merge_group, p.seq_len_kv > 0 ? std::min(16, (p.seq_len_kv + t.kv_tile - 1) / t.kv_tile) : 16);
}

// Rows of one pass: the heads of a group, at most 8 (4 with few registers); without groups two queries, so that several of them
// share a pass and a single one wastes little. Two keys at a time: their dot products over all of head_dim are unrolled, which keeps
// enough loads in flight (32/8 heads, 4096 keys, d 128, cold cache, 1 thread: 22 GB/s, against 17 with four keys and 11 with eight).
// A split of 256 keys (128 KB of f32 keys at head_dim 128) stays in L2 between its row tiles.
void head_lanes_defaults(Tiling &t, const Problem &p, const Machine &machine) {
    const int group_size = p.num_heads / p.num_kv_heads;
    fill(t.row_tile, std::clamp(group_size, 2, machine.registers == 32 ? 8 : 4));
    fill(t.split_len, 256);
    fill(t.key_unroll, 2);
}

// Registers of a thread (CUDA, f32, d 64): 4 rows x 16 entries of query and as many of acc, 4 x 4 scores, 16 of a key and its value.
// A loaded float serves the rows of its thread, so rows are what keeps the load units below the multipliers; lanes make room for rows.
// More keys at a time save rescaling (62 % of the instructions are multiply-adds with 8, 57 % with 4) and cost spills: ptxas counts up to
// 40 bytes with 8, up to 16 with 6, none with 4 where masked chunks have 2.
void thread_rows_defaults(Tiling &t, const Problem &p, const Machine &machine) {
    const int widest = std::max(p.head_dim, p.head_dim_v);
    fill(t.row_lanes, machine.warp() == 1 ? 1 : widest <= 32 ? 2 : widest <= 64 ? 4 : 8);
    fill(t.thread_rows, t.row_lanes == 1 ? 1 : widest <= 128 ? 4 : 2);
    fill(t.row_groups, 128 / t.row_lanes);
    fill(t.kv_tile, 4);
    fill(t.masked_kv_tile, t.kv_tile % 2 == 0 ? 2 : 1);
    // Heads of a layer are ours and lie in panels of 16; tensors of a caller may lie anywhere.
    // Rotated keys are made entry by entry.
    fill(t.load_width, p.op == POLYHEAD_MHA && machine.wide() && p.rope == POLYHEAD_NO_ROPE ? 4 : 1);
}

// 16 threads along the keys of a chunk, and along head_dim. Rows and keys as many as fit: they are how often a staged float is used.
void block_tiles_defaults(Tiling &t, const Problem &p, const Machine &machine) {
    fill(t.row_lanes, 16);
    const Tiling given = t;
    const int choices[][3] = {{4, 8, 32}, {4, 8, 16}, {2, 8, 32}, {2, 8, 16}, {2, 8, 8},
                              {1, 8, 8},  {1, 8, 4},  {1, 4, 4},  {1, 2, 4},  {1, 2, 2}};
    for (const auto &[rows, groups, keys] : choices) {
        t = given;
        fill(t.thread_rows, rows);
        fill(t.row_groups, groups);
        fill(t.kv_tile, keys);
        if (shared_bytes(t, p) <= machine.shared_bytes) {
            return;
        }
    }
}

} // namespace

bool thread_rows_fit(const Problem &p, const Machine &machine) {
    return std::max(p.head_dim, p.head_dim_v) <= (machine.warp() > 1 ? 256 : 128);
}

std::optional<ThreadBlocking> thread_blocking(const Tiling &t, const Machine &machine) {
    if (!machine.gpu()) {
        return std::nullopt;
    }
    return ThreadBlocking{t.linear_columns, t.linear_rows, t.linear_panels, std::max(1, t.linear_block / t.linear_rows)};
}

Tiling default_tiling(const std::string &frame, const Problem &problem, const Machine &machine, Tiling t) {
    if (frame == "query_lanes") {
        query_lanes_defaults(t, problem, machine);
    } else if (frame == "head_lanes") {
        head_lanes_defaults(t, problem, machine);
    } else if (frame == "thread_rows") {
        thread_rows_defaults(t, problem, machine);
    } else if (frame == "block_tiles") {
        block_tiles_defaults(t, problem, machine);
    }
    if (problem.op != POLYHEAD_SDPA) {
        if (machine.gpu()) {
            fill(t.linear_rows, 8);
            fill(t.linear_columns, 8);
            fill(t.linear_panels, 4);
        }
        fill(t.linear_block, machine.gpu() ? round_up(64, t.linear_rows) : 128);
        fill(t.reduction_block, 1024); // 64 costs 4 % and makes the rounding error of a sum over 768 inputs 3 times smaller
    }
    forget_unread(frame, problem, machine, &t);
    return t;
}

} // namespace polyhead::gen

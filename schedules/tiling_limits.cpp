// What is refused of a tiling: what the table of knobs forbids, and what several knobs together may not take.
#include <algorithm>

#include "tiling.h"

namespace polyhead::gen {
namespace {

// Far above what is fast, and where a kernel still compiles in seconds and runs in a thread's caches.
constexpr int most_sums = 128;                 // vectors of a register tile; no machine has more than 32 registers
constexpr int64_t most_unrolled = 2560;        // multiply-adds that stand side by side in the code
constexpr int64_t most_chunk_bytes = 1 << 20;  // logits of a chunk, and as many bytes of probs
constexpr int64_t most_group_bytes = 16 << 20; // partials of a group of chunks
constexpr int most_threads = 1024;             // of a block
constexpr int most_threads_along_z = 64;       // CUDA, and what every Vulkan device has

std::string at_most(const std::string &what, int64_t found, int64_t most, const std::string &unit) {
    return found <= most ? ""
                         : "tiling: " + what + " take " + std::to_string(found) + " " + unit + ", expected at most " + std::to_string(most);
}

std::string first_of(std::initializer_list<std::string> sentences) {
    for (const std::string &sentence : sentences) {
        if (!sentence.empty()) {
            return sentence;
        }
    }
    return "";
}

std::string query_lanes_limits(const Problem &p, const Tiling &t, const Machine &machine) {
    const int vectors = (t.q_tile + machine.lanes - 1) / machine.lanes;
    const bool turns = p.mask != POLYHEAD_NO_MASK || p.score_bias != 0;
    return first_of({
        turns && (t.q_tile & (t.q_tile - 1)) != 0
            ? "tiling: q_tile " + std::to_string(t.q_tile) + " is not a power of 2, which tiles of masks are turned by"
            : "",
        at_most("scores (q_tile x key_panel)", int64_t(vectors) * t.key_panel, most_sums, "registers"),
        at_most("sums (q_tile x value_panel)", int64_t(vectors) * t.value_panel, most_sums, "registers"),
        at_most("logits (q_tile x kv_tile)", int64_t(4) * t.q_tile * t.kv_tile, most_chunk_bytes, "bytes"),
        at_most("partials (q_tile x head_dim_v x merge_group)", int64_t(4) * t.q_tile * (p.head_dim_v + 2) * t.merge_group,
                most_group_bytes, "bytes"),
    });
}

std::string head_lanes_limits(const Problem &p, const Tiling &t, const Machine &machine) {
    const int64_t entries = (p.head_dim + machine.lanes - 1) / machine.lanes;
    return at_most("dot products (row_tile x key_unroll x head_dim)", entries * t.row_tile * t.key_unroll, most_unrolled,
                   "multiply-adds side by side");
}

// A number of things is shared out to so many threads, or each thread has one.
std::string shared_out(const std::string &what, int number, int threads) {
    return number <= threads || number % threads == 0
               ? ""
               : "tiling: " + what + " are " + std::to_string(number) + ", expected at most row_lanes " + std::to_string(threads) +
                     ", or a multiple of it";
}

std::string thread_rows_limits(const Problem &p, const Tiling &t) {
    if (p.op == POLYHEAD_SDPA && t.row_lanes == 1 &&
        t.load_width > 1) { // reads behind the last entry of a row, which a layer's panels allow
        return "tiling: load_width is " + std::to_string(t.load_width) + " with row_lanes 1, expected 1 for tensors of the caller";
    }
    // What only one row sees becomes a branch of its lanes, with the exchange of their sums inside: the other rows of the warp miss it.
    if (t.row_lanes > 1 && t.thread_rows == 1) {
        return "tiling: thread_rows is 1 with row_lanes " + std::to_string(t.row_lanes) + ", expected at least 2 rows, or one lane";
    }
    const int64_t entries = (std::max(p.head_dim, p.head_dim_v) + t.row_lanes - 1) / t.row_lanes;
    return first_of({at_most("row_lanes x row_groups", int64_t(t.row_lanes) * t.row_groups, most_threads, "threads"),
                     at_most("dot products (thread_rows x kv_tile x head_dim / row_lanes)", entries * t.thread_rows * t.kv_tile,
                             most_unrolled, "multiply-adds side by side")});
}

std::string block_tiles_limits(const Problem &p, const Tiling &t, const Machine &machine) {
    return first_of({shared_out("kv_tile keys of a chunk", t.kv_tile, t.row_lanes),
                     shared_out("thread_rows x row_groups rows of a block", t.thread_rows * t.row_groups, t.row_lanes),
                     at_most("a block's tiles", shared_bytes(t, p), machine.shared_bytes, "bytes of shared memory"),
                     at_most("row_lanes x row_groups", int64_t(t.row_lanes) * t.row_groups, most_threads, "threads")});
}

std::string linear_limits(const Tiling &t, const Machine &machine) {
    if (machine.gpu()) {
        const int row_threads = std::max(1, t.linear_block / t.linear_rows);
        return first_of(
            {at_most("sums (linear_rows x linear_columns)", int64_t(t.linear_rows) * t.linear_columns, most_sums, "registers"),
             at_most("rows of linear_block (linear_block / linear_rows)", row_threads, most_threads_along_z, "threads"),
             at_most("columns of linear_panels and rows of linear_block",
                     int64_t(POLYHEAD_WEIGHT_PANEL) / t.linear_columns * t.linear_panels * row_threads, most_threads, "threads")});
    }
    const int vectors = std::max(1, POLYHEAD_WEIGHT_PANEL / machine.lanes);
    return at_most("sums (linear_rows x linear_panels)", int64_t(std::max(1, t.linear_rows)) * std::max(1, t.linear_panels) * vectors,
                   most_sums, "registers");
}

} // namespace

// acc (3 statistics and head_dim_v / row_lanes entries per thread), a chunk of key and of value, scores and probs.
int shared_bytes(const Tiling &t, const Problem &p) {
    const int rows = t.thread_rows * t.row_groups, entries = (p.head_dim_v + t.row_lanes - 1) / t.row_lanes;
    const int64_t floats = int64_t(rows) * t.row_lanes * (3 + entries) + int64_t(t.kv_tile) * (p.head_dim + p.head_dim_v + 2) +
                           int64_t(rows) * (2 * t.kv_tile + 6);
    return static_cast<int>(std::min<int64_t>(floats * int64_t(sizeof(float)), INT32_MAX));
}

std::string tiling_refusal(const std::string &frame, const Problem &p, const Tiling &t, const Machine &machine) {
    std::string refusal = knob_refusal(frame, p, t, machine);
    if (refusal.empty()) {
        refusal = frame == "query_lanes"   ? query_lanes_limits(p, t, machine)
                  : frame == "head_lanes"  ? head_lanes_limits(p, t, machine)
                  : frame == "thread_rows" ? thread_rows_limits(p, t)
                  : frame == "block_tiles" ? block_tiles_limits(p, t, machine)
                                           : "";
    }
    return refusal.empty() && p.op != POLYHEAD_SDPA ? linear_limits(t, machine) : refusal;
}

} // namespace polyhead::gen

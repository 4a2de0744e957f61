// The frames "thread rows" and "block tiles": attention on GPUs.
#include <algorithm>

#include "../../contract/problem.h"
#include "frame.h"
#include "limits.h"
#include "rows.h"

namespace polyhead::gen {

const Frame &thread_rows_frame();

int whole_piece(const Problem &p, int lanes) {
    for (int entries = widest_piece; entries > 1; entries /= 2) {
        if (p.head_dim % (entries * lanes) == 0 && p.head_dim_v % (entries * lanes) == 0) {
            return entries;
        }
    }
    return 0;
}

namespace {

// acc (3 statistics and head_dim_v / row_lanes entries per thread), a chunk of key and of a value of its own, scores and probs.
int shared_bytes(const Tiling &t, const Problem &p) {
    const int rows = t.thread_rows * t.row_groups, entries = (p.head_dim_v + t.row_lanes - 1) / t.row_lanes;
    const int key_width = p.head_dim + 1, value_width = stages_values(p) ? p.head_dim_v + 1 : 0;
    const int64_t floats =
        int64_t(rows) * t.row_lanes * (3 + entries) + int64_t(t.kv_tile) * (key_width + value_width) + int64_t(rows) * (2 * t.kv_tile + 6);
    return static_cast<int>(std::min<int64_t>(floats * int64_t(sizeof(float)), INT32_MAX));
}

// A number of things is shared out to so many threads, or each thread has one.
std::string shared_out(const std::string &what, int number, int threads) {
    return number <= threads || number % threads == 0
               ? ""
               : "tiling: " + what + " are " + std::to_string(number) + ", expected at most row_lanes " + std::to_string(threads) +
                     ", or a multiple of it";
}

// Threads that share a row: at least so many of a warp, and as many as leave 16 entries to each.
int lanes_for(int entries, int least, int warp) {
    int lanes = std::min(least, warp);
    while (lanes < warp && entries > 16 * lanes) {
        lanes *= 2;
    }
    return lanes;
}

class Rows : public Frame {
public:
    int schedule_version() const override { return 1; }
    bool serves(const Problem &p, const Machine &machine) const override { return machine.gpu() && contract::computes_out(p); }
    void add_scratch(ScratchTerms *terms) const override { terms->add_attended(); }
};

class ThreadRows : public Rows {
public:
    const char *name() const override { return "thread_rows"; }
    KnobUser knob_user() const override { return KnobUser::thread_rows; }
    // Without lanes registers allow it up to these head dims.
    bool serves(const Problem &p, const Machine &machine) const override {
        return Rows::serves(p, machine) && (machine.warp() > 1 || std::max(p.head_dim, p.head_dim_v) <= 128);
    }
    // Lanes are what makes thread rows fast; without them every key is read once per row.
    bool wanted(const Problem &, const Machine &machine, bool) const override { return machine.warp() > 1; }

    int wide_load(const Problem &p, const Tiling &t) const override {
        return contract::by_heads(p) && p.rope == POLYHEAD_NO_ROPE && t.row_lanes > 1 ? whole_piece(p, t.row_lanes) : 0;
    }

    // Registers of a thread (CUDA, f32, d 64): 4 rows x 16 entries of query and as many of acc, 4 x 8 scores, 16 of a key and its value.
    // A loaded float serves the rows of its thread, so rows are what keeps the load units below the multipliers; lanes make room for rows.
    // Measured on an H100, 16 heads of 4,096 (docs/measured/schedules_gpu.md): small blocks, because registers leave room for few warps;
    // with causal, smaller tiles, because the keys by which its rows can differ are masked for all of them. Integers are made to floats
    // once for the rows of a thread.
    void fill_defaults(Tiling *t, const Problem &p, const Machine &machine) const override {
        const int widest = std::max(p.head_dim, p.head_dim_v);
        const bool integers = p.int8_cache != 0, rotated = p.rope != POLYHEAD_NO_ROPE,
                   triangle = p.causal != POLYHEAD_NOT_CAUSAL && !integers;
        fill(t->row_lanes, lanes_for(widest, 2, machine.warp()));
        fill(t->thread_rows, t->row_lanes == 1 ? 1 : triangle ? 3 : 4);
        const bool large_block = integers || (t->row_lanes <= 2 && !triangle);
        fill(t->row_groups, (large_block ? 128 : 64) / t->row_lanes);
        // With masks or a window every chunk is a masked one.
        const bool pairs = p.mask != POLYHEAD_NO_MASK || p.score_bias != 0, all_masked = pairs ? widest <= 64 : p.window != 0;
        // Addresses, scales and rotation take registers, too. 8 keys spill up to 16 bytes in some kernels, and are faster than 4 all the
        // same.
        const bool few_keys = integers || t->row_lanes == 1 || p.value_in_key != 0 || (rotated && widest > 128);
        const bool many_keys = triangle && !rotated && p.page_size == 0 && widest <= 128;
        fill(t->kv_tile, few_keys ? 4 : many_keys ? 12 : 8);
        int masked = all_masked ? 4 : 2;
        while (t->kv_tile % masked != 0) {
            masked /= 2;
        }
        fill(t->masked_kv_tile, masked);
        // Heads of a layer are ours and lie in panels of 16; tensors of a caller may lie anywhere.
        // Rotated keys are made entry by entry.
        fill(t->load_width, contract::is_attention_layer(p) && machine.wide() && p.rope == POLYHEAD_NO_ROPE ? 4 : 1);
    }

    std::string refusal(const Problem &p, const Tiling &t, const Machine &) const override {
        if (contract::by_heads(p) && t.row_lanes == 1 &&
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
                                 most_unrolled, "unrolled multiply-adds")});
    }
};

class BlockTiles : public Rows {
public:
    const char *name() const override { return "block_tiles"; }
    KnobUser knob_user() const override { return KnobUser::block_tiles; }
    bool wanted(const Problem &p, const Machine &machine, bool) const override {
        return !thread_rows_frame().serves(p, machine) || !thread_rows_frame().wanted(p, machine, true);
    }

    // 16 threads along the keys of a chunk, and along head_dim. Rows and keys as many as fit: they are how often a float in shared memory
    // is used.
    void fill_defaults(Tiling *t, const Problem &p, const Machine &machine) const override {
        fill(t->row_lanes, 16);
        const Tiling given = *t;
        const int choices[][3] = {{4, 8, 32}, {4, 8, 16}, {2, 8, 32}, {2, 8, 16}, {2, 8, 8},
                                  {1, 8, 8},  {1, 8, 4},  {1, 4, 4},  {1, 2, 4},  {1, 2, 2}};
        for (const auto &[rows, groups, keys] : choices) {
            *t = given;
            fill(t->thread_rows, rows);
            fill(t->row_groups, groups);
            fill(t->kv_tile, keys);
            if (shared_bytes(*t, p) <= machine.device.shared_bytes) {
                return;
            }
        }
    }

    std::string refusal(const Problem &p, const Tiling &t, const Machine &machine) const override {
        // Stages of a block have different shapes; the block has the largest extent of each dimension.
        const int rows = t.thread_rows * t.row_groups;
        const int64_t across = std::max(t.row_lanes, t.thread_rows), along = std::max(t.row_groups, rows / std::min(rows, t.row_lanes));
        const int sums_of_row = (std::max(t.kv_tile, p.head_dim_v) + t.row_lanes - 1) / t.row_lanes;
        return first_of({shared_out("kv_tile keys of a chunk", t.kv_tile, t.row_lanes),
                         shared_out("thread_rows x row_groups rows of a block", rows, t.row_lanes),
                         at_most("a block's tiles", shared_bytes(t, p), machine.device.shared_bytes, "bytes of shared memory"),
                         // More spill on a GPU; PoCL 3.1 compiles 640 of them for ten minutes, 240 in 14 seconds.
                         at_most("sums of a thread (thread_rows x kv_tile or head_dim_v / row_lanes)", int64_t(t.thread_rows) * sums_of_row,
                                 most_thread_sums, "registers"),
                         at_most("row_lanes, thread_rows and row_groups of a block", across * along, most_threads, "threads")});
    }
};

// Few queries and many keys: blocks of threads for splits of the keys.
constexpr int most_split_queries = 16;

// Few queries of a layer that attends to its own tokens have as few keys, unless it has a cache.
bool serves_splits(const Problem &p, const Machine &machine) {
    return machine.device.merges_splits && (!contract::attends_itself(p) || p.cache != 0);
}

bool wants_splits(const Problem &p, int split_len) {
    return p.seq_len_q <= most_split_queries && (p.seq_len_kv == 0 || p.seq_len_kv > split_len);
}

// The new rows of a layer with a cache are as few as its queries: smaller blocks share a weight among more multiprocessors, and threads
// have fewer rows that do not exist. Products of warps have numbers of their own.
void fill_few_rows(Tiling *t, const Problem &p) {
    if (contract::is_attention_layer(p) && p.cache != 0 && t->warp_products == 0) {
        fill(t->linear_rows, 2);
        fill(t->linear_panels, 4);
        fill(t->linear_block, (most_split_queries + t->linear_rows - 1) / t->linear_rows * t->linear_rows);
    }
}

class SplitRows : public ThreadRows {
public:
    const char *name() const override { return "split_rows"; }
    KnobUser knob_user() const override { return KnobUser::split_rows; }
    bool reads(KnobUser other) const override { return other == KnobUser::split_rows || other == KnobUser::thread_rows; }
    bool serves(const Problem &p, const Machine &machine) const override {
        return serves_splits(p, machine) && ThreadRows::serves(p, machine);
    }
    bool wanted(const Problem &p, const Machine &machine, bool) const override {
        return machine.warp() > 1 && wants_splits(p, keys_of_split);
    }
    int max_seq_len_q() const override { return most_split_queries; }
    int wide_load(const Problem &, const Tiling &) const override { return 0; } // the variant has them where they are faster

    // A block is a warp. Its threads share the rows of a tile: all heads of a group, up to 8, and at least 2. As many lanes share a row as
    // leave 64 registers to query and as many to acc, and read 16 entries of a key each; groups of lanes have every groups-th chunk of the
    // split.
    void fill_defaults(Tiling *t, const Problem &p, const Machine &machine) const override {
        const int widest = std::max(p.head_dim, p.head_dim_v), warp = machine.warp();
        constexpr int most_rows = 8, registers_of_query = 80, rows_of_lanes = 4; // 16 entries of 4 rows are 64 registers
        int rows = 2;
        while (rows < std::min(contract::group_size_of(p), most_rows) && 2 * rows * widest <= registers_of_query * warp) {
            rows *= 2;
        }
        fill(t->thread_rows, rows);
        fill(t->row_lanes, lanes_for(std::max(widest, (t->thread_rows * widest + rows_of_lanes - 1) / rows_of_lanes), rows_of_lanes, warp));
        fill(t->row_groups, std::max(1, warp / t->row_lanes));
        fill(t->kv_tile, 4);
        fill(t->masked_kv_tile, t->kv_tile % 2 == 0 ? 2 : 1);
        const bool layer = contract::is_attention_layer(p), rotates = p.rope != POLYHEAD_NO_ROPE && p.cache == 0; // as they are read
        const int piece = !layer ? std::max(ThreadRows::wide_load(p, *t), 1) : rotates ? 1 : widest_piece;
        fill(t->load_width, machine.wide() ? piece : 1);
        fill_few_rows(t, p);
        const int step = t->kv_tile * t->row_groups;
        fill(t->split_len, std::max(1, keys_of_split / step) * step);
    }

    std::string refusal(const Problem &p, const Tiling &t, const Machine &machine) const override {
        const int step = t.kv_tile * t.row_groups, lanes = t.row_lanes * t.row_groups;
        if (lanes > machine.warp() || machine.warp() % lanes != 0) {
            return "tiling: row_lanes x row_groups are " + std::to_string(lanes) + " threads, expected a divisor of the " +
                   std::to_string(machine.warp()) + " threads of a warp of the target";
        }
        if (t.split_len % step != 0) {
            return "tiling: split_len " + std::to_string(t.split_len) + " is not a multiple of kv_tile x row_groups " +
                   std::to_string(step);
        }
        return ThreadRows::refusal(p, t, machine);
    }
    void add_scratch(ScratchTerms *terms) const override {
        terms->add_gpu_splits();
        terms->add_attended();
    }

private:
    static constexpr int keys_of_split = 128;
};

class SplitTiles : public BlockTiles {
public:
    const char *name() const override { return "split_tiles"; }
    KnobUser knob_user() const override { return KnobUser::split_tiles; }
    bool reads(KnobUser other) const override { return other == KnobUser::split_tiles || other == KnobUser::block_tiles; }
    bool serves(const Problem &p, const Machine &machine) const override {
        return serves_splits(p, machine) && BlockTiles::serves(p, machine);
    }
    bool wanted(const Problem &p, const Machine &machine, bool first) const override {
        return BlockTiles::wanted(p, machine, first) && wants_splits(p, keys_of_split);
    }
    int max_seq_len_q() const override { return most_split_queries; }

    // One row per thread, 8 rows of a block; what does not fit is as in block tiles.
    void fill_defaults(Tiling *t, const Problem &p, const Machine &machine) const override {
        fill(t->thread_rows, contract::group_size_of(p) <= 8 ? 1 : 2);
        BlockTiles::fill_defaults(t, p, machine);
        fill_few_rows(t, p);
        fill(t->split_len, std::max(1, keys_of_split / t->kv_tile) * t->kv_tile);
    }
    void add_scratch(ScratchTerms *terms) const override {
        terms->add_gpu_splits();
        terms->add_attended();
    }

private:
    static constexpr int keys_of_split = 256;
};

} // namespace

const Frame &thread_rows_frame() {
    static const ThreadRows frame;
    return frame;
}

const Frame &block_tiles_frame() {
    static const BlockTiles frame;
    return frame;
}

const Frame &split_rows_frame() {
    static const SplitRows frame;
    return frame;
}

const Frame &split_tiles_frame() {
    static const SplitTiles frame;
    return frame;
}

} // namespace polyhead::gen

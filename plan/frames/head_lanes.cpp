// The frame "head lanes": decoding on CPUs.
#include <algorithm>

#include "../../contract/dtypes.h"
#include "../../contract/tensors.h"
#include "frame.h"
#include "head_lanes.h"
#include "limits.h"

namespace polyhead::gen {

int head_lanes_of(const Problem &p, const Machine &machine) {
    int lanes = machine.lanes;
    while (lanes > std::min(p.head_dim, p.head_dim_v)) {
        lanes /= 2;
    }
    return lanes;
}

namespace {

// What tilings assume where a call gives the number of heads.
constexpr int usual_heads = 8, usual_kv_heads = 4;

// Of a row, as it is stored.
int key_bytes(const Problem &p) {
    return p.head_dim * contract::dtype_bytes(contract::key_dtype(p));
}

// A split begins with rows that no prefetcher expects, so long ones read faster from memory: 512 keys take 0.98 of the time of 256 in f32,
// 1024 keys 0.845 in f16, 0.81 in bf16 (32 and 8 heads of 128, 4,096 keys, 1 thread, Zen 5). The keys stay in the L2 cache for the other
// rows, and few key/value heads leave enough splits for all threads: 32 of 4,096 keys. Where value is in key, as many keys as stay in the
// L2 cache (448 KB of them) until the values are read, so that memory gives each row once.
int keys_of_split(const Problem &p, const Machine &machine) {
    constexpr int least = 256, keys_of_head = 128;
    if (p.value_in_key != 0) {
        constexpr int multiple = 32, most_bytes = 448 << 10;
        return std::clamp(most_bytes / (4 * p.head_dim) / multiple * multiple, multiple, least);
    }
    // Four rows of scores fit into the 16 KB that Halide leaves on the stack (docs/internals/schedules.md, section 3).
    constexpr int floats_of_row = 1024;
    const int most = (floats_of_row - machine.row_padding) / least * least;
    const int most_bytes = std::min(machine.l2_bytes / 2, 256 << 10);
    const int kv_heads = p.free_group_size != 0 ? usual_kv_heads : p.num_kv_heads;
    const int keys = std::min({most, most_bytes / key_bytes(p), keys_of_head * kv_heads});
    return std::max(keys / least * least, least);
}

// Rows of a tile, at most `rows` where there are few registers; keys of one pass.
constexpr int most_rows = 8, rows = 4, least_rows = 2, keys = 2;

int rows_for(const Machine &machine) {
    return machine.fits(most_rows * keys, keys + 1) ? most_rows : rows;
}

// The heads of a group, at most `most`. A power of two is added up over lanes together: eight rows take 0.71 to 1.05 of the time of six or
// seven (docs/measured/schedules.md, 18).
int rows_of_tile(int group_size, int most) {
    constexpr int nearly_most_rows = 6;
    return group_size >= nearly_most_rows ? most : std::clamp(group_size, least_rows, most);
}

class HeadLanes : public Frame {
public:
    // A tile has a multiple of the heads of a group, or little less: 1 and 2, 3 and 4, more.
    std::vector<int> group_sizes(const Machine &machine) const override {
        return rows_for(machine) > rows ? std::vector<int>{least_rows, rows} : std::vector<int>{least_rows};
    }
    const char *name() const override { return "head_lanes"; }
    int schedule_version() const override { return 1; }
    KnobUser knob_user() const override { return KnobUser::head_lanes; }
    bool serves(const Problem &p, const Machine &machine) const override {
        // A layer without a cache has as many keys as queries.
        return !machine.gpu() && contract::computes_out(p) && p.dropout == 0 && (contract::by_heads(p) || p.cache != 0) &&
               head_lanes_of(p, machine) >= 4;
    }
    bool wanted(const Problem &p, const Machine &machine, bool) const override { return p.seq_len_q <= best_up_to(p, machine); }
    int max_seq_len_q() const override { return 16; }
    bool joins_rows() const override { return true; }
    // Beyond it a tile of queries wastes less than adding up the lanes of each score: 16 queries x 512 keys take 0.65 of the time (AVX2
    // 0.51), 12 queries 0.86 (0.67), 8 queries 1.25 (1.00); 12 heads of 64, Zen 4, 1 thread. Dot products of pairs are worth more (12
    // queries 0.51), and adding up lanes is most of a score of a narrow head (9 queries x 512 keys: d 32 0.76, d 40 0.72, d 48 0.92; 8
    // heads, Zen 5). Keys of 16 bits that a tile would read as floats are better left as they are stored. A tile is the task of one
    // thread, whatever the number of keys: few heads stay here, and latent attention, whose heads share one row.
    int best_up_to(const Problem &p, const Machine &machine) const override {
        constexpr int enough_heads = 8, wide_head = 64, shorter = 8, longer = 12;
        const int heads = p.free_group_size != 0 ? usual_heads : p.num_heads;
        const int dtype = contract::key_dtype(p);
        const bool pairs = machine.multiplies_pairs(dtype);
        if (!machine.fused || p.value_in_key != 0 || heads < enough_heads || (dtype != POLYHEAD_F32 && !pairs)) {
            return max_seq_len_q();
        }
        return machine.many_registers() && !pairs && p.head_dim >= wide_head ? longer : shorter;
    }

    // Rows of one pass: the heads of a group, at most 8 (4 with few registers); without groups two queries, so that several of them
    // share a pass and a single one wastes little. Two keys at a time: their dot products over all of head_dim are unrolled, which keeps
    // enough loads in flight; from rows of 512 bytes on one key is enough, and two take up to twice the time from memory
    // (docs/internals/schedules.md, section 3).
    void fill_defaults(Tiling *t, const Problem &p, const Machine &machine) const override {
        constexpr int most_keys = 4;
        const int group_size = contract::group_size_of(p);
        // Value in key: many heads share a row, which is bound by multiply-adds; four rows and four keys load least
        // (docs/measured/schedules.md, 13).
        fill(t->row_tile, rows_of_tile(group_size, p.value_in_key == 0 ? rows_for(machine) : rows));
        fill(t->split_len, keys_of_split(p, machine));
        constexpr int long_row = 512;          // bytes
        if (contract::is_attention_layer(p)) { // one row, mostly, and weights from memory, as in a linear layer of few rows
            fill(t->linear_rows, rows);
        }
        const int keys_of_latent = machine.fits(rows * most_keys, most_keys + 1) ? most_keys : keys;
        fill(t->key_unroll, p.value_in_key != 0 ? keys_of_latent : key_bytes(p) >= long_row ? 1 : keys);
    }

    std::vector<std::string> reasons(const Problem &p, const Tiling &t, const Machine &machine) const override {
        return {sentence("row_tile, key_unroll: %d x %d dot products in registers, of %d; the rows share each read of a key", t.row_tile,
                         t.key_unroll, machine.registers),
                sentence("split_len: %d keys are one task; they take %d KB and stay in the L2 cache for all rows", t.split_len,
                         kilobytes(int64_t(key_bytes(p)) * t.split_len))};
    }

    std::string refusal(const Problem &p, const Tiling &t, const Machine &machine) const override {
        const int64_t entries = (p.head_dim + machine.lanes - 1) / machine.lanes;
        return at_most("dot products (row_tile x key_unroll x head_dim)", entries * t.row_tile * t.key_unroll, most_unrolled,
                       "unrolled multiply-adds");
    }

    std::string waste(const Problem &, const Tiling &t, const Machine &machine) const override {
        return needs_registers("dot products (row_tile x key_unroll)", t.row_tile * t.key_unroll, t.key_unroll + 1, machine);
    }

    void add_scratch(ScratchTerms *terms) const override { terms->add_splits(); }
};

} // namespace

const Frame &head_lanes_frame() {
    static const HeadLanes frame;
    return frame;
}

} // namespace polyhead::gen

// The frame "query lanes": prefill on CPUs.
#include <algorithm>
#include <numeric>

#include "../../contract/tensors.h"
#include "frame.h"
#include "limits.h"

namespace polyhead::gen {
namespace {

constexpr int64_t most_chunk_bytes = 1 << 20; // logits of a chunk, and as many bytes of probs

int round_up(int value, int multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

constexpr int enough_sums = 12; // in registers, to hide every delay of a load

// Sums of a product that are in registers together: `rows` vectors of queries by `panel` keys, or columns of value.
struct RegisterPanel {
    int vectors, most;
    bool hides_loads; // the other registers hold what was loaded ahead

    // Machine::sums_at_once() are the least that keep the units busy, where nothing is ever late: 8 on Zen 4. With so few every delay
    // of a load is lost: 8, 10 and 12 sums took 1.05, 1.03 and 1 of the time for each column (AVX2, d 64 to 96, 384 queries, 1 thread).
    double time_of_column(int panel) const {
        const int sums = vectors * panel;
        return hides_loads || sums >= enough_sums ? 1.0 : sums >= 10 ? 1.03 : 1.05;
    }
};

// Half of the registers are sums where that is more than enough. Elsewhere all that a vector of each row and a broadcast leave: 2 x 6 of
// 16. Where multiply and add are two instructions, products take registers, too.
RegisterPanel register_panel(int vectors, const Machine &machine) {
    const int half = machine.registers / 2;
    if (half > enough_sums) {
        return {vectors, std::max(1, half / std::max(2, vectors)), true};
    }
    const int sums = machine.fused ? std::min(enough_sums, machine.registers - vectors - 1) : half;
    return {vectors, std::max(1, sums / vectors), false};
}

// Keys whose scores share registers. Where loads have slots to spare, one vector of queries needs no more sums than keep the multiply-adds
// busy, and a narrow panel wastes less behind the last key: 33 to 36 queries take 0.96 of the time with 4 keys, 64 to 512 1.003 to 1.007 (8
// heads, d 64, 1 thread, Zen 4). Dot products of pairs take longer.
int most_keys_of_panel(const RegisterPanel &registers, int pair, const Machine &machine) {
    return machine.loads_to_spare() && registers.vectors == 1 && pair == 1 ? machine.sums_at_once() : registers.most;
}

// The panel of value columns with the least time, of equals the widest. Columns of padding are work thrown away.
int value_panel_for(int head_dim_v, const RegisterPanel &registers) {
    int best = std::min(head_dim_v, registers.most);
    const auto time_of = [&](int panel) { return round_up(head_dim_v, panel) * registers.time_of_column(panel); };
    for (int panel = best - 1; panel >= registers.most / 2 && panel >= 1; panel--) {
        if (time_of(panel) < time_of(best)) {
            best = panel;
        }
    }
    return best;
}

// The widest that divides a chunk whose length was given.
int key_panel_for(int kv_tile, int most, int pair) {
    int panel = most;
    while (panel > pair && (kv_tile % panel != 0 || panel % pair != 0)) {
        panel--;
    }
    return panel;
}

bool reads_tiles_of_pairs(const Problem &p) {
    return (p.mask != POLYHEAD_NO_MASK && (p.mask_broadcast & POLYHEAD_BROADCAST_Q) == 0) ||
           (p.score_bias != 0 && (p.score_bias_broadcast & POLYHEAD_BROADCAST_Q) == 0);
}

// Two vectors of queries: 2 x 8 scores + 2 query vectors of 32 registers (AVX-512), 2 x 6 of 16 (AVX2). Half a tile computes less that
// causal, a window or the end of a length then throws away, and needs 9 loads for 8 multiply-adds: level where those take a cycle each (8
// heads, d 64, 1 thread, Zen 4: 0.88 of the time at 64 x 64 causal, 0.98 at 1024 x 1024 causal, 0.93 at 197 x 197, 0.99 at 1024 x 1024; 12
// heads, 1024 x 1024, window 256/0 and bias 0.98), too many where two pass at once. Tiles over pairs are transposed 2 % faster in 32 rows,
// and each tile rotates its keys (RoPE): 12 heads, 1024 x 1024 take 0.95 of the time with 32, causal 0.93, with the window 0.88.
int queries_of_tile(const Problem &p, const Machine &machine) {
    const bool short_rows = p.causal != POLYHEAD_NOT_CAUSAL || p.window != 0;
    const bool half = machine.loads_to_spare() && p.rope == POLYHEAD_NO_ROPE && (short_rows || !reads_tiles_of_pairs(p));
    return half ? machine.lanes : 2 * machine.lanes;
}

// A chunk of 128 keys keeps logits and probs (16 KB each at 32 queries) beside the key panel in L1 and L2. Twice as many save a merge
// where that is as many bytes, or the keys are known or causal (AVX2, 512 x 512 causal: 6 %); a fixed length is cut into equal chunks.
// With few registers the merge costs more, but a chunk of short values that stays in L1 is worth more than a merge (AVX2, 512 x 512, time
// with 258 keys / with 132: d 40 1.05, d 48 1.05, d 56 1.02, d 64 0.99, d 128 0.98).
int keys_of_chunk(const Problem &p, const Tiling &t, const Machine &machine) {
    constexpr int long_value = 64;
    const bool long_values = !machine.many_registers() && p.head_dim_v >= long_value;
    const int most = t.q_tile <= machine.lanes || p.seq_len_kv > 0 || p.causal != POLYHEAD_NOT_CAUSAL || long_values ? 256 : 128;
    const int chunks = (p.seq_len_kv + most - 1) / most;
    return round_up(chunks > 0 ? (p.seq_len_kv + chunks - 1) / chunks : most, t.key_panel);
}

// Elements of one multiply-add.
int pair_of(const Problem &p, const Machine &machine) {
    return machine.multiplies_pairs(contract::key_dtype(p)) && p.head_dim % 2 == 0 && p.dropout == 0 ? 2 : 1;
}

class QueryLanes : public Frame {
public:
    const char *name() const override { return "query_lanes"; }
    int schedule_version() const override { return 2; }
    KnobUser knob_user() const override { return KnobUser::query_lanes; }
    bool serves(const Problem &p, const Machine &machine) const override { return !machine.gpu() && contract::computes_out(p); }
    // A fixed length may be served by a frame before it.
    bool wanted(const Problem &p, const Machine &, bool first) const override { return first || p.seq_len_q == 0; }

    // Tiles of bare attention hold whole chunks of keys, and few queries come with few keys. A layer is mostly linear.
    int tiles_from(const Problem &p) const override { return contract::by_heads(p) ? 33 : 0; }

    void fill_defaults(Tiling *t, const Problem &p, const Machine &machine) const override {
        fill(t->pair, pair_of(p, machine));
        fill(t->q_tile, queries_of_tile(p, machine));
        const RegisterPanel registers = register_panel(std::max(1, t->q_tile / machine.lanes), machine);
        fill(t->key_panel, key_panel_for(t->kv_tile, most_keys_of_panel(registers, t->pair, machine), t->pair));
        fill(t->value_panel, value_panel_for(p.head_dim_v, registers));
        fill(t->kv_tile, p.dropout != 0 ? std::lcm(dropout_group, t->key_panel) : keys_of_chunk(p, *t, machine));
    }

    std::vector<std::string> reasons(const Problem &, const Tiling &t, const Machine &machine) const override {
        const int vectors = std::max(1, t.q_tile / machine.lanes), scores = vectors * t.key_panel;
        const int chunk = 2 * 4 * t.q_tile * t.kv_tile;
        return {
            sentence("q_tile, key_panel: %d x %d scores in registers; a step along head_dim is %d multiply-adds and %d loads, of which %d "
                     "and %d begin in a cycle",
                     vectors, t.key_panel, scores, vectors + t.key_panel, machine.multiply_adds, machine.loads),
            sentence(
                "value_panel: %d x %d sums in registers, of %d; a multiply-add takes %d cycles, so %d sums at once keep its units busy",
                vectors, t.value_panel, machine.registers, machine.latency, machine.sums_at_once()),
            sentence("kv_tile: logits and probs of %d keys take %d KB", t.kv_tile, kilobytes(chunk))};
    }

    std::string refusal(const Problem &p, const Tiling &t, const Machine &machine) const override {
        const int vectors = (t.q_tile + machine.lanes - 1) / machine.lanes;
        const bool transposes = p.mask != POLYHEAD_NO_MASK || p.score_bias != 0;
        return first_of({
            t.pair > pair_of(p, machine)
                ? "tiling: pair 2 needs bf16, an even head_dim, no dropout and a machine with dot products of pairs"
                : "",
            groups_refusal(p, t),
            contract::by_heads(p) && t.amx != 0 && !multiplies_by_tiles(p, t) ? "tiling: amx 1 needs pair 2 and no rope" : "",
            t.key_panel % t.pair != 0 ? "tiling: key_panel " + std::to_string(t.key_panel) + " is not a multiple of pair" : "",
            transposes && (t.q_tile & (t.q_tile - 1)) != 0
                ? "tiling: q_tile " + std::to_string(t.q_tile) + " is not a power of 2, which the transposed tiles of masks need"
                : "",
            at_most("scores (q_tile x key_panel)", int64_t(vectors) * t.key_panel, most_sums, "registers"),
            at_most("sums (q_tile x value_panel)", int64_t(vectors) * t.value_panel, most_sums, "registers"),
            at_most("logits (q_tile x kv_tile)", int64_t(4) * t.q_tile * t.kv_tile, most_chunk_bytes, "bytes"),
        });
    }

    // Accumulators, one vector of the other operand per row of them, and a broadcast.
    std::string waste(const Problem &, const Tiling &t, const Machine &machine) const override {
        const int vectors = t.q_tile / machine.lanes;
        return first_of({needs_registers("scores (q_tile x key_panel)", vectors * t.key_panel, vectors + 1, machine),
                         needs_registers("sums (q_tile x value_panel)", vectors * t.value_panel, vectors + 1, machine)});
    }

    bool stages_keys(const Problem &p, const Tiling &t, const Machine &) const override {
        return contract::key_dtype(p) != POLYHEAD_F32 && t.pair == 1;
    }

    void add_scratch(ScratchTerms *terms) const override {
        terms->add_attended();
        terms->add_clean_chunks();
        terms->add_value_words();
    }
};

} // namespace

const Frame &query_lanes_frame() {
    static const QueryLanes frame;
    return frame;
}

} // namespace polyhead::gen

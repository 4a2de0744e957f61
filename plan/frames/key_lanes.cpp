// The frame "key lanes": gradients of attention on CPUs.
#include "key_lanes.h"

#include <algorithm>
#include <numeric>

#include "../../contract/problem.h"
#include "frame.h"
#include "limits.h"

namespace polyhead::gen {
namespace {

constexpr int64_t most_part_bytes = 4 << 20; // transposed key and value of a part, weights and gradients of scores of a tile

int in_whole(int value, int multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

int widest_head(const Problem &p) {
    return std::max(p.head_dim, p.head_dim_v);
}

// Rows and vectors of columns of gradients in registers. A step multiplies each of them, and loads the vectors and a broadcast for each
// row.
struct GradTile {
    int vectors, rows;
};

// The first that has the fewest columns of padding.
GradTile grad_tile(int vectors, const Machine &machine) {
    static constexpr GradTile many[] = {{4, 4}, {5, 4}, {3, 4}, {2, 8}, {1, 8}}, few[] = {{2, 6}, {3, 4}, {1, 6}},
                              two_steps[] = {{2, 4}, {1, 4}};
    const auto best_of = [vectors](const auto &tiles) {
        return *std::min_element(std::begin(tiles), std::end(tiles), [vectors](const GradTile &a, const GradTile &b) {
            return in_whole(vectors, a.vectors) < in_whole(vectors, b.vectors);
        });
    };
    return machine.many_registers() ? best_of(many) : machine.fused ? best_of(few) : best_of(two_steps);
}

// Rows of the register tile of scores: two vectors of keys by as many queries as leave room for the vectors and a broadcast.
int rows_of_scores(const Machine &machine) {
    return machine.many_registers() ? 8 : machine.fused ? 6 : 4;
}

// Transposed key and value of a part are read again for each tile of queries, from the L2 cache. Where multiply-adds take all loads, fewer
// keys are better: 128 instead of 256 take 0.91 to 1 of the time (12 heads, d 64, 512 and 2,048 tokens, and 8 x 12 heads of 128, an Intel
// with AVX-512).
int keys_of_part(const Problem &p, const Tiling &t, const Machine &machine) {
    const int most = !machine.many_registers() ? 192 : machine.loads_to_spare() ? 256 : 128, usual_head = 64;
    const int unit = t.key_panel % t.grad_rows == 0 ? t.key_panel : t.key_panel * t.grad_rows / (t.grad_rows % 2 == 0 ? 2 : 1);
    const int whole = p.dropout != 0 ? std::lcm(unit, dropout_group) : unit;
    return std::max(1, most * usual_head / std::max(widest_head(p), usual_head) / whole) * whole;
}

// Tasks of a call with one batch row: enough for several threads, where the heads alone are few.
int splits_of(const Problem &p) {
    constexpr int tasks = 8;
    return p.num_kv_heads > 0 ? std::max(1, tasks / p.num_kv_heads) : 1;
}

// Elements of one multiply-add. Normalised and rotated heads, what gates multiply, and what linear layers leave to attention are floats.
int gradient_pair_of(const Problem &p, const Machine &machine) {
    const bool as_stored =
        contract::by_heads(p) && p.rope == POLYHEAD_NO_ROPE && !contract::normalises(p) && p.gate == POLYHEAD_NO_GATE && p.head_gate == 0;
    const bool pairs = as_stored && machine.multiplies_pairs(p.dtype);
    return pairs ? 2 : 1;
}

class KeyLanes : public Frame {
public:
    const char *name() const override { return "key_lanes"; }
    int schedule_version() const override { return 1; }
    KnobUser knob_user() const override { return KnobUser::key_lanes; }
    bool serves(const Problem &p, const Machine &machine) const override {
        return !machine.gpu() && contract::is_backward(p) && contract::attends(p);
    }
    bool wanted(const Problem &, const Machine &, bool) const override { return true; }

    void fill_defaults(Tiling *t, const Problem &p, const Machine &machine) const override {
        const GradTile tile = grad_tile((widest_head(p) + machine.lanes - 1) / machine.lanes, machine);
        const bool pairs = machine.fast_pairs && t->unscheduled == 0; // the instructions have vectors only
        fill(t->pair, pairs ? gradient_pair_of(p, machine) : 1);
        fill(t->grad_columns, tile.vectors * machine.lanes);
        fill(t->grad_rows, tile.rows);
        fill(t->score_rows, rows_of_scores(machine));
        fill(t->key_panel, 2 * machine.lanes);
        fill(t->q_tile, machine.many_registers() || !machine.fused ? 64 : 48);
        fill(t->kv_tile, keys_of_part(p, *t, machine));
        fill(t->key_splits, splits_of(p));
    }

    std::string refusal(const Problem &p, const Tiling &t, const Machine &machine) const override {
        const int vectors = t.key_panel / machine.lanes, grad_vectors = t.grad_columns / machine.lanes;
        const int64_t pairs = int64_t(t.q_tile) * t.kv_tile, keys = int64_t(t.kv_tile) * gradient_width(p, t);
        return first_of({
            groups_refusal(p, t),
            t.pair > gradient_pair_of(p, machine)
                ? "tiling: pair 2 needs bf16 in sdpa_backward, no rope, norms or gates, and a machine with dot products of pairs"
                : "",
            t.score_rows % t.pair != 0 ? "tiling: score_rows " + std::to_string(t.score_rows) + " is not a multiple of pair" : "",
            t.q_tile % t.grad_rows != 0 ? "tiling: q_tile " + std::to_string(t.q_tile) + " is not a multiple of grad_rows" : "",
            t.kv_tile % t.grad_rows != 0 ? "tiling: kv_tile " + std::to_string(t.kv_tile) + " is not a multiple of grad_rows" : "",
            at_most("scores (score_rows x key_panel)", int64_t(vectors) * t.score_rows, most_sums, "registers"),
            at_most("sums (grad_rows x grad_columns)", int64_t(grad_vectors) * t.grad_rows, most_sums, "registers"),
            at_most("a part (q_tile x kv_tile, kv_tile x head_dim)", 8 * (pairs + keys), most_part_bytes, "bytes"),
        });
    }

    std::string waste(const Problem &, const Tiling &t, const Machine &machine) const override {
        const int vectors = t.key_panel / machine.lanes, grad_vectors = t.grad_columns / machine.lanes;
        return first_of({needs_registers("scores (score_rows x key_panel)", vectors * t.score_rows, vectors + 1, machine),
                         needs_registers("sums (grad_rows x grad_columns)", grad_vectors * t.grad_rows, grad_vectors + 1, machine)});
    }

    void add_scratch(ScratchTerms *terms) const override { terms->add_gradients(); }
};

} // namespace

int gradient_width(const Problem &p, const Tiling &t) {
    return in_whole(widest_head(p), std::max(1, t.grad_columns));
}

int rows_of_delta(const Problem &p, int lanes) {
    return std::gcd(lanes, p.head_dim_v); // lanes are a power of 2
}

int gradient_words(const Problem &p, const Tiling &t, int lanes) {
    return in_whole(gradient_width(p, t) / std::max(1, t.pair), lanes);
}

int copied_gradient_words(const Problem &p, const Tiling &t, int lanes, int entries) {
    const int words = gradient_words(p, t, lanes);
    return words * t.pair == entries ? 0 : words;
}

bool stages_gradient_rows(const Problem &p, const Tiling &t) {
    return p.dtype != POLYHEAD_F32 || p.head_dim != p.head_dim_v || gradient_width(p, t) != p.head_dim;
}

TableTile table_tile(language::Follows follows, int elements_of_pairs, int q_tile, int kv_tile, int width, int grad_rows) {
    using language::Follows;
    const int elements = follows == Follows::queries     ? q_tile
                         : follows == Follows::diagonals ? q_tile + kv_tile
                         : follows == Follows::pairs     ? elements_of_pairs
                                                         : kv_tile;
    const bool moves = follows != Follows::nothing && follows != Follows::pairs;
    return {elements, in_whole(in_whole(elements + (moves ? width - 1 : 0), width) / width, grad_rows)};
}

const Frame &key_lanes_frame() {
    static const KeyLanes frame;
    return frame;
}

} // namespace polyhead::gen

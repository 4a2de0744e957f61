// Terms of scratch memory, and which a kernel has.
#include "scratch_terms.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "../contract/dtypes.h"
#include "../contract/problem.h"
#include "../contract/weight_layout.h"
#include "frames/frame.h"
#include "frames/key_lanes.h"
#include "score_output_tile.h"

namespace polyhead::gen {

namespace {

constexpr int of_call = -1; // a row_block: not for each batch row
constexpr int64_t f32_bytes = contract::dtype_bytes(POLYHEAD_F32);

int64_t round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

bool same_blocks(const polyhead_scratch_term &a, const polyhead_scratch_term &b) {
    return a.row_block == b.row_block && a.key_block == b.key_block && a.in_window == b.in_window && a.query_bytes == b.query_bytes;
}

// Makes one of the two smallest terms that are counted in the same blocks. Tensors of 2 GB end a call, so large ones stay apart.
void join_two(std::vector<polyhead_scratch_term> *terms) {
    std::stable_sort(terms->begin(), terms->end(), [](const auto &a, const auto &b) { return a.bytes < b.bytes; });
    for (auto term = terms->begin(); term != terms->end(); ++term) {
        const auto other = std::find_if(term + 1, terms->end(), [&](const auto &next) { return same_blocks(*term, next); });
        if (other != terms->end()) {
            other->bytes += term->bytes;
            terms->erase(term);
            return;
        }
    }
    throw std::logic_error("scratch memory: " + std::to_string(terms->size()) + " kinds of blocks, a table of kernels holds " +
                           std::to_string(POLYHEAD_MAX_SCRATCH_TERMS));
}

} // namespace

ScratchTerms::ScratchTerms(const Frame &frame, const Problem &problem, const Tiling &tiling, const Machine &machine)
    : p_(problem), t_(tiling), machine_(machine), heads_as_stored_(frame.keeps_heads_as_stored(tiling)),
      context_as_stored_(frame.keeps_context_as_stored(tiling)) {}

// `elements` of a batch row for each begun block of rows and of keys.
void ScratchTerms::add(int64_t elements, int row_block, int key_block, bool in_window, int64_t bytes) {
    if (elements > 0) {
        terms_.push_back({bytes * elements, row_block, key_block, in_window, 0});
    }
}

polyhead_scratch ScratchTerms::scratch() const {
    std::vector<polyhead_scratch_term> terms = terms_;
    while (terms.size() > POLYHEAD_MAX_SCRATCH_TERMS) {
        join_two(&terms);
    }
    polyhead_scratch scratch = scratch_;
    std::copy(terms.begin(), terms.end(), std::begin(scratch.terms));
    return scratch;
}

void ScratchTerms::add_per_query(int64_t elements, int64_t bytes) {
    add(elements, contract::group_size_of(p_), 0, false, bytes);
}

void ScratchTerms::add_projections() {
    const int64_t panel = POLYHEAD_WEIGHT_PANEL, bytes = heads_as_stored_ ? contract::dtype_bytes(p_.dtype) : f32_bytes;
    const int64_t key_and_value = p_.num_kv_heads * (contract::projects_key(p_) ? round_up(p_.head_dim, panel) : 0) +
                                  p_.num_kv_heads * (contract::projects_value(p_) ? round_up(p_.head_dim_v, panel) : 0);
    const int64_t gates = p_.gate == POLYHEAD_GATE_OF_ENTRIES ? p_.num_heads * round_up(p_.head_dim_v, panel)
                          : p_.gate != POLYHEAD_NO_GATE       ? round_up(p_.num_heads, panel)
                                                              : 0;
    add_per_query(p_.num_heads * round_up(p_.head_dim, panel) + gates, bytes);
    if (p_.cache == 0) {
        return add(key_and_value, 0, 1, false, bytes);
    }
    add_per_query(key_and_value, bytes);
    const bool rows = p_.rope != POLYHEAD_NO_ROPE || p_.query_norm != POLYHEAD_NO_NORM;
    add_per_query(rows ? p_.num_heads * p_.head_dim : 0, bytes); // rotated or normalised queries
}

// Numbers of each head of a token, and rows of heads that no cache has.
void ScratchTerms::add_normalised(bool stages_keys) {
    const bool rotates = rotates_rows(p_, t_, machine_);
    if (!rotates && !contract::normalises(p_)) {
        return;
    }
    const auto numbers = [](int32_t norm) { return norm == POLYHEAD_NO_NORM ? 0 : norm == POLYHEAD_LAYER_NORM ? 2 : 1; };
    const bool together = p_.norm_of_projection != 0;
    const int64_t of_query = numbers(p_.query_norm) * int64_t(together ? 1 : p_.num_heads),
                  of_key = numbers(p_.key_norm) * int64_t(together ? 1 : p_.num_kv_heads) + p_.value_norm * int64_t(p_.num_kv_heads);
    add_per_query(of_query + (p_.cache != 0 ? of_key : 0));
    if (p_.cache != 0) {
        return;
    }
    const int stored = contract::dtype_bytes(p_.dtype);
    const bool layer = contract::is_attention_layer(p_), pairs = heads_as_stored_, backward = contract::is_backward(p_);
    const bool query_as_stored = !backward && (layer ? pairs : machine_.multiplies_pairs(p_.dtype));
    add_per_query(rotates || p_.query_norm != POLYHEAD_NO_NORM ? p_.num_heads * p_.head_dim : 0, query_as_stored ? stored : f32_bytes);
    // Where frames would make floats of the other one later, it becomes floats here.
    const bool floats = layer ? !pairs : stages_keys || machine_.gpu() || backward,
               both = floats && !layer && !backward && p_.dtype != POLYHEAD_F32;
    const bool of_key_rows = rotates || p_.key_norm != POLYHEAD_NO_NORM, any = of_key_rows || p_.value_norm != 0;
    const int64_t key = of_key_rows || both ? p_.head_dim : 0, value = p_.value_norm != 0 || both ? p_.head_dim_v : 0;
    add(of_key, 0, 1);
    add(any ? p_.num_kv_heads * (key + value) : 0, 0, 1, false, floats ? f32_bytes : stored);
}

void ScratchTerms::add_staged_inputs() {
    if (p_.dtype == POLYHEAD_F32 || machine_.gpu() || machine_.multiplies_pairs(contract::weight_dtype(p_))) {
        return;
    }
    add_per_query(p_.embed_dim);
    if (contract::is_attention_layer(p_) && p_.cross) {
        add(p_.kdim + p_.vdim, 0, 1);
    }
}

void ScratchTerms::add_staged_keys() {
    add(p_.num_kv_heads * (p_.head_dim + (p_.value_in_key != 0 ? 0 : p_.head_dim_v)), 0, 1);
}

void ScratchTerms::add_attended() {
    const bool layer = contract::is_attention_layer(p_);
    const int stored = contract::dtype_bytes(p_.dtype);
    const int statistics = int(p_.lse != 0) + int(weights()), columns = p_.head_dim_v + statistics;
    const bool pairs = layer && context_as_stored_; // the context of a layer is kept as it is stored
    if (layer || statistics > 0) {
        add_per_query(p_.num_heads * round_up(columns, machine_.gpu() ? 1 : machine_.lanes), pairs && statistics == 0 ? stored : f32_bytes);
    }
    if (pairs && statistics > 0) {
        add_per_query(p_.num_heads * p_.head_dim_v, stored);
    }
}

void ScratchTerms::add_score_output() {
    if (p_.scores == POLYHEAD_NO_SCORES && p_.weights_mean == 0) {
        return;
    }
    const ScoreOutputTile tile = score_output_tile(machine_, t_);
    const int queries = tile.queries, keys = tile.keys, lanes = tile.lanes;
    add(int64_t(queries) * p_.num_heads * p_.head_dim, queries * contract::group_size_of(p_), 0);
    const int key_block = weights() && machine_.gpu() ? lanes : keys; // sums of probs take whole blocks
    add(int64_t(key_block) * p_.num_kv_heads * p_.head_dim, 0, key_block);
    if (weights() && machine_.gpu()) { // sums of the probs of a row, side by side and one
        add_per_query(p_.num_heads * (lanes + 1));
    } else if (weights()) { // the probs of a task
        scratch_.thread_keys = {f32_bytes * queries * keys, 0, keys, 0, 0};
    }
}

void ScratchTerms::add_clean_chunks() {
    const bool by_pairs = p_.mask != POLYHEAD_NO_MASK || p_.score_bias != 0 || (p_.expression && p_.expression[0]);
    if (by_pairs || multiplies_by_tiles(p_, t_)) {
        add(p_.num_kv_heads * (p_.head_dim_v + 1), 0, t_.kv_tile);
    }
}

void ScratchTerms::add_value_words() {
    if (t_.pair > 1) {
        add(p_.num_kv_heads * p_.head_dim_v, 0, t_.pair);
    }
    if (multiplies_by_tiles(p_, t_)) {
        add(p_.num_kv_heads * p_.head_dim / t_.pair, 0, 1);
    }
}

void ScratchTerms::add_splits() {
    const int64_t tile = int64_t(t_.row_tile) * p_.num_kv_heads * (p_.head_dim_v + 2);
    add(tile, t_.row_tile, t_.split_len, p_.window != 0);
    add(tile, t_.row_tile, 0);
    if (contract::is_attention_layer(p_)) { // the context of a layer, and its result before it is copied
        add_per_query(p_.num_heads * p_.head_dim_v);
        add_per_query(p_.embed_dim, contract::dtype_bytes(p_.dtype));
    }
}

void ScratchTerms::add_gpu_splits() {
    add(p_.num_kv_heads * (p_.head_dim_v + 2), 1, t_.split_len, p_.window != 0);
}

ScratchTerms::TableSums ScratchTerms::table_sums() const {
    using language::Follows;
    TableSums sums;
    Expression expression;
    if (!p_.expression || !Expression::parse(p_.expression, "expression", &expression).empty()) { // told elsewhere
        return sums;
    }
    const int64_t copies = p_.num_heads * int64_t(t_.key_splits > 1 ? t_.key_splits + 1 : 1);
    for (const language::TableRead &read : language::table_reads(*expression.program(), p_)) {
        const int64_t width = gradient_width(p_, t_);
        const bool keys = read.follows == Follows::keys || read.follows == Follows::diagonals,
                   queries = read.follows == Follows::queries || read.follows == Follows::diagonals;
        sums.elements += copies * width * table_tile(read.follows, read.elements(), t_.q_tile, t_.kv_tile, int(width), t_.grad_rows).rows;
        sums.elements += queries ? copies * t_.q_tile : 0; // queries in whole tiles
        sums.of_query += queries ? copies : 0;
        sums.of_key += keys ? copies : 0;
    }
    return sums;
}

void ScratchTerms::add_gradients() {
    const int64_t width = gradient_width(p_, t_);
    const bool pairs = t_.pair > 1, staged = !pairs && stages_gradient_rows(p_, t_),
               gated = !pairs && (p_.gate != POLYHEAD_NO_GATE || p_.head_gate != 0);
    const int64_t of_query = (staged  ? 2
                              : gated ? 1
                                      : 0) *
                             width,                             // query, grad_out
        kept_query = p_.grad_query_norm != 0 ? p_.head_dim : 0, // gradients before the norm
        kept_key = p_.grad_key_norm != 0 ? p_.head_dim : 0;
    const auto words = [&](int entries) { return pairs ? copied_gradient_words(p_, t_, machine_.lanes, entries) : 0; };
    const int64_t of_both = words(p_.head_dim) + words(p_.head_dim_v);
    add_per_query(p_.num_heads * (of_query + kept_query + of_both + 1)); // row_magnitude
    const int side = rows_of_delta(p_, machine_.lanes);
    add(int64_t(p_.num_heads) * side, side * contract::group_size_of(p_), 0); // delta
    add(p_.num_kv_heads * ((staged ? 2 * width : 0) + kept_key + of_both), 0, 1);
    if (pairs) { // words of rows
        add(2 * p_.num_heads * width, t_.pair * contract::group_size_of(p_), 0);
        add(p_.num_kv_heads * width, 0, t_.pair);
    }
    const auto blocks = [&](int32_t bit, int tile) { return (p_.score_bias_broadcast & bit) == 0 ? tile : 1; };
    if (p_.grad_score_bias != 0) {
        const int rows = blocks(POLYHEAD_BROADCAST_Q, t_.q_tile), keys = blocks(POLYHEAD_BROADCAST_KV, t_.kv_tile);
        add(int64_t(rows) * keys * p_.num_heads, rows > 1 ? rows * contract::group_size_of(p_) : 0, keys > 1 ? keys : 0);
    }
    const auto sums = [](int32_t norm) { return norm == POLYHEAD_LAYER_NORM ? 2 : 1; }; // for weight and bias
    const TableSums tables = table_sums();
    add(tables.elements + (p_.grad_alibi != 0 ? p_.num_heads : 0) + p_.num_heads * kept_query * sums(p_.query_norm) +
            p_.num_kv_heads * kept_key * sums(p_.key_norm),
        0, 0);
    add_per_query(tables.of_query);
    add(tables.of_key * t_.kv_tile, 0, t_.kv_tile);
    if (t_.key_splits > 1) {
        const int64_t sums_of_tiles = t_.key_splits * width * p_.num_kv_heads;
        add(sums_of_tiles * 2 * t_.kv_tile, 0, t_.kv_tile * t_.key_splits);
        const int64_t group = contract::group_size_of(p_);
        add(sums_of_tiles * t_.q_tile * group, int(t_.q_tile * group), 0);
    } else { // the sums of a task
        scratch_.thread_keys = {f32_bytes * 2 * width * t_.kv_tile, t_.q_tile, t_.kv_tile, 0, int32_t(f32_bytes * width * t_.q_tile)};
    }
}

void ScratchTerms::add_linear_gradients() {
    const int64_t columns = round_up(p_.embed_dim, POLYHEAD_WEIGHT_PANEL);
    add_per_query(columns);
    add_per_query(round_up(p_.out_features, POLYHEAD_WEIGHT_PANEL));
    add_per_query(p_.dtype != POLYHEAD_F32 ? p_.out_features : 0); // grad_out in rows
    add(columns * p_.out_features, 0, 0);
}

// Of each projection: its weight and grad_out in panels, grad_out and its heads in rows, and the gradient of its input; of each input its
// panels.
void ScratchTerms::add_layer_gradients() {
    const auto in_panels = [](int64_t columns) { return round_up(columns, POLYHEAD_WEIGHT_PANEL); };
    int64_t of_queries = 0, of_keys = 0, weights = 0;
    const auto add_projection = [&](int64_t *of_tokens, int64_t inputs, int64_t outputs, bool owns_input) {
        *of_tokens += in_panels(outputs) + 2 * outputs + inputs + 1 + (owns_input ? in_panels(inputs) : 0); // and a mark of the row
        weights += in_panels(inputs) * outputs;
    };
    const bool cross = p_.cross != 0;
    add_projection(&of_queries, contract::width_of_attended(p_), p_.embed_dim, true);
    of_queries -= p_.embed_dim; // grad_out is no intermediate
    add_projection(&of_queries, p_.embed_dim, contract::width_of_queries(p_), true);
    add_projection(&of_keys, p_.kdim, contract::width_of_keys(p_), cross);
    add_projection(&of_keys, p_.vdim, contract::width_of_values(p_), cross);
    if (p_.gate != POLYHEAD_NO_GATE) {
        add_projection(&of_queries, p_.embed_dim, contract::width_of_gates(p_), false);
    }
    add_per_query(of_queries);
    add(of_keys, 0, 1);
    add(weights, of_call, 0);
}

bool rotates_rows(const Problem &p, const Tiling &t, const Machine &machine) {
    const bool both = p.query_norm != POLYHEAD_NO_NORM && p.key_norm != POLYHEAD_NO_NORM;
    const bool floats = (contract::is_attention_layer(p) || contract::is_backward(p)) && !machine.gpu() && t.pair <= 1;
    return p.rope != POLYHEAD_NO_ROPE && p.cache == 0 && (both || floats);
}

polyhead_scratch scratch_terms(const Frame &frame, const Problem &given, const Tiling &t, const Machine &machine) {
    const Problem p = contract::with_heads(given, contract::group_size_of(given), 1); // free heads: of one key/value head
    ScratchTerms terms(frame, p, t, machine);
    if (contract::has_weights(p)) {
        terms.add_staged_inputs();
    }
    if (!contract::attends(p)) {
        frame.add_scratch(&terms);
        return terms.scratch();
    }
    if (contract::has_weights(p)) {
        terms.add_projections();
    } else if (contract::is_attention_layer(p)) {
        terms.add_layer_gradients();
    }
    const bool stages_keys = frame.stages_keys(p, t, machine);
    const bool normalised = contract::by_heads(p) && (p.key_norm != POLYHEAD_NO_NORM || p.value_norm != 0);
    if ((contract::by_heads(p) || p.cache != 0) && stages_keys && !normalised) {
        terms.add_staged_keys();
    }
    terms.add_normalised(stages_keys);
    terms.add_score_output();
    frame.add_scratch(&terms);
    return terms.scratch();
}

} // namespace polyhead::gen

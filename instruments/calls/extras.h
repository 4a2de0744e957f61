// Masks, modifiers and their tensors in a test call: which are given, in which broadcast shapes, with which values.
#ifndef POLYHEAD_INSTRUMENTS_EXTRAS_H
#define POLYHEAD_INSTRUMENTS_EXTRAS_H

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <polyhead/polyhead.h>

#include "layouts.h"

namespace polyhead::test {

// How a mask or bias lies in memory. Dimensions in front of its rank do not exist.
struct MaskForm {
    int32_t rank = 4;
    std::array<bool, 4> full = {true, true, true, true};          // b, h, q, kv; false: one element
    std::array<bool, 4> stretched = {false, false, false, false}; // b, h, q: a full dimension of stride 0
    bool padded = false;                                          // gaps after rows
};

// What a mask says. random, sparse: 75 % and 8 % of the keys. columns: the same keys are hidden from all rows and heads of a batch row.
// rows: some rows see nothing. documents: keys near the row. sentinels (additive): -1e4, -3.4e38 and -inf, row by row and mixed; a
// boolean mask is then random.
enum class MaskFill { all, random, sparse, columns, rows, documents, sentinels };

// Arguments that a call may leave out; bits of Extras::left_out.
enum Optional : uint32_t {
    leave_out_window = 1,
    leave_out_offsets = 2,
    leave_out_mask = 4,
    leave_out_score_bias = 8,
    leave_out_alibi = 16,
    leave_out_sinks = 32,
    leave_out_positions_q = 64,
    leave_out_positions_kv = 128,
    leave_out_gate = 256,
    leave_out_norms = 512, // their weights and biases
};

// Only what the problem has is looked at, so the defaults serve every problem.
struct Extras {
    uint32_t left_out = leave_out_positions_kv;
    int32_t window_left = 7, window_right = 3;
    int32_t offset_reach = 3; // position offsets lie between -reach and reach
    MaskForm mask, score_bias;
    MaskFill fill = MaskFill::random;
    float softcap = 20.0f;
    bool slopes_per_batch_row = false;
    float sink = 1.0f; // sinks lie around it
};

std::string describe(const Problem &problem, const Extras &extras);
Extras random_extras(const Problem &problem, int64_t seq_len_q, int64_t seq_len_kv, Random &random);

// Sizes and place of one call.
struct CallSize {
    int64_t batch, seq_len_q, seq_len_kv;
    Place place;
};

// The tensors, read-only, and their views in the arguments. args must have query, key and kv_lengths already.
class ExtraTensors {
public:
    ExtraTensors() = default;
    ExtraTensors(const Problem &problem, const Extras &extras, const CallSize &size, uint64_t seed, polyhead_args *args);

private:
    void make_position_tensors(const Problem &problem, const Extras &extras, const CallSize &size, Random &random, polyhead_args *args);
    void make_masks(const Problem &problem, const Extras &extras, const CallSize &size, Random &random, polyhead_args *args);
    void make_head_vectors(const Problem &problem, const Extras &extras, const CallSize &size, Random &random, polyhead_args *args);
    void make_rope(const Problem &problem, const Extras &extras, const CallSize &size, Random &random, polyhead_args *args);
    void make_gate(const Problem &problem, const CallSize &size, Random &random, polyhead_args *args);
    void make_norms(const Problem &problem, const Extras &extras, const CallSize &size, Random &random, polyhead_args *args);
    void add(Tensor tensor, polyhead_tensor *view);

    std::vector<Tensor> tensors_;
    std::vector<polyhead_tensor> expression_views_;
};

} // namespace polyhead::test
#endif

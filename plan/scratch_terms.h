// The tensors that a kernel keeps for a whole call, as terms of its scratch memory.
#pragma once

#include <string>
#include <vector>

#include "../machines/machine.h"
#include "problem.h"
#include "tiling.h"

namespace polyhead::gen {

class Frame;

// Never less than what the schedules allocate outside of tasks; what a thread takes (per_thread) is left 0.
polyhead_scratch scratch_terms(const Frame &frame, const Problem &problem, const Tiling &tiling, const Machine &machine);

// Rows of query and key are rotated once for a call, and not where frames read them: where both are normalised, and rows are made anyway,
// and in a layer without a cache whose heads are floats. Each tile of queries would rotate all keys again (a prefill of 512 tokens, 4
// key/value heads of 64, width 1,024: 1.06 of the time without rotation, 1.02 with rows).
bool rotates_rows(const Problem &problem, const Tiling &tiling, const Machine &machine);

// What frames and the rest of a kernel add to it.
class ScratchTerms {
public:
    ScratchTerms(const Frame &frame, const Problem &problem, const Tiling &tiling, const Machine &machine);

    // Inputs of layers, keys and values of 16 bits as floats.
    void add_staged_inputs();
    void add_staged_keys();
    void add_normalised(bool stages_keys);
    // The heads of a layer, in panels.
    void add_projections();
    // The attention output where out does not take it at once: a layer, or statistics of the rows beside out, one more column each.
    void add_attended();
    // An output of scores keeps queries and keys, both in whole blocks; two outputs have them one after the other.
    void add_score_output();
    // The largest value of every column of a chunk, where some of its keys may be left out one by one, and of the chunk.
    void add_clean_chunks();
    // Values of neighbouring keys that share words.
    void add_value_words();
    // Partials of every split, and what they are merged into.
    void add_splits();
    // The same on a GPU, where rows are not padded to tiles, and what they are merged into is out.
    void add_gpu_splits();

    // Of a backward call: rows as floats or words, numbers of rows, and the sums of split heads.
    void add_gradients();
    // Of one linear layer: input, weight and grad_out in panels.
    void add_linear_gradients();
    // Of all linear layers of a layer of attention, and what they leave for each other.
    void add_layer_gradients();

    // In as many terms as a table of kernels holds.
    polyhead_scratch scratch() const;

private:
    // Lines of sums for gradients of tensors of the expression: elements of a batch row, and for each of its queries and keys.
    struct TableSums {
        int64_t elements = 0, of_query = 0, of_key = 0;
    };
    TableSums table_sums() const;
    void add(int64_t elements, int row_block, int key_block, bool in_window = false, int64_t bytes = 4);
    void add_per_query(int64_t elements, int64_t bytes = 4);
    bool weights() const { return p_.scores == POLYHEAD_WEIGHTS || p_.weights_mean != 0; }

    const Problem &p_;
    const Tiling &t_;
    const Machine &machine_;
    bool heads_as_stored_, context_as_stored_; // of a layer
    polyhead_scratch scratch_{};               // without its terms
    std::vector<polyhead_scratch_term> terms_;
};

} // namespace polyhead::gen

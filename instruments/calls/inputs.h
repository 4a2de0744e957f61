// Deterministic test inputs of one call: tensors in any layout, ordinary or hostile values, in guarded memory.
#ifndef POLYHEAD_INSTRUMENTS_INPUTS_H
#define POLYHEAD_INSTRUMENTS_INPUTS_H

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

#include "../reference/visibility.h"
#include "call_tensors.h"
#include "extras.h"
#include "int8_cache.h"
#include "layouts.h"
#include "outputs.h"
#include "weights.h"

namespace polyhead::test {

// What the numbers are: ordinary; logits of a standard deviation near 8; logits up to 5e5, far apart; values up to 1e30; values near 1,
// whose sums over keys only grow.
enum class Values { normal, peaked, extreme_logits, huge_values, values_near_one };

// The run-time side of a call.
struct Shape {
    int64_t batch = 1;
    int64_t seq_len_q = 1;        // linear: rows
    int64_t seq_len_kv = 1;       // self-attention layers: must equal seq_len_q
    std::vector<int32_t> lengths; // per batch row; empty = tensor absent. With a cache: valid keys before the call; empty = any
    Layout query = Layout::bhsd, key = Layout::bhsd, value = Layout::bhsd, out = Layout::bhsd;
    Place place = Place::inside;
    Values values = Values::normal;
    bool poison = false;     // NaN, infinities and huge numbers in every key and value that no row may see
    int64_t poison_key = -1; // this key and value row is NaN although some rows see it
    // sdpa_backward: rows of query, out and grad_out that see no key are poisoned with the keys; and this row is NaN although it sees some.
    int64_t poison_query = -1;
    std::optional<float> softmax_scale;
    Alignment alignment = Alignment::of_problem;
    Extras extras; // masks and modifiers
    uint64_t seed = 1;
};

std::string describe(const Problem &problem, const Shape &shape);

// All tensors of one call. The inputs are read-only memory; the outputs are filled with the canary.
class Inputs {
public:
    Inputs(const Problem &problem, const Shape &shape);
    const polyhead_args &args() const { return args_; }
    polyhead_args &args() { return args_; }
    // The same with f32 tensors of the same values and keys without pages, for the reference.
    const polyhead_args &reference_args() const { return reference_args_; }
    const Shape &shape() const { return shape_; }
    // Whether this token of keys was filled with poison (not poison_key). h_kv is 0 for layers.
    bool poisoned(int64_t b, int64_t h_kv, int64_t n) const;
    // Output elements in the order of the shape, as floats; an absent output has none.
    std::vector<float> out() const { return read(&polyhead_args::out); }
    std::vector<float> lse() const { return read(&polyhead_args::lse); }
    std::vector<float> read(polyhead_tensor polyhead_args::*output) const { return outputs_.read(output); }
    // The elements of a view of one of them.
    static std::vector<float> read(const polyhead_tensor &view) { return read_view(view); }
    // "out[5] was not written" for the first element that still holds the canary, or nothing.
    std::string unwritten() const { return outputs_.unwritten(); }
    // True when nothing but the elements of the outputs, and the new rows of caches, was written. Destroys them: the caches are as they
    // were.
    bool gaps_untouched();
    // True when no element of an output or a cache was written either.
    bool outputs_untouched() const;
    // Rows that the call puts into cache_tensors[i], [B,H_kv,T,d], or those of one batch row, as floats.
    std::vector<float> new_rows(size_t i) const;
    std::vector<float> new_rows(size_t i, int64_t b) const;

private:
    void make_sdpa(const Problem &problem);
    void fill_value(const Problem &problem, Random &random);
    void make_mha(const Problem &problem);
    void make_caches(const Problem &problem);
    void fit_lengths(const Problem &problem);
    void make_linear(const Problem &problem);
    void make_lengths(const Problem &problem);
    void make_page_table(const Problem &problem);
    // The same rows of keys in the pages that the table names, among pages of NaN, or of the integer -128.
    Tensor in_pages(const Tensor &keys, int64_t page_size, Layout layout) const;
    // Keys and values as integers with scales: what the floats become, and what the call gets.
    void make_int8(const Problem &problem);
    void add_int8(const Problem &problem, const Int8Rows &rows, Layout layout, polyhead_tensor *integers, polyhead_tensor *scales);
    void make_score_outputs(const Problem &problem);
    void poison(const Problem &problem);
    // Gradients: the outputs, what the forward call wrote, and the gradient of its result.
    void make_gradient_outputs(const Problem &problem);
    void make_modifier_gradients(const Problem &problem);
    void make_expression_gradients(const Problem &problem);
    void poison_queries(const Problem &problem);
    void make_forward_results(const Problem &problem);
    // Calls visit(element of the memory of a cache) for the first element of each new row of a batch row.
    template <class Visit> void for_each_new_row(size_t i, int64_t b, Visit visit) const;
    void store(int32_t dtype, Tensor &values, Tensor &stored, polyhead_tensor &argument);

    Shape shape_;
    polyhead_args args_{}, reference_args_{};
    Tensor query_, key_, value_, kv_lengths_;         // inputs in f32
    Tensor page_table_, key_pages_, value_pages_;     // what a call with pages has instead of the keys above
    std::vector<int32_t> pages_;                      // of all keys, valid or not: the page of each block of keys of each batch row
    Tensor stored_query_, stored_key_, stored_value_; // the same in 16 bits, when the problem has them
    Tensor out_, lse_, grad_out_;                     // gradients: in f32 what is an input of theirs
    Tensor stored_out_, stored_grad_out_;
    Int8Rows int8_key_, int8_value_; // keys of 8 bits
    std::vector<Tensor> int8_pages_;
    ExtraTensors extras_;
    OutputTensors outputs_;
    std::array<Tensor, cache_tensors.size()> caches_;                   // in that order
    std::array<std::vector<char>, cache_tensors.size()> caches_before_; // their bytes before a call
    int64_t page_size_ = 0;
    std::optional<SeenKeys> seen_;     // when unseen keys are poisoned
    std::vector<uint8_t> nan_queries_; // [B,H,T_q]: rows of out and grad_out that are to be poisoned
};

} // namespace polyhead::test
#endif

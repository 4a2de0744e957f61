// The formula, evaluated plainly: in double it is the truth of every test, in float the "plain formula" of the tolerance.
#ifndef POLYHEAD_INSTRUMENTS_REFERENCE_H
#define POLYHEAD_INSTRUMENTS_REFERENCE_H

#include <array>
#include <cstdint>
#include <vector>

#include <polyhead/polyhead.h>

namespace polyhead::test {

// Query positions to evaluate, per group. Groups: sdpa one per (batch row, head), mha one per batch row, linear one.
using RowSets = std::vector<std::vector<int64_t>>;

// Dense results in the order of the tensors' shapes; rows that were not asked for stay 0.
template <class Real> struct Answer {
    std::vector<Real> out;         // sdpa [B,H,T_q,d_v], mha [B,T_q,D], linear [M,N]
    std::vector<Real> lse;         // [B,H,T_q]; natural logarithm; empty for linear
    std::vector<double> max_value; // per row of out: largest |gate * value| that it attends to (mha: projected, over all heads)
    std::vector<uint8_t> empty;    // [B,H,T_q]: 1 where the row sees no key
    std::vector<double> largest;   // [B,H,T_q]: absolute value of the largest logit of the row
    std::vector<double> rounding;  // [B,H,T_q]: change of a weight, to first order and relative, by rounding of the logits to f32
    std::vector<double> spread;    // [B,H,T_q]: sum of weight * (1 - weight)
    std::vector<double> products;  // [B,H,T_q]: root of the sum of (weight * largest |value| of the key)^2, times |gate|
    std::vector<double>
        of_heads; // [B,H,T_q]: what rounding each entry of query and key by a part of itself brings into a logit, as its multiple
    std::vector<Real> scores;       // [B,H,T_q,T_kv] at the stage of the problem, or nothing
    std::vector<Real> weights_mean; // [B,T_q,T_kv], or nothing
    // [B,H_kv,T,d] and [B,H_kv,T,d_v]: what a layer puts into its caches, in the order of cache_tensors; or nothing.
    std::array<std::vector<Real>, 2> new_rows;
};

int64_t num_groups(const Problem &problem, const polyhead_args &args);
int64_t num_rows(const polyhead_args &args); // query positions (linear: rows)
int64_t num_keys(const Problem &problem, const polyhead_args &args);
int64_t batch_size(const Problem &problem, const polyhead_args &args);

RowSets all_rows(const Problem &problem, const polyhead_args &args);
// First and last rows and a deterministic choice of others, so that about max_flops are spent. Each group has a choice of its own, but
// where a mean over heads is an output all heads of a batch row have the same.
RowSets sample_rows(const Problem &problem, const polyhead_args &args, uint64_t seed, double max_flops = 1e8);

// What the plain formula rounds to a 16-bit storage type: scores, probs, out and, in a layer, projected heads and context; or projected
// heads alone, on which the f32 outputs of a layer (lse, scores, weights) depend; or only what goes into the caches of a layer.
enum class Rounded { everything, heads, new_rows };

// How the formula is evaluated: the 16-bit storage type that it rounds to, what it rounds, and the quarter at which sums over
// head_dim and over the inputs of projections begin, 0 to 3. The formula says nothing of the order of its sums. Heads and rows of caches
// are rounded in a unit: another one, from 1 to below 2, gives other roundings, as large as those of 1.
struct Evaluation {
    int32_t storage = POLYHEAD_F32;
    Rounded rounded = Rounded::everything;
    int first_quarter = 0;
    float unit = 1;
    bool behind_rotation = false; // where a normalised query or key is rounded, which the formula does not say either
};

// Evaluates the rows. Rows of a mean over heads are whole only if all heads have them. Reads args as polyhead_run does, and the weights
// unpacked; both in f32, whatever the problem stores (see Inputs::reference_args). Real is double or float.
template <class Real>
Answer<Real> evaluate(const Problem &problem, const polyhead_args &args, const polyhead_weight_tensors &weights, const RowSets &rows,
                      const Evaluation &how = {});

extern template Answer<double> evaluate(const Problem &, const polyhead_args &, const polyhead_weight_tensors &, const RowSets &,
                                        const Evaluation &);
extern template Answer<float> evaluate(const Problem &, const polyhead_args &, const polyhead_weight_tensors &, const RowSets &,
                                       const Evaluation &);

// Address of an f32 element.
inline float *element(const polyhead_tensor &t, int64_t i0, int64_t i1 = 0, int64_t i2 = 0, int64_t i3 = 0) {
    const int64_t index[4] = {i0, i1, i2, i3};
    int64_t offset = 0;
    for (int dim = 0; dim < t.rank; dim++) {
        offset += index[dim] * t.stride[dim];
    }
    return static_cast<float *>(t.data) + offset;
}

} // namespace polyhead::test
#endif

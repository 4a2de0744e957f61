// The same encoder evaluated in float64 by plain loops: what the generated kernels are held against.
#ifndef EXAMPLES_010_MINILM_ENCODER_F64_H
#define EXAMPLES_010_MINILM_ENCODER_F64_H

#include <array>
#include <vector>

#include "model.h"

namespace minilm {

// One sentence of `length` tokens; every matrix is [length, embed_dim].
struct EncodedF64 {
    std::array<std::vector<double>, num_layers + 1> hidden;
    std::vector<double> embedding; // [embed_dim], of length 1
};

// One attention layer (projections, heads, output projection) over the tokens of one sentence.
std::vector<double> attention_f64(const Layer &layer, const std::vector<double> &input);
// The rest of a layer, in place: hidden + attended and its LayerNorm, the feed-forward part and its LayerNorm.
void rest_of_layer_f64(const Layer &layer, const std::vector<double> &attended, std::vector<double> *hidden);
// The whole encoder over one sentence without padding.
EncodedF64 encode_f64(const Model &model, const int32_t *ids, int length);

} // namespace minilm
#endif

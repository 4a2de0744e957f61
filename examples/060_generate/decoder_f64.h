// The same model in float64, over whole texts, without a cache.
#ifndef GENERATE_DECODER_F64_H
#define GENERATE_DECODER_F64_H

#include "model.h"

namespace generate {

// Logits [T, vocabulary] of all tokens. No token sees a later one, so row t is what a text that ends with token t gives.
std::vector<double> exact_logits(const Model &model, const std::vector<int32_t> &tokens);

} // namespace generate
#endif

// The whole encoder: attention layers and linear layers by generated kernels, the small rest in plain C++.
#ifndef EXAMPLES_010_MINILM_ENCODER_H
#define EXAMPLES_010_MINILM_ENCODER_H

#include <array>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

#include "kernels.h"
#include "model.h"

namespace minilm {

struct Encoded {
    std::array<std::vector<float>, num_layers + 1> hidden; // [batch, seq_len, embed_dim]: after the embeddings, after each layer
    std::array<std::vector<float>, num_layers> attention;  // what the attention layer alone made of hidden[layer]
    std::vector<float> embedding;                          // [batch, embed_dim], of length 1
};

// How a layer continues after its attention: by generated linear kernels, or in float64, so that the attention kernels are the only source
// of error.
enum class FeedForward { generated, float64 };

class Encoder {
public:
    // Packs the weights once, and puts them on the device of the kernels. Returns "", or one sentence.
    std::string init(const Model &model, const Kernels &kernels);
    // Token ids to sentence embeddings. Returns "", or one sentence.
    std::string run(const Batch &batch, Encoded *encoded, FeedForward feed_forward = FeedForward::generated) const;
    // One attention layer by the generated kernel: input and out are [batch, seq_len, embed_dim] in dtype().
    polyhead::Status attention(int layer, const Batch &batch, const polyhead::TensorView &input,
                               const polyhead::MutableTensorView &out) const;
    const Kernels &kernels() const { return kernels_; }
    polyhead::DType dtype() const { return static_cast<polyhead::DType>(kernels_.attention->problem.dtype); }
    // Of all packed weights.
    size_t weights_bytes() const;

private:
    polyhead::Status pack(const polyhead::Kernel &kernel, const polyhead::WeightTensors &tensors, polyhead::Weights *weights) const;
    // rows [tokens, in_features] to [tokens, out_features].
    polyhead::Status run_linear(const polyhead::Kernel &kernel, const polyhead::Weights &weights, std::vector<float> *rows) const;
    std::string run_layer(int layer, const Batch &batch, Encoded *encoded, FeedForward feed_forward) const;

    Model model_;
    Kernels kernels_;
    struct Packed {
        polyhead::Weights attention, ffn_up, ffn_down;
    };
    std::array<Packed, num_layers> packed_;
};

} // namespace minilm
#endif

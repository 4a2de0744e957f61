// Runs the model with polyhead: packed tokens of all active sequences, keys and values in the pages of one pool.
#ifndef GENERATE_DECODER_H
#define GENERATE_DECODER_H

#include <vector>

#include <polyhead/cache.h>

#include "model.h"

namespace generate {

// One text. Its tokens are the prompt, and what was generated.
struct Sequence {
    std::vector<int32_t> tokens;
    int32_t cached = 0; // tokens whose keys and values are in the cache
    std::vector<int32_t> pages;
};

class Decoder {
public:
    // Pages for so many tokens in all.
    Decoder(const Model &model, int64_t tokens);
    const polyhead::Status &status() const { return status_; }

    // Puts the next counts[b] tokens of each sequence through the model, and their keys and values into the cache. logits [B, vocabulary]:
    // of the last of these tokens. Takes pages when a sequence needs them; refused without a change when there are none.
    polyhead::Status step(const std::vector<Sequence *> &batch, const std::vector<int32_t> &counts, std::vector<float> *logits);
    // Gives the pages of a sequence back.
    polyhead::Status leave(Sequence *sequence);

    double weight_bytes() const;
    static double cache_bytes(int64_t tokens); // of keys and values of so many tokens, in all layers

private:
    struct Packed {
        polyhead::Weights qkv, out, gate_up, down;
    };
    struct Batch;

    polyhead::Status take_pages(const std::vector<Sequence *> &batch, const std::vector<int32_t> &counts);
    polyhead::Status attention(size_t layer, const Batch &batch, std::vector<float> *x);
    polyhead::Status mlp(size_t layer, std::vector<float> *x);

    const Model &model_;
    std::vector<Packed> packed_;
    polyhead::Weights logits_;
    std::vector<std::vector<float>> keys_, values_; // of each layer: [pages, num_kv_heads, page_size, head_dim]
    int64_t pages_;
    polyhead::PagePool pool_;
    polyhead::Status status_;
};

} // namespace generate
#endif

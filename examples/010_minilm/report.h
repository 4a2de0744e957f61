// What the example says about a run: errors, similarities, speed.
#ifndef EXAMPLES_010_MINILM_REPORT_H
#define EXAMPLES_010_MINILM_REPORT_H

#include <array>
#include <string>
#include <vector>

#include "encoder.h"

namespace minilm {

// Against a float64 evaluation, over the real tokens.
struct Errors {
    std::array<double, num_layers> attention{};  // attention layer alone, given the same f32 input, which bf16 rounds
    std::array<double, num_layers + 1> hidden{}; // the whole encoder up to there
    double cosine = 1;                           // of the embeddings, the smallest
};
Errors errors_against_f64(const Model &model, const Batch &batch, const Encoded &encoded);
void print_errors(const Encoder &encoder, const Errors &errors);

// Cosines between all sentences; texts may be empty.
void print_similarity(const Batch &batch, const Encoded &encoded, const std::vector<std::string> &texts);

// What an encoder made of the batch.
struct Run {
    const Encoder *encoder;
    const Encoded *encoded;
};
// Time per attention layer of each encoder against the peak of its type, all measured in turns; on a device the time alone. Returns "", or
// one sentence.
std::string print_speed(const std::vector<Run> &runs, const Batch &batch, int rounds);

// Holds the encoder against hidden_states.npy [layers+1, batch, seq_len, embed_dim] and embedding.npy [batch, embed_dim] of a
// directory. With the generated attention layers and float64 after them every hidden state must be within 2e-5, of padding rows, which
// nothing reads and which magnify every rounding, within 6e-5 (the error of NumPy in f32); all in f32 the rows of real tokens must.
// Embeddings' cosine at least 1 - 1e-6. In bf16: 0.05 on the rows of real tokens, and 1 - 2e-4. Returns "", or one sentence.
std::string check_against(const std::string &directory, const Encoder &encoder, const Batch &batch);

} // namespace minilm
#endif

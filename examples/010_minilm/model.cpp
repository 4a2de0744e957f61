// Finds the model's tensors by their names in the checkpoint, and reads token ids.
#include "model.h"

#include "../common/npy.h"

namespace minilm {
namespace {

// Looks tensors up until the first error, which it keeps.
class Loader {
public:
    explicit Loader(const examples::SafeTensors &file) : file_(file) {}

    const float *tensor(const std::string &name, const std::vector<uint64_t> &shape) {
        const float *data = nullptr;
        if (error_.empty())
            error_ = file_.f32(name, shape, &data);
        return data;
    }
    Linear linear(const std::string &name, uint64_t out_features, uint64_t in_features) {
        return {tensor(name + ".weight", {out_features, in_features}), tensor(name + ".bias", {out_features})};
    }
    LayerNorm layer_norm(const std::string &name) { return {tensor(name + ".weight", {embed_dim}), tensor(name + ".bias", {embed_dim})}; }
    const std::string &error() const { return error_; }

private:
    const examples::SafeTensors &file_;
    std::string error_;
};

} // namespace

std::string load_model(const examples::SafeTensors &file, Model *model) {
    Loader load(file);
    model->word = load.tensor("embeddings.word_embeddings.weight", {vocab_size, embed_dim});
    model->position = load.tensor("embeddings.position_embeddings.weight", {max_seq_len, embed_dim});
    model->token_type = load.tensor("embeddings.token_type_embeddings.weight", {2, embed_dim});
    model->embedding_norm = load.layer_norm("embeddings.LayerNorm");
    for (int i = 0; i < num_layers; i++) {
        const std::string prefix = "encoder.layer." + std::to_string(i) + ".";
        Layer &layer = model->layers[i];
        layer.query = load.linear(prefix + "attention.self.query", embed_dim, embed_dim);
        layer.key = load.linear(prefix + "attention.self.key", embed_dim, embed_dim);
        layer.value = load.linear(prefix + "attention.self.value", embed_dim, embed_dim);
        layer.out = load.linear(prefix + "attention.output.dense", embed_dim, embed_dim);
        layer.attention_norm = load.layer_norm(prefix + "attention.output.LayerNorm");
        layer.ffn_up = load.linear(prefix + "intermediate.dense", ffn_dim, embed_dim);
        layer.ffn_down = load.linear(prefix + "output.dense", embed_dim, ffn_dim);
        layer.ffn_norm = load.layer_norm(prefix + "output.LayerNorm");
    }
    return load.error();
}

std::string load_batch(const std::string &ids_path, const std::string &lengths_path, Batch *batch) {
    std::vector<int64_t> shape, lengths_shape;
    std::string error = examples::read_npy(ids_path, &shape, &batch->ids);
    if (error.empty())
        error = examples::read_npy(lengths_path, &lengths_shape, &batch->lengths);
    if (!error.empty())
        return error;
    if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || shape[1] > max_seq_len)
        return ids_path + " must be [sentences, 1.." + std::to_string(max_seq_len) + " tokens].";
    if (lengths_shape != std::vector<int64_t>{shape[0]})
        return lengths_path + " must hold one length per sentence of " + ids_path + ".";
    batch->batch = shape[0];
    batch->seq_len = shape[1];
    for (int32_t id : batch->ids)
        if (id < 0 || id >= vocab_size)
            return ids_path + ": token id " + std::to_string(id) + " is outside the vocabulary of 30522.";
    for (int32_t length : batch->lengths)
        if (length < 1 || length > batch->seq_len)
            return lengths_path + ": length " + std::to_string(length) + " is outside 1.." + std::to_string(batch->seq_len) + ".";
    return "";
}

} // namespace minilm

// One step of the model: per layer a joined projection, rotation, append, attention over pages, output projection, and the MLP.
#include "decoder.h"

#include <algorithm>
#include <cmath>

#include <generate_attention.h>
#include <generate_down.h>
#include <generate_gate_up.h>
#include <generate_logits.h>
#include <generate_out.h>
#include <generate_qkv.h>

namespace generate {

using polyhead::Status;
using polyhead::view;

namespace {

// A page for every page_size tokens.
int64_t pages_of(int64_t tokens) {
    return (tokens + page_size - 1) / page_size;
}

Status pack(const polyhead::Kernel &kernel, const std::vector<float> &matrix, int64_t out, int64_t in, polyhead::Weights *packed) {
    polyhead::WeightTensors tensors;
    tensors.out_proj = view(matrix.data(), {out, in});
    return kernel.pack(tensors, packed);
}

// y [rows, out] = x [rows, in] W^T
Status linear(const polyhead::Kernel &kernel, const polyhead::Weights &weights, const std::vector<float> &x, int64_t in, int64_t out,
              std::vector<float> *y) {
    const int64_t rows = static_cast<int64_t>(x.size()) / in;
    y->resize(static_cast<size_t>(rows * out));
    polyhead::LinearArgs args;
    args.input = view(x.data(), {rows, in});
    args.weights = &weights;
    args.out = view(y->data(), {rows, out});
    return kernel.run(args);
}

// RMSNorm of every row.
std::vector<float> normalised(const std::vector<float> &x, const std::vector<float> &weights) {
    std::vector<float> y(x.size());
    for (size_t row = 0; row < x.size(); row += embed_dim) {
        float sum = 0;
        for (size_t i = 0; i < embed_dim; i++)
            sum += x[row + i] * x[row + i];
        const float scale = 1.0f / std::sqrt(sum / embed_dim + 1e-5f);
        for (size_t i = 0; i < embed_dim; i++)
            y[row + i] = x[row + i] * scale * weights[i];
    }
    return y;
}

void add(const std::vector<float> &y, std::vector<float> *x) {
    for (size_t i = 0; i < y.size(); i++)
        (*x)[i] += y[i];
}

// A part of the columns of qkv [total, qkv_dim], as [1,heads,count,head_dim] of the tokens from `first`.
polyhead::MutableTensorView heads_of(std::vector<float> *qkv, int64_t column, int64_t heads, int64_t first, int64_t count) {
    return view(qkv->data() + first * qkv_dim + column, {1, heads, count, head_dim}, {count * qkv_dim, head_dim, qkv_dim, 1});
}

} // namespace

// What all layers of a step share.
struct Decoder::Batch {
    std::vector<int32_t> counts, begins, before, after; // of each sequence: new tokens; where they begin; valid keys before and after
    std::vector<int32_t> positions;                     // of each token
    std::vector<int32_t> table;                         // [B, columns]
    int64_t columns = 0;
    int64_t sequences() const { return static_cast<int64_t>(counts.size()); }
    int64_t total() const { return static_cast<int64_t>(positions.size()); }
};

Decoder::Decoder(const Model &model, int64_t tokens) : model_(model), pages_(pages_of(tokens)) {
    status_ = polyhead::PagePool::make(static_cast<int32_t>(pages_), &pool_);
    for (const Layer &layer : model.layers) {
        Packed packed;
        for (const Status &status : {pack(generate_qkv, layer.qkv, qkv_dim, embed_dim, &packed.qkv),
                                     pack(generate_out, layer.out, embed_dim, query_dim, &packed.out),
                                     pack(generate_gate_up, layer.gate_up, 2 * hidden_dim, embed_dim, &packed.gate_up),
                                     pack(generate_down, layer.down, embed_dim, hidden_dim, &packed.down)})
            status_ = status_.ok() ? status : status_;
        packed_.push_back(std::move(packed));
        keys_.emplace_back(static_cast<size_t>(pages_ * key_dim * page_size));
        values_.emplace_back(static_cast<size_t>(pages_ * key_dim * page_size));
    }
    const Status status = pack(generate_logits, model.logits, vocabulary, embed_dim, &logits_);
    status_ = status_.ok() ? status : status_;
}

double Decoder::weight_bytes() const {
    double bytes = static_cast<double>(logits_.bytes());
    for (const Packed &one : packed_)
        bytes += static_cast<double>(one.qkv.bytes() + one.out.bytes() + one.gate_up.bytes() + one.down.bytes());
    return bytes;
}

double Decoder::cache_bytes(int64_t tokens) {
    return static_cast<double>(tokens * 2 * key_dim * num_layers) * sizeof(float);
}

Status Decoder::take_pages(const std::vector<Sequence *> &batch, const std::vector<int32_t> &counts) {
    std::vector<int32_t> needed;
    int32_t all = 0;
    for (size_t b = 0; b < batch.size(); b++) {
        needed.push_back(static_cast<int32_t>(pages_of(batch[b]->cached + counts[b])) - static_cast<int32_t>(batch[b]->pages.size()));
        all += needed.back();
    }
    std::vector<int32_t> taken(static_cast<size_t>(all));
    const Status status = pool_.take(all, taken.data()); // all or none
    if (!status.ok())
        return status;
    auto next = taken.begin();
    for (size_t b = 0; b < batch.size(); b++) {
        batch[b]->pages.insert(batch[b]->pages.end(), next, next + needed[b]);
        next += needed[b];
    }
    return status;
}

Status Decoder::attention(size_t layer, const Batch &batch, std::vector<float> *x) {
    const int64_t total = batch.total(), half = head_dim / 2;
    std::vector<float> qkv, joined(static_cast<size_t>(total * query_dim)), y;
    Status status = linear(generate_qkv, packed_[layer].qkv, normalised(*x, model_.layers[layer].norm_attention), embed_dim, qkv_dim, &qkv);
    polyhead::Rotation rotation;
    rotation.cos = view(model_.cos.data(), {max_seq_len, half});
    rotation.sin = view(model_.sin.data(), {max_seq_len, half});
    polyhead::Cache cache;
    cache.key = view(keys_[layer].data(), {pages_, num_kv_heads, page_size, head_dim});
    cache.value = view(values_[layer].data(), {pages_, num_kv_heads, page_size, head_dim});
    for (int64_t b = 0; b < batch.sequences() && status.ok(); b++) { // keys are rotated where they are stored
        const auto i = static_cast<size_t>(b);
        cache.page_table = view(batch.table.data() + b * batch.columns, {1, batch.columns});
        polyhead::NewKeys keys;
        keys.key = heads_of(&qkv, query_dim, num_kv_heads, batch.begins[i], batch.counts[i]);
        keys.value = heads_of(&qkv, query_dim + key_dim, num_kv_heads, batch.begins[i], batch.counts[i]);
        keys.lengths = view(&batch.before[i], {1});
        keys.rotation = rotation;
        status = polyhead::append(cache, keys);
    }
    const polyhead::MutableTensorView query = heads_of(&qkv, 0, num_heads, 0, total);
    rotation.positions = view(batch.positions.data(), {1, total});
    status = status.ok() ? polyhead::rotate(query, rotation, query) : status;
    polyhead::SdpaArgs args;
    args.query = query;
    args.key = cache.key;
    args.value = cache.value;
    args.page_table = view(batch.table.data(), {batch.sequences(), batch.columns});
    args.kv_lengths = view(batch.after.data(), {batch.sequences()});
    args.cu_seqlens_q = view(batch.begins.data(), {batch.sequences() + 1});
    args.out = polyhead::from_packed(view(joined.data(), {total, num_heads, head_dim}));
    status = status.ok() ? generate_attention.run(args) : status;
    status = status.ok() ? linear(generate_out, packed_[layer].out, joined, query_dim, embed_dim, &y) : status;
    add(y, x);
    return status;
}

Status Decoder::mlp(size_t layer, std::vector<float> *x) {
    std::vector<float> both, hidden, y;
    Status status =
        linear(generate_gate_up, packed_[layer].gate_up, normalised(*x, model_.layers[layer].norm_mlp), embed_dim, 2 * hidden_dim, &both);
    for (size_t row = 0; row < both.size(); row += 2 * hidden_dim)
        for (size_t i = row; i < row + hidden_dim; i++)
            hidden.push_back(both[i] / (1.0f + std::exp(-both[i])) * both[i + hidden_dim]);
    status = status.ok() ? linear(generate_down, packed_[layer].down, hidden, hidden_dim, embed_dim, &y) : status;
    add(y, x);
    return status;
}

Status Decoder::step(const std::vector<Sequence *> &sequences, const std::vector<int32_t> &counts, std::vector<float> *logits) {
    Status status = take_pages(sequences, counts);
    if (!status.ok())
        return status;
    Batch batch;
    batch.counts = counts;
    batch.begins = {0};
    std::vector<float> x;
    for (size_t b = 0; b < sequences.size(); b++) {
        const Sequence &sequence = *sequences[b];
        batch.columns = std::max(batch.columns, static_cast<int64_t>(sequence.pages.size()));
        batch.begins.push_back(batch.begins.back() + counts[b]);
        batch.before.push_back(sequence.cached);
        batch.after.push_back(sequence.cached + counts[b]);
        for (int32_t i = sequence.cached; i < batch.after.back(); i++) {
            const float *row = model_.embedding.data() + sequence.tokens[static_cast<size_t>(i)] * embed_dim;
            x.insert(x.end(), row, row + embed_dim);
            batch.positions.push_back(i);
        }
    }
    for (const Sequence *sequence : sequences) { // entries behind the pages of a sequence are not read
        batch.table.insert(batch.table.end(), sequence->pages.begin(), sequence->pages.end());
        batch.table.resize(batch.table.size() + static_cast<size_t>(batch.columns) - sequence->pages.size(), -1);
    }
    for (size_t layer = 0; layer < packed_.size() && status.ok(); layer++) {
        status = attention(layer, batch, &x);
        status = status.ok() ? mlp(layer, &x) : status;
    }
    std::vector<float> last;
    for (size_t b = 0; b < sequences.size(); b++) {
        const float *row = x.data() + (batch.begins[b + 1] - 1) * embed_dim;
        last.insert(last.end(), row, row + embed_dim);
    }
    status = status.ok() ? linear(generate_logits, logits_, normalised(last, model_.norm), embed_dim, vocabulary, logits) : status;
    for (size_t b = 0; b < sequences.size() && status.ok(); b++)
        sequences[b]->cached = batch.after[b];
    return status;
}

Status Decoder::leave(Sequence *sequence) {
    const Status status = pool_.release(static_cast<int32_t>(sequence->pages.size()), sequence->pages.data());
    sequence->pages.clear();
    return status;
}

} // namespace generate

// One kernel with one shape: its buffers, its call and what the call costs.
#include "workload.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reference_row.h"

namespace bench {
namespace {

// Uniform values of the given deviation, the same on every machine.
std::vector<float> random_values(int64_t count, double deviation, uint64_t seed) {
    std::vector<float> values(count);
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (float &value : values) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        value = static_cast<float>((static_cast<double>(state >> 11) / (1ull << 53) * 2 - 1) * 1.7320508 * deviation);
    }
    return values;
}

std::vector<float> random_weight(int64_t out_features, int64_t in_features, uint64_t seed) {
    return random_values(out_features * in_features, 1 / std::sqrt(static_cast<double>(in_features)), seed);
}

} // namespace

Workload::Workload(const polyhead::Kernel &kernel, const Shape &shape, const polyhead::Device *device)
    : kernel_(kernel), p_(kernel.problem), shape_(shape), device_(device), storage_(p_.dtype, device) {
    if (p_.kv_lengths)
        lengths_.assign(shape.batch, static_cast<int32_t>(shape.seq_len_kv));
    if (p_.lse)
        lse_.resize(shape.batch * p_.num_heads * shape.seq_len_q);
    if (p_.op == POLYHEAD_SDPA)
        make_sdpa();
    if (p_.op == POLYHEAD_MHA)
        make_mha();
    if (p_.op == POLYHEAD_LINEAR)
        make_linear();
    sdpa_.device = mha_.device = linear_.device = device;
    if (status_.ok())
        status_ = storage_.status();
}

// Packs for the kernel, and puts the panels where it runs.
void Workload::pack(const polyhead::WeightTensors &tensors) {
    status_ = kernel_.pack(tensors, &weights_);
    if (status_.ok() && device_) {
        polyhead::Weights host = std::move(weights_);
        weights_ = polyhead::Weights();
        status_ = device_->put(host, &weights_);
    }
}

void Workload::make_sdpa() {
    const int64_t B = shape_.batch, H = p_.num_heads, H_kv = p_.num_kv_heads, T_q = shape_.seq_len_q, T_kv = shape_.seq_len_kv;
    query_ = random_values(B * H * T_q * p_.head_dim, 1, 1);
    key_ = random_values(B * H_kv * T_kv * p_.head_dim, 1, 2);
    value_ = random_values(B * H_kv * T_kv * p_.head_dim_v, 1, 3);
    out_.resize(B * H * T_q * p_.head_dim_v);
    sdpa_.query = storage_.input(&query_, {B, H, T_q, p_.head_dim});
    sdpa_.key = storage_.input(&key_, {B, H_kv, T_kv, p_.head_dim});
    sdpa_.value = storage_.input(&value_, {B, H_kv, T_kv, p_.head_dim_v});
    sdpa_.out = storage_.output(&out_, {B, H, T_q, p_.head_dim_v});
    if (p_.lse)
        sdpa_.lse = storage_.output(&lse_, {B, H, T_q}, POLYHEAD_F32);
    if (p_.kv_lengths)
        sdpa_.kv_lengths = storage_.input(lengths_);
}

void Workload::make_mha() {
    const int64_t B = shape_.batch, D = p_.embed_dim, T_q = shape_.seq_len_q, T_kv = shape_.seq_len_kv;
    const int64_t kdim = p_.cross ? p_.kdim : D, vdim = p_.cross ? p_.vdim : D;
    const int64_t n_q = int64_t(p_.num_heads) * p_.head_dim, n_k = int64_t(p_.num_kv_heads) * p_.head_dim,
                  n_v = int64_t(p_.num_kv_heads) * p_.head_dim_v, n_o = int64_t(p_.num_heads) * p_.head_dim_v;
    query_ = random_values(B * T_q * D, 1, 1);
    w_query_ = random_weight(n_q, D, 4);
    w_key_ = random_weight(n_k, kdim, 5);
    w_value_ = random_weight(n_v, vdim, 6);
    w_out_ = random_weight(D, n_o, 7);
    out_.resize(B * T_q * D);
    polyhead::WeightTensors tensors;
    tensors.query = storage_.host_input(&w_query_, {n_q, D});
    tensors.key = storage_.host_input(&w_key_, {n_k, kdim});
    tensors.value = storage_.host_input(&w_value_, {n_v, vdim});
    tensors.out_proj = storage_.host_input(&w_out_, {D, n_o});
    if (p_.bias) {
        b_query_ = random_values(n_q, 1, 8);
        b_key_ = random_values(n_k, 1, 9);
        b_value_ = random_values(n_v, 1, 10);
        b_out_ = random_values(D, 1, 11);
        tensors.query_bias = storage_.host_input(&b_query_, {n_q});
        tensors.key_bias = storage_.host_input(&b_key_, {n_k});
        tensors.value_bias = storage_.host_input(&b_value_, {n_v});
        tensors.out_bias = storage_.host_input(&b_out_, {D});
    }
    pack(tensors);
    mha_.input = storage_.input(&query_, {B, T_q, D});
    if (p_.cross) {
        key_ = random_values(B * T_kv * kdim, 1, 2);
        value_ = random_values(B * T_kv * vdim, 1, 3);
        mha_.key = storage_.input(&key_, {B, T_kv, kdim});
        mha_.value = storage_.input(&value_, {B, T_kv, vdim});
    }
    mha_.weights = &weights_;
    mha_.out = storage_.output(&out_, {B, T_q, D});
    if (p_.lse)
        mha_.lse = storage_.output(&lse_, {B, p_.num_heads, T_q}, POLYHEAD_F32);
    if (p_.kv_lengths)
        mha_.kv_lengths = storage_.input(lengths_);
}

void Workload::make_linear() {
    const int64_t M = shape_.seq_len_q, K = p_.embed_dim, N = p_.out_features;
    query_ = random_values(M * K, 1, 1);
    w_out_ = random_weight(N, K, 7);
    out_.resize(M * N);
    polyhead::WeightTensors tensors;
    tensors.out_proj = storage_.host_input(&w_out_, {N, K});
    if (p_.bias) {
        b_out_ = random_values(N, 1, 11);
        tensors.out_bias = storage_.host_input(&b_out_, {N});
    }
    pack(tensors);
    linear_.input = storage_.input(&query_, {M, K});
    linear_.weights = &weights_;
    linear_.out = storage_.output(&out_, {M, N});
}

polyhead::Status Workload::run() {
    if (p_.op == POLYHEAD_SDPA)
        return kernel_.run(sdpa_);
    return p_.op == POLYHEAD_MHA ? kernel_.run(mha_) : kernel_.run(linear_);
}

int64_t Workload::visible_keys(int64_t q) const {
    if (!p_.causal)
        return shape_.seq_len_kv;
    const int64_t offset = p_.causal == POLYHEAD_BOTTOM_RIGHT ? shape_.seq_len_kv - shape_.seq_len_q : 0;
    return std::min(shape_.seq_len_kv, std::max<int64_t>(0, q + offset + 1));
}

double Workload::flops() const {
    const double B = static_cast<double>(shape_.batch), rows_q = B * static_cast<double>(shape_.seq_len_q),
                 rows_kv = B * static_cast<double>(shape_.seq_len_kv);
    if (p_.op == POLYHEAD_LINEAR)
        return 2 * rows_q * p_.embed_dim * p_.out_features;
    double pairs = 0;
    for (int64_t q = 0; q < shape_.seq_len_q; q++)
        pairs += static_cast<double>(visible_keys(q));
    const double attention = 2 * B * p_.num_heads * pairs * (p_.head_dim + p_.head_dim_v);
    if (p_.op == POLYHEAD_SDPA)
        return attention;
    return attention + 2 * (rows_q * static_cast<double>(w_query_.size() + w_out_.size()) +
                            rows_kv * static_cast<double>(w_key_.size() + w_value_.size()));
}

double Workload::bytes() const {
    const size_t stored = query_.size() + key_.size() + value_.size() + out_.size();
    const double bytes = static_cast<double>(stored) * (p_.dtype == POLYHEAD_F32 ? 4 : 2);
    return bytes + static_cast<double>(lse_.size()) * sizeof(float) + static_cast<double>(weights_.bytes());
}

std::string Workload::check_row(int64_t b, int64_t h, int64_t q) const {
    RowProblem row;
    row.problem = &p_;
    row.keys = visible_keys(q);
    const int64_t T_q = shape_.seq_len_q, T_kv = shape_.seq_len_kv,
                  h_kv = p_.op == POLYHEAD_SDPA ? h / (p_.num_heads / p_.num_kv_heads) : 0;
    std::vector<double> expected;
    const float *found = nullptr;
    if (p_.op == POLYHEAD_SDPA) {
        row.query = query_.data() + ((b * p_.num_heads + h) * T_q + q) * p_.head_dim;
        row.key = key_.data() + (b * p_.num_kv_heads + h_kv) * T_kv * p_.head_dim;
        row.value = value_.data() + (b * p_.num_kv_heads + h_kv) * T_kv * p_.head_dim_v;
        expected = sdpa_row(row);
        found = out_.data() + ((b * p_.num_heads + h) * T_q + q) * p_.head_dim_v;
    } else {
        row.query = query_.data() + (b * T_q + q) * p_.embed_dim;
        row.key = p_.cross ? key_.data() + b * T_kv * p_.kdim : query_.data() + b * T_q * p_.embed_dim;
        row.value = p_.cross ? value_.data() + b * T_kv * p_.vdim : row.key;
        row.w_query = {w_query_.data(), b_query_.data()};
        row.w_key = {w_key_.data(), b_key_.data()};
        row.w_value = {w_value_.data(), b_value_.data()};
        row.w_out = {w_out_.data(), b_out_.data()};
        expected = p_.op == POLYHEAD_MHA ? mha_row(row) : linear_row(row);
        found = out_.data() + (b * T_q + q) * static_cast<int64_t>(expected.size());
    }
    for (size_t i = 0; i < expected.size(); i++) {
        const double error = std::fabs(found[i] - expected[i]), size = std::fabs(expected[i]);
        const double allowed = p_.dtype == POLYHEAD_F32   ? 2e-5 + 1e-5 * size
                               : p_.dtype == POLYHEAD_F16 ? 1e-2 * std::max(1.0, size)
                                                          : 5e-2 * std::max(1.0, size);
        if (!(error <= allowed))
            return "wrong answer in row " + std::to_string(q) + " of batch " + std::to_string(b) + ", head " + std::to_string(h) +
                   ", column " + std::to_string(i) + ": found " + std::to_string(found[i]) + ", expected " + std::to_string(expected[i]) +
                   ".";
    }
    return "";
}

std::string Workload::check() {
    status_ = storage_.spoil();
    if (status_.ok())
        status_ = run();
    if (status_.ok())
        status_ = storage_.fetch();
    if (!status_.ok())
        return status_.message();
    for (float value : out_)
        if (!std::isfinite(value))
            return "the output holds a value that is not finite.";
    const int64_t B = shape_.batch, H = p_.op == POLYHEAD_SDPA ? p_.num_heads : 1, T = shape_.seq_len_q;
    for (int64_t i = 0; i < 6; i++) { // first and last row of first and last head, and rows in between
        std::string error = check_row(i % 2 ? B - 1 : 0, (H - 1) * i / 5, i == 0 ? 0 : i == 5 ? T - 1 : (T * i / 5 * 7919) % T);
        if (!error.empty())
            return error;
    }
    return "";
}

} // namespace bench

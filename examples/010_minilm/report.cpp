// What the example says about a run: errors, similarities, speed.
#include "report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>

#include "../../bench/roof.h"
#include "../common/npy.h"
#include "encoder_f64.h"

namespace minilm {
namespace {

// NaN anywhere must show: std::max would drop it.
double larger(double error, double other) {
    return other <= error ? error : std::isnan(error) ? error : other;
}

template <class A, class B> double cosine(const A *a, const B *b) {
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < embed_dim; i++) {
        ab += double(a[i]) * b[i];
        aa += double(a[i]) * a[i];
        bb += double(b[i]) * b[i];
    }
    return ab / std::sqrt(aa * bb);
}

// Largest difference over the real tokens of sentence b; `exact` holds only these.
double difference(const Batch &batch, int64_t b, const std::vector<float> &found, const std::vector<double> &exact) {
    double error = 0;
    const float *row = found.data() + b * batch.seq_len * embed_dim;
    for (size_t i = 0; i < exact.size(); i++)
        error = larger(error, std::fabs(row[i] - exact[i]));
    return error;
}

constexpr double hidden_tolerance = 2e-5, numpy_padding_error = 6e-5;

// Multiply-adds count two. Projections see every row, padding too; the scores see each row's own keys.
double attention_flops(const Batch &batch) {
    double keys = 0;
    for (int32_t length : batch.lengths)
        keys += length;
    return 8.0 * static_cast<double>(batch.tokens()) * embed_dim * embed_dim + 4.0 * static_cast<double>(batch.seq_len) * keys * embed_dim;
}

} // namespace

Errors errors_against_f64(const Model &model, const Batch &batch, const Encoded &encoded) {
    Errors errors;
    for (int64_t b = 0; b < batch.batch; b++) {
        const EncodedF64 exact = encode_f64(model, batch.ids.data() + b * batch.seq_len, batch.lengths[b]);
        for (int i = 0; i <= num_layers; i++)
            errors.hidden[i] = larger(errors.hidden[i], difference(batch, b, encoded.hidden[i], exact.hidden[i]));
        for (int i = 0; i < num_layers; i++) {
            const float *start = encoded.hidden[i].data() + b * batch.seq_len * embed_dim;
            const std::vector<double> input(start, start + int64_t(batch.lengths[b]) * embed_dim);
            errors.attention[i] =
                larger(errors.attention[i], difference(batch, b, encoded.attention[i], attention_f64(model.layers[i], input)));
        }
        const double same = cosine(encoded.embedding.data() + b * embed_dim, exact.embedding.data());
        errors.cosine = same >= errors.cosine ? errors.cosine : same;
    }
    return errors;
}

void print_errors(const Errors &errors) {
    std::printf("Largest error against float64\n  layer                          ");
    for (int i = 0; i < num_layers; i++)
        std::printf("%9d", i);
    std::printf("\n  attention layer alone          ");
    for (double error : errors.attention)
        std::printf("%9.1e", error);
    std::printf("\n  hidden state after the layer   ");
    for (int i = 0; i < num_layers; i++)
        std::printf("%9.1e", errors.hidden[i + 1]);
    std::printf("\n  sentence embeddings: smallest cosine with the float64 ones is 1 - %.1e\n\n", std::max(0.0, 1 - errors.cosine));
}

void print_similarity(const Batch &batch, const Encoded &encoded, const std::vector<std::string> &texts) {
    std::printf("Similarity of the sentences (cosine of their embeddings)\n     ");
    for (int64_t b = 0; b < batch.batch; b++)
        std::printf("%6lld", static_cast<long long>(b + 1));
    for (int64_t a = 0; a < batch.batch; a++) {
        std::printf("\n%5lld", static_cast<long long>(a + 1));
        for (int64_t b = 0; b < batch.batch; b++)
            std::printf("%6.2f",
                        std::round(100 * cosine(encoded.embedding.data() + a * embed_dim, encoded.embedding.data() + b * embed_dim)) / 100 +
                            0.0);
        if (a < static_cast<int64_t>(texts.size()))
            std::printf("  %s", texts[a].c_str());
    }
    std::printf("\n\n");
}

namespace {

// Without a peak to hold it against: the tensors of every call travel to the device and back.
std::string print_device_speed(const Encoder &encoder, const Batch &batch, const Encoded &encoded, int rounds) {
    std::vector<float> out(batch.tokens() * embed_dim);
    std::vector<double> seconds;
    for (int round = 0; round <= rounds; round++) { // the first one is a warm-up
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < num_layers; i++) {
            const polyhead::Status status = encoder.attention(i, batch, encoded.hidden[i].data(), out.data());
            if (!status.ok())
                return status.message();
        }
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / num_layers);
    }
    seconds.erase(seconds.begin());
    std::printf("Attention layer by %s, %lld x %lld tokens: %.3f ms per layer with its tensors copied to the device and back (median of %d "
                "rounds)\n",
                encoder.kernels().attention->name, static_cast<long long>(batch.batch), static_cast<long long>(batch.seq_len),
                1e3 * roof::spread(seconds).median, rounds);
    return "";
}

} // namespace

std::string print_speed(const Encoder &encoder, const Batch &batch, const Encoded &encoded, int rounds) {
    if (encoder.kernels().device)
        return print_device_speed(encoder, batch, encoded, rounds);
    polyhead::Status status;
    std::vector<float> out(batch.tokens() * embed_dim);
    auto all_layers = [&] {
        for (int i = 0; i < num_layers && status.ok(); i++)
            status = encoder.attention(i, batch, encoded.hidden[i].data(), out.data());
    };
    roof::Team team(polyhead::num_threads());
    const double flops = attention_flops(batch);
    std::vector<double> seconds, gflops, peaks, percents;
    for (int i = 0; i < rounds; i++) {
        const roof::Round round = roof::measure_round(team, {all_layers}, 0.03);
        if (!status.ok())
            return status.message();
        seconds.push_back(round.seconds[0] / num_layers);
        gflops.push_back(flops / seconds.back() / 1e9);
        peaks.push_back(round.peak_gflops);
        percents.push_back(100 * gflops.back() / round.peak_gflops);
    }
    const roof::Spread percent = roof::spread(percents);
    std::printf("Attention layer by minilm_layer, %lld x %lld tokens, %d thread%s (median of %d rounds)\n",
                static_cast<long long>(batch.batch), static_cast<long long>(batch.seq_len), team.threads(), team.threads() == 1 ? "" : "s",
                rounds);
    std::printf("  %.3f ms per layer, %.1f GFLOP/s, %.0f %% of the FMA peak (quartiles %.0f..%.0f)\n", 1e3 * roof::spread(seconds).median,
                roof::spread(gflops).median, percent.median, percent.q1, percent.q3);
    std::printf("  FMA peak measured in the same rounds: %.1f GFLOP/s (%s)\n", roof::spread(peaks).median, roof::peak_name());
    return "";
}

namespace {

struct Reference {
    std::vector<float> hidden;     // [layers+1, batch, seq_len, embed_dim]
    std::vector<double> embedding; // [batch, embed_dim]
};

std::string read_reference(const std::string &directory, const Batch &batch, Reference *reference) {
    std::vector<int64_t> shape;
    std::string error = examples::read_npy(directory + "/hidden_states.npy", &shape, &reference->hidden);
    if (!error.empty())
        return error;
    if (shape != std::vector<int64_t>{num_layers + 1, batch.batch, batch.seq_len, embed_dim})
        return "hidden_states.npy belongs to other sentences.";
    error = examples::read_npy(directory + "/embedding.npy", &shape, &reference->embedding);
    if (error.empty() && shape != std::vector<int64_t>{batch.batch, embed_dim})
        error = "embedding.npy belongs to other sentences.";
    return error;
}

// One run against the reference; rows of padding have a tolerance of their own.
std::string compare(const Reference &reference, const Batch &batch, const Encoded &encoded, double padding_tolerance) {
    char text[200];
    for (int layer = 0; layer <= num_layers; layer++) {
        const std::vector<float> &found = encoded.hidden[layer];
        const float *expected = reference.hidden.data() + static_cast<int64_t>(found.size()) * layer;
        double token = 0, padding = 0;
        for (int64_t i = 0; i < static_cast<int64_t>(found.size()); i++) {
            const int64_t row = i / embed_dim;
            double &worst = row % batch.seq_len < batch.lengths[row / batch.seq_len] ? token : padding;
            worst = larger(worst, std::fabs(double(found[i]) - expected[i]));
        }
        std::printf("  hidden state %d: largest difference %.2e on tokens, %.2e on padding\n", layer, token, padding);
        if (!(token <= hidden_tolerance) || !(padding <= padding_tolerance)) {
            std::snprintf(text, sizeof text,
                          "hidden state %d differs from the reference by %.3e on tokens and %.3e on padding, allowed is %.0e and %.0e.",
                          layer, token, padding, hidden_tolerance, padding_tolerance);
            return text;
        }
    }
    for (int64_t b = 0; b < batch.batch; b++) {
        const double same = cosine(encoded.embedding.data() + b * embed_dim, reference.embedding.data() + b * embed_dim);
        if (!(same >= 1 - 1e-6)) {
            std::snprintf(text, sizeof text, "embedding %lld has cosine %.9f with the reference, expected at least 1 - 1e-6.",
                          static_cast<long long>(b), same);
            return text;
        }
    }
    std::printf("  embeddings: all cosines at least 1 - 1e-6\n");
    return "";
}

} // namespace

std::string check_against(const std::string &directory, const Encoder &encoder, const Batch &batch) {
    Reference reference;
    Encoded encoded;
    std::string error = read_reference(directory, batch, &reference);
    if (error.empty())
        error = encoder.run(batch, &encoded, FeedForward::float64);
    if (!error.empty())
        return error;
    std::printf("attention layers by generated kernels, the rest in float64:\n");
    // The reference's padding rows are ill-conditioned: NumPy in f32 misses them by 6e-5. Nothing reads them.
    const bool fused = !encoder.kernels().device && (polyhead_cpu_features() & POLYHEAD_CPU_FMA) != 0;
    error = compare(reference, batch, encoded, fused ? hidden_tolerance : numpy_padding_error);
    if (error.empty())
        error = encoder.run(batch, &encoded);
    if (!error.empty())
        return error;
    std::printf("all in f32:\n");
    return compare(reference, batch, encoded, std::numeric_limits<double>::infinity());
}

} // namespace minilm

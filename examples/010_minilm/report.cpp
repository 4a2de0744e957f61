// What the example says about a run: errors, similarities, speed.
#include "report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>

#include "../../instruments/roof/roof.h"
#include "../common/npy.h"
#include "elements.h"
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

constexpr double numpy_padding_error = 6e-5;

// How far hidden states may be from the reference, and cosines from 1.
struct Limits {
    double hidden, cosine;
};
Limits limits_of(const Encoder &encoder) {
    return encoder.dtype() == polyhead::DType::bf16 ? Limits{0.05, 2e-4} : Limits{2e-5, 1e-6};
}

const char *type_name(const Encoder &encoder) {
    return encoder.dtype() == polyhead::DType::bf16 ? "bf16" : "f32";
}

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

void print_errors(const Encoder &encoder, const Errors &errors) {
    std::printf("Largest error of %s against float64\n  layer                          ", type_name(encoder));
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

// The attention of all layers, over inputs and an out that lie there in the encoder's type.
class AttentionOnly {
public:
    AttentionOnly(const Run &run, const Batch &batch)
        : encoder_(*run.encoder), batch_(batch), out_(encoder_.dtype(), static_cast<size_t>(batch.tokens() * embed_dim)) {
        for (int i = 0; i < num_layers; i++)
            inputs_.emplace_back(encoder_.dtype(), run.encoded->hidden[i]);
    }
    // One call per layer, until one fails.
    void operator()() {
        const std::initializer_list<int64_t> shape = {batch_.batch, batch_.seq_len, embed_dim};
        for (int i = 0; i < num_layers && status_.ok(); i++)
            status_ = encoder_.attention(i, batch_, inputs_[i].view(shape), out_.view(shape));
    }
    const polyhead::Status &status() const { return status_; }

private:
    const Encoder &encoder_;
    const Batch &batch_;
    std::vector<Elements> inputs_;
    Elements out_;
    polyhead::Status status_;
};

// Without a peak to hold it against: the tensors of every call travel to the device and back.
std::string print_device_speed(const Run &run, const Batch &batch, int rounds) {
    AttentionOnly attention(run, batch);
    std::vector<double> seconds;
    for (int round = 0; round <= rounds; round++) { // the first one is a warm-up
        const auto begin = std::chrono::steady_clock::now();
        attention();
        if (!attention.status().ok())
            return attention.status().message();
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / num_layers);
    }
    seconds.erase(seconds.begin());
    std::printf("Attention layer by %s, %lld x %lld tokens: %.3f ms per layer with its tensors copied to the device and back (median of %d "
                "rounds)\n",
                run.encoder->kernels().attention->name, static_cast<long long>(batch.batch), static_cast<long long>(batch.seq_len),
                1e3 * roof::spread(seconds).median, rounds);
    return "";
}

// What the rounds said about one encoder.
struct Speed {
    std::vector<double> seconds, peaks, percents, ratios; // ratios: the first encoder's time / this one's
};

void print_one(const Run &run, const Speed &speed, double flops) {
    const roof::Spread percent = roof::spread(speed.percents);
    const double seconds = roof::spread(speed.seconds).median;
    const roof::Peak peak = roof::peak_of(run.encoder->kernels().attention->problem.dtype);
    std::printf("  %-4s  %.3f ms per layer, %.1f GFLOP/s, %.0f %% of the peak (quartiles %.0f..%.0f) of %.1f GFLOP/s (%s)\n",
                type_name(*run.encoder), 1e3 * seconds, flops / seconds / 1e9, percent.median, percent.q1, percent.q3,
                roof::spread(speed.peaks).median, roof::peak_name(peak));
}

} // namespace

std::string print_speed(const std::vector<Run> &runs, const Batch &batch, int rounds) {
    if (runs[0].encoder->kernels().device)
        return print_device_speed(runs[0], batch, rounds);
    std::vector<AttentionOnly> attentions;
    for (const Run &run : runs)
        attentions.emplace_back(run, batch);
    std::vector<std::function<void()>> calls;
    for (AttentionOnly &attention : attentions)
        calls.emplace_back([&attention] { attention(); });
    roof::Workers workers(polyhead::num_threads());
    const double flops = attention_flops(batch);
    std::vector<Speed> speeds(runs.size());
    for (int i = 0; i < rounds; i++) {
        const roof::Round round = roof::measure_round(workers, calls, 0.03);
        for (size_t n = 0; n < runs.size(); n++) {
            if (!attentions[n].status().ok())
                return attentions[n].status().message();
            const roof::Peak peak = roof::peak_of(runs[n].encoder->kernels().attention->problem.dtype);
            Speed &speed = speeds[n];
            speed.seconds.push_back(round.seconds[n] / num_layers);
            speed.peaks.push_back(peak == roof::Peak::fma ? round.peak_gflops : roof::peak_gflops(workers, 0.03, peak));
            speed.percents.push_back(100 * flops / speed.seconds.back() / 1e9 / speed.peaks.back());
            speed.ratios.push_back(round.seconds[0] / round.seconds[n]);
        }
    }
    std::printf("Attention layer, %lld x %lld tokens, %d thread%s (median of %d rounds)\n", static_cast<long long>(batch.batch),
                static_cast<long long>(batch.seq_len), workers.threads(), workers.threads() == 1 ? "" : "s", rounds);
    for (size_t n = 0; n < runs.size(); n++)
        print_one(runs[n], speeds[n], flops);
    if (runs.size() > 1)
        std::printf("  time in %s / time in %s: %.2f; packed weights: %.1f and %.1f MB\n", type_name(*runs[0].encoder),
                    type_name(*runs[1].encoder), roof::spread(speeds[1].ratios).median, 1e-6 * runs[0].encoder->weights_bytes(),
                    1e-6 * runs[1].encoder->weights_bytes());
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
std::string compare(const Reference &reference, const Batch &batch, const Encoded &encoded, Limits limits, double padding_tolerance) {
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
        if (!(token <= limits.hidden) || !(padding <= padding_tolerance)) {
            std::snprintf(text, sizeof text,
                          "hidden state %d differs from the reference by %.3e on tokens and %.3e on padding, allowed is %.0e and %.0e.",
                          layer, token, padding, limits.hidden, padding_tolerance);
            return text;
        }
    }
    for (int64_t b = 0; b < batch.batch; b++) {
        const double same = cosine(encoded.embedding.data() + b * embed_dim, reference.embedding.data() + b * embed_dim);
        if (!(same >= 1 - limits.cosine)) {
            std::snprintf(text, sizeof text, "embedding %lld has cosine %.9f with the reference, expected at least 1 - %.0e.",
                          static_cast<long long>(b), same, limits.cosine);
            return text;
        }
    }
    std::printf("  embeddings: all cosines at least 1 - %.0e\n", limits.cosine);
    return "";
}

} // namespace

std::string check_against(const std::string &directory, const Encoder &encoder, const Batch &batch) {
    Reference reference;
    Encoded encoded;
    const Limits limits = limits_of(encoder);
    constexpr double any = std::numeric_limits<double>::infinity();
    std::string error = read_reference(directory, batch, &reference);
    if (error.empty())
        error = encoder.run(batch, &encoded, FeedForward::float64);
    if (!error.empty())
        return error;
    std::printf("attention layers by generated kernels in %s, the rest in float64:\n", type_name(encoder));
    // The reference's padding rows are ill-conditioned: NumPy in f32 misses them by 6e-5. Nothing reads them.
    const double padding = encoder.dtype() == polyhead::DType::bf16 ? any : numpy_padding_error;
    error = compare(reference, batch, encoded, limits, padding);
    if (error.empty())
        error = encoder.run(batch, &encoded);
    if (!error.empty())
        return error;
    std::printf("all in %s:\n", type_name(encoder));
    return compare(reference, batch, encoded, limits, any);
}

} // namespace minilm

// One token through an attention layer with a cache, compared with a plain read of its weights and its cache.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <polyhead/cache.h>

#include "../instruments/calls/compiled_kernel.h"
#include "../instruments/calls/problems.h"
#include "../instruments/roof/roof.h"
#include "commands.h"

namespace {

using polyhead::Status;
using polyhead::view;

constexpr int embed_dim = 4096, heads = 32, kv_heads = 8, head_dim = 128;
constexpr int query_dim = heads * head_dim, key_dim = kv_heads * head_dim, qkv_dim = query_dim + 2 * key_dim;
constexpr int64_t keys = 4096;       // of the cache, with the new one
constexpr double least_percent = 85; // of a plain read
constexpr int turns = 5;             // of a round

std::vector<float> random_numbers(size_t count, float scale, std::mt19937 *random) {
    std::uniform_real_distribution<float> uniform(-scale, scale);
    std::vector<float> numbers(count);
    for (float &number : numbers)
        number = uniform(*random);
    return numbers;
}

// Joined projection, append, attention, output projection: four calls, as a server of models makes them.
class LayerStep {
public:
    LayerStep()
        : projection_(polyhead::test::linear_problem(embed_dim, qkv_dim)), attention_(attention_problem()),
          output_(polyhead::test::linear_problem(query_dim, embed_dim)) {
        std::mt19937 random(1);
        x_ = random_numbers(embed_dim, 1, &random);
        qkv_weight_ = random_numbers(size_t(qkv_dim) * embed_dim, 0.05f, &random);
        out_weight_ = random_numbers(size_t(embed_dim) * query_dim, 0.05f, &random);
        key_ = random_numbers(size_t(keys) * key_dim, 1, &random);
        value_ = random_numbers(size_t(keys) * key_dim, 1, &random);
        for (const polyhead::test::CompiledKernel *kernel : {&projection_, &attention_, &output_})
            error_ = error_.empty() ? kernel->error() : error_;
        if (!error_.empty())
            return;
        polyhead::WeightTensors tensors;
        tensors.out_proj = view(qkv_weight_.data(), {qkv_dim, embed_dim});
        keep(projection_.kernel().pack(tensors, &packed_qkv_));
        tensors.out_proj = view(out_weight_.data(), {embed_dim, query_dim});
        keep(output_.kernel().pack(tensors, &packed_out_));
        keep(run());
        if (error_.empty())
            check();
    }

    const std::string &error() const { return error_; }

    Status run() {
        const Status projected = linear(projection_, packed_qkv_, x_, &qkv_);
        if (!projected.ok())
            return projected;
        const auto heads_of = [this](int first_column, int count) { return view(qkv_.data() + first_column, {1, count, 1, head_dim}); };
        polyhead::Cache cache;
        cache.key = view(key_.data(), {1, kv_heads, keys, head_dim});
        cache.value = view(value_.data(), {1, kv_heads, keys, head_dim});
        polyhead::NewKeys added;
        added.key = heads_of(query_dim, kv_heads);
        added.value = heads_of(query_dim + key_dim, kv_heads);
        added.lengths = view(&before_, {1});
        const Status appended = polyhead::append(cache, added);
        if (!appended.ok())
            return appended;
        polyhead::SdpaArgs args;
        args.query = heads_of(0, heads);
        args.key = cache.key;
        args.value = cache.value;
        args.kv_lengths = view(&after_, {1});
        args.out = view(context_.data(), {1, heads, 1, head_dim});
        const Status attended = attention_.kernel().run(args);
        return attended.ok() ? linear(output_, packed_out_, context_, &y_) : attended;
    }

    // Weights as they are packed, and the cache.
    std::vector<roof::Block> blocks() const {
        return {{packed_qkv_.raw()->data, packed_qkv_.bytes()},
                {key_.data(), key_.size() * sizeof(float)},
                {value_.data(), value_.size() * sizeof(float)},
                {packed_out_.raw()->data, packed_out_.bytes()}};
    }

private:
    static polyhead::Problem attention_problem() {
        polyhead::Problem problem = polyhead::test::sdpa_problem(heads, head_dim, kv_heads);
        problem.kv_lengths = 1;
        return problem;
    }

    static Status linear(const polyhead::test::CompiledKernel &kernel, const polyhead::Weights &weights, const std::vector<float> &x,
                         std::vector<float> *y) {
        polyhead::LinearArgs args;
        args.input = view(x.data(), {1, static_cast<int64_t>(x.size())});
        args.weights = &weights;
        args.out = view(y->data(), {1, static_cast<int64_t>(y->size())});
        return kernel.kernel().run(args);
    }

    void keep(const Status &status) { error_ = error_.empty() && !status.ok() ? status.message() : error_; }

    static std::vector<double> product(const std::vector<float> &weight, const std::vector<double> &x, size_t rows) {
        std::vector<double> y(rows);
        for (size_t row = 0; row < rows; row++)
            for (size_t i = 0; i < x.size(); i++)
                y[row] += double(weight[row * x.size() + i]) * x[i];
        return y;
    }

    // The whole step in float64.
    void check() {
        const std::vector<double> qkv = product(qkv_weight_, {x_.begin(), x_.end()}, qkv_dim);
        std::vector<double> context(query_dim);
        for (size_t h = 0; h < heads; h++) {
            const size_t of_head = h / (heads / kv_heads) * head_dim, plane = of_head * keys;
            const auto entry = [&](const std::vector<float> &cache, int column, size_t key, size_t d) {
                return key + 1 < size_t(keys) ? double(cache[plane + key * head_dim + d]) : qkv[size_t(column) + of_head + d];
            };
            std::vector<double> scores(keys);
            double most = -1e300, sum = 0;
            for (size_t key = 0; key < size_t(keys); key++) {
                for (size_t d = 0; d < head_dim; d++)
                    scores[key] += qkv[h * head_dim + d] * entry(key_, query_dim, key, d) / std::sqrt(double(head_dim));
                most = std::max(most, scores[key]);
            }
            for (size_t key = 0; key < size_t(keys); key++) {
                const double prob = std::exp(scores[key] - most);
                sum += prob;
                for (size_t d = 0; d < head_dim; d++)
                    context[h * head_dim + d] += prob * entry(value_, query_dim + key_dim, key, d);
            }
            for (size_t d = 0; d < head_dim; d++)
                context[h * head_dim + d] /= sum;
        }
        const std::vector<double> y = product(out_weight_, context, embed_dim);
        double error = 0, largest = 0;
        for (size_t i = 0; i < embed_dim; i++) {
            error = std::max(error, std::abs(y[i] - double(y_[i])));
            largest = std::max(largest, std::abs(y[i]));
        }
        if (!(error <= 1e-4 * largest))
            error_ =
                "out: found an error of " + std::to_string(error) + " against float64, expected at most 1e-4 of " + std::to_string(largest);
    }

    std::string error_;
    polyhead::test::CompiledKernel projection_, attention_, output_;
    std::vector<float> x_, qkv_weight_, out_weight_, key_, value_;
    std::vector<float> qkv_ = std::vector<float>(qkv_dim), context_ = std::vector<float>(query_dim), y_ = std::vector<float>(embed_dim);
    polyhead::Weights packed_qkv_, packed_out_;
    int32_t before_ = int32_t(keys) - 1, after_ = int32_t(keys);
};

// Weights and cache are more than any cache of the processor, so that a step and a read find little of what the other has read.
bool measure(LayerStep *step, int threads, int rounds) {
    polyhead::set_num_threads(threads);
    roof::Workers workers(threads);
    const std::vector<roof::Block> blocks = step->blocks();
    double bytes = 0;
    for (const roof::Block &block : blocks)
        bytes += static_cast<double>(block.bytes);
    std::vector<double> percent, milliseconds, gbs;
    for (int round = 0; round < rounds; round++) {
        std::vector<double> reads, steps;
        for (int turn = 0; turn < turns; turn++) {
            roof::until_helpers_sleep();
            reads.push_back(roof::read_seconds(workers, blocks));
            const double start = roof::now();
            (void)step->run();
            steps.push_back(roof::now() - start);
        }
        const double read = roof::spread(reads).median, taken = roof::spread(steps).median;
        percent.push_back(100 * read / taken);
        milliseconds.push_back(1e3 * taken);
        gbs.push_back(bytes / read / 1e9);
    }
    const roof::Spread share = roof::spread(percent);
    const bool within = share.median >= least_percent;
    std::printf("%7d  %7.1f (%4.1f)  %8.2f  %10.1f  %10.1f  %.0f%s\n", threads, share.median, share.iqr(),
                roof::spread(milliseconds).median, roof::spread(gbs).median * share.median / 100, roof::spread(gbs).median, least_percent,
                within ? "" : "  BELOW");
    return within;
}

} // namespace

int bench::run_layer_step(const Options &options) {
    const int threads = options.threads, rounds = options.rounds;
    LayerStep step;
    if (!step.error().empty()) {
        std::fprintf(stderr, "polyhead_bench: %s\n", step.error().c_str());
        return 1;
    }
    std::printf("a token through a layer: width %d, %d heads, %d key/value heads, head_dim %d, f32, %lld keys; time of a plain read of\n"
                "weights and cache / time of the step, medians (interquartile range) of %d rounds\n%7s  %14s  %8s  %10s  %10s  at least\n",
                embed_dim, heads, kv_heads, head_dim, static_cast<long long>(keys), rounds, "threads", "% of a read", "step, ms",
                "step, GB/s", "read, GB/s");
    bool within = measure(&step, 1, rounds);
    if (threads > 1)
        within = measure(&step, threads, rounds) && within;
    return within ? 0 : 1;
}

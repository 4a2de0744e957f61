// Trains a two-layer decoder to reverse strings of 16 symbols. --check: its gradients beside float64, and the same bits for 1 and 2
// threads.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include <CLI/CLI.hpp>
#include <polyhead/polyhead.h>

#include "model.h"

using namespace train;

namespace {

constexpr int64_t batch_rows = 64, enough_steps = 300;
constexpr double most_rate = 3e-3, warm_up = 50;

// Strings, the separator, and what comes behind it.
Batch strings(std::mt19937_64 &random, int64_t count) {
    Batch batch;
    for (int64_t b = 0; b < count; b++) {
        int32_t text[length];
        std::generate(text, text + length, [&] { return int32_t(random() % symbols); });
        batch.input.insert(batch.input.end(), text, text + length);
        batch.input.push_back(int32_t(separator));
        batch.target.insert(batch.target.end(), length, -1);
        for (int64_t i = length; i-- > 0;) {
            batch.target.push_back(text[i]);
            if (i > 0) {
                batch.input.push_back(text[i]);
            }
        }
    }
    return batch;
}

// Adam.
struct Optimizer {
    Weights<float> mean, square;
    int64_t steps = 0;

    void step(Weights<float> &weights, Weights<float> &grads, double rate) {
        if (steps++ == 0) {
            mean = grads;
            for_each(mean, [](Vector<float> &v) { std::fill(v.begin(), v.end(), 0.0f); });
            square = mean;
        }
        const double one = 1 - std::pow(0.9, double(steps)), two = 1 - std::pow(0.98, double(steps));
        std::vector<Vector<float> *> all[3];
        Weights<float> *const of[] = {&grads, &mean, &square};
        for (int i = 0; i < 3; i++) {
            for_each(*of[i], [&](Vector<float> &v) { all[i].push_back(&v); });
        }
        size_t next = 0;
        for_each(weights, [&](Vector<float> &w) {
            const Vector<float> &g = *all[0][next];
            Vector<float> &m = *all[1][next], &s = *all[2][next++];
            for (size_t i = 0; i < w.size(); i++) {
                m[i] = float(0.9 * m[i] + 0.1 * g[i]);
                s[i] = float(0.98 * s[i] + 0.02 * g[i] * g[i]);
                w[i] -= float(rate * (m[i] / one) / (std::sqrt(s[i] / two) + 1e-9));
            }
        });
    }
};

double rate_of(int64_t step, int64_t steps) {
    const double done = double(step) / double(steps);
    return most_rate * std::min(1.0, double(step + 1) / warm_up) * 0.5 * (1 + std::cos(done * 3.14159265358979));
}

void show(int64_t step, int64_t steps, double loss) {
    constexpr int places = 40;
    const int full = int(places * (step + 1) / steps);
    std::fprintf(stderr, "\r[%.*s%*s] step %lld of %lld, loss %.4f ", full, "########################################", places - full, "",
                 static_cast<long long>(step + 1), static_cast<long long>(steps), loss);
}

// The largest error of a gradient beside float64, relative to the largest of its vector.
double error_of_gradients(Weights<float> weights, const Batch &batch) {
    Weights<float> found;
    gradients(weights, batch, kernels(), &found);
    Weights<double> exact = in_double(weights), expected;
    gradients(exact, batch, plain_loops(), &expected);
    std::vector<Vector<double> *> all;
    for_each(expected, [&](Vector<double> &v) { all.push_back(&v); });
    double worst = 0;
    size_t next = 0;
    for_each(found, [&](const Vector<float> &v) {
        double largest = 1e-30, error = 0;
        for (size_t i = 0; i < v.size(); i++) {
            largest = std::max(largest, std::fabs((*all[next])[i]));
            error = std::max(error, std::fabs(double(v[i]) - (*all[next])[i]));
        }
        worst = std::max(worst, error / largest);
        next++;
    });
    return worst;
}

// `checked`: at steps 1, 10 and 100 gradients are compared with float64. False when one is wrong.
bool train_steps(Weights<float> *weights, int64_t steps, int64_t planned, bool checked, bool quiet) {
    constexpr double allowed = 2e-4; // once the loss is small a gradient is the difference of a probability and 1
    std::mt19937_64 random(7);
    Optimizer optimizer;
    Weights<float> grads;
    for (int64_t step = 0; step < steps; step++) {
        const Batch batch = strings(random, batch_rows);
        if (checked && (step == 1 || step == 10 || step == 100)) {
            std::mt19937_64 other(step);
            const double error = error_of_gradients(*weights, strings(other, 2));
            std::printf("step %lld: largest error of a gradient beside float64, relative: %.1e\n", static_cast<long long>(step), error);
            if (!(error < allowed)) {
                std::printf("expected less than %.0e\n", allowed);
                return false;
            }
        }
        const double loss = gradients(*weights, batch, kernels(), &grads);
        optimizer.step(*weights, grads, rate_of(step, planned));
        if (!quiet && (step % 10 == 9 || step + 1 == steps)) {
            show(step, planned, loss);
        }
    }
    return true;
}

// The share of strings whose reverse the model writes symbol by symbol without a fault.
double share_of_exact(Weights<float> &weights, int64_t count) {
    std::mt19937_64 random(99);
    const Batch asked = strings(random, count);
    std::vector<int32_t> text = asked.input;
    std::vector<char> exact(size_t(count), 1);
    for (int64_t i = 0; i < length; i++) {
        const Vector<float> logits = logits_of(weights, text, kernels());
        for (int64_t b = 0; b < count; b++) {
            const int64_t t = b * tokens + length + i;
            const float *const row = logits.data() + t * vocabulary;
            const auto symbol = int32_t(std::max_element(row, row + vocabulary) - row);
            exact[size_t(b)] = char(exact[size_t(b)] && symbol == asked.target[size_t(t)]);
            if (i + 1 < length) {
                text[size_t(t + 1)] = symbol;
            }
        }
    }
    return double(std::count(exact.begin(), exact.end(), 1)) / double(count);
}

bool same_bits_for_threads(int64_t steps, int64_t planned) {
    Weights<float> of_threads[2] = {first_weights(1), first_weights(1)};
    const int before = polyhead::num_threads();
    for (int threads = 1; threads <= 2; threads++) {
        polyhead::set_num_threads(threads);
        train_steps(&of_threads[threads - 1], steps, planned, false, true);
    }
    polyhead::set_num_threads(before);
    std::vector<Vector<float> *> all;
    for_each(of_threads[0], [&](Vector<float> &v) { all.push_back(&v); });
    size_t next = 0;
    bool same = true;
    for_each(of_threads[1],
             [&](const Vector<float> &v) { same = same && std::memcmp(v.data(), all[next++]->data(), v.size() * sizeof(float)) == 0; });
    std::printf("%lld steps with 1 and with 2 threads: %s bits\n", static_cast<long long>(steps), same ? "the same" : "other");
    return same;
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app("Trains a two-layer decoder to reverse strings of 16 symbols.");
    int64_t steps = enough_steps;
    bool check = false;
    app.add_option("--steps", steps, "steps of training");
    app.add_flag("--check", check, "also compare gradients with float64, and the bits of 1 and 2 threads");
    CLI11_PARSE(app, argc, argv);
    const auto begin = std::chrono::steady_clock::now();
    if (check && !same_bits_for_threads(20, steps)) {
        return 1;
    }
    Weights<float> weights = first_weights(1);
    if (!train_steps(&weights, steps, steps, check, false)) {
        return 1;
    }
    const double share = share_of_exact(weights, 1000);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::printf("\n%.1f %% of 1,000 strings that it never saw are reversed without a fault; %.0f s\n", 100 * share, seconds);
    return steps < enough_steps || share >= 0.99 ? 0 : 1;
}

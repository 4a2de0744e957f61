// A text in parts: calls of a layer with a cache, one after another, against the float64 reference of the whole text.
#include <algorithm>
#include <string>

#include "kernel_table.h"

#include "instruments/calls/problems.h"
#include "instruments/calls/random.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/environment.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// Every token sees the same keys whether those behind it are there or not, and what a call has for its tokens is a view of what it would
// have for the whole text.
bool comes_in_parts(const Problem &p) {
    return p.cache != 0 && p.causal == POLYHEAD_BOTTOM_RIGHT && p.seq_len_q == 0 && p.mask == 0 && p.score_bias == 0 &&
           p.scores == POLYHEAD_NO_SCORES && p.weights_mean == 0 && !(p.expression && p.expression[0]);
}

// The tokens first .. first + count - 1 in dimension `dim`.
void take_tokens(polyhead_tensor *tensor, int dim, int64_t first, int64_t count) {
    if (tensor->rank != 0) {
        tensor->data = static_cast<char *>(tensor->data) + first * tensor->stride[dim] * dtype_bytes(tensor->dtype);
        tensor->shape[dim] = count;
    }
}

// A subject that gives the kernel a call in parts of random length: prompts of any length, single steps.
Subject in_parts(const Subject &whole, uint64_t seed) {
    Subject subject = whole;
    subject.name += ", in parts";
    subject.run = [run = whole.run, seed](const polyhead_args &args) {
        Random random(seed);
        const int64_t tokens = args.query.shape[1], batch = args.query.shape[0];
        std::vector<int32_t> lengths;
        for (int64_t b = 0; b < batch; b++) {
            lengths.push_back(static_cast<const int32_t *>(args.cache_lengths.data)[b * args.cache_lengths.stride[0]]);
        }
        polyhead_status status{};
        for (int64_t first = 0, count = 0; first < tokens && status.code == POLYHEAD_OK; first += count) {
            count = std::min(tokens - first, random.chance(50) ? 1 : random.between(1, random.chance(50) ? 16 : 60));
            polyhead_args part = args;
            part.cache_lengths = view(lengths.data(), {batch});
            for (polyhead_tensor *tensor : {&part.query, &part.out}) {
                take_tokens(tensor, 1, first, count);
            }
            for (polyhead_tensor *tensor : {&part.positions_q, &part.positions_kv}) {
                take_tokens(tensor, tensor->rank == 3 ? 2 : 1, first, count);
            }
            take_tokens(&part.lse, 2, first, count);
            status = run(part);
            for (int32_t &length : lengths) {
                length += static_cast<int32_t>(count);
            }
        }
        return status;
    };
    return subject;
}

} // namespace

TEST_CASE("layers with a cache: a text in parts is right, whatever the parts") {
    int checked = 0;
    for (const Kernel *kernel : kernel_table) {
        const Problem &p = kernel->problem;
        if (!comes_in_parts(p) || !kernel->supported()) {
            continue;
        }
        const KernelSubject subject(*kernel, 41);
        for (uint64_t seed = 1; seed <= (test_all() ? 12u : 4u); seed++) {
            Random random(seed + text_seed(kernel->name));
            const int64_t tokens = random.between(1, 150);
            Shape shape = plain_shape(p, random.between(1, 4), tokens, tokens + random.between(0, 200), seed);
            shape.key = shape.value = seed % 2 == 0 ? Layout::bshd_padded : Layout::bhsd;
            shape.place = seed % 3 == 0 ? Place::at_end : Place::inside;
            shape.poison = seed % 2 == 1;
            for (int64_t b = 0; b < shape.batch; b++) {
                shape.lengths.push_back(static_cast<int32_t>(random.between(0, shape.seq_len_kv - shape.seq_len_q)));
            }
            shape.extras = random_extras(p, shape.seq_len_q, shape.seq_len_kv, random);
            CHECK(check_answer(in_parts(subject.subject(), seed), shape) == "");
            checked++;
        }
    }
    CHECK(checked > 0);
}

// The plain f32 formula as if it were a kernel, for tests of the checks.
#ifndef POLYHEAD_TESTS_PLAIN_SUBJECT_H
#define POLYHEAD_TESTS_PLAIN_SUBJECT_H

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "instruments/calls/int8_cache.h"
#include "instruments/calls/subject.h"
#include "instruments/calls/weights.h"
#include "instruments/reference/reference.h"
#include "instruments/reference/visibility.h"

namespace polyhead::test {

using Fault = std::function<void(const Problem &, polyhead_args &)>;

inline void write(const polyhead_tensor &tensor, const std::vector<float> &values) {
    if (tensor.rank == 0) {
        return;
    }
    size_t next = 0;
    for_each_row(tensor, [&](float *row, int64_t, int64_t, int64_t) {
        for (int64_t d = 0; d < tensor.shape[tensor.rank - 1]; d++) {
            row[d] = values[next++];
        }
    });
}

// Rows [B,H_kv,T,d] behind the valid ones of each batch row.
inline void write_new_rows(const Problem &p, const polyhead_args &args, const polyhead_tensor &cache, const std::vector<float> &rows) {
    auto next = rows.begin();
    for (int64_t b = 0; cache.rank != 0 && b < args.query.shape[0]; b++) {
        for (int64_t h = 0; h < cache.shape[1]; h++) {
            for (int64_t n = key_length(p, args, b) - num_rows(args); n < key_length(p, args, b); n++) {
                int64_t outermost = b;
                if (p.page_size != 0) {
                    const polyhead_tensor &table = args.page_table;
                    outermost = static_cast<const int32_t *>(table.data)[b * table.stride[0] + n / p.page_size * table.stride[1]];
                }
                std::copy_n(next, cache.shape[3], element(cache, outermost, h, p.page_size != 0 ? n % p.page_size : n));
                next += cache.shape[3];
            }
        }
    }
}

// Gives what the formula gives. before may falsify the arguments, after the outputs.
inline Subject plain_subject(const Problem &p, const LayerWeights &weights, Fault before = nullptr, Fault after = nullptr) {
    Subject subject;
    subject.name = "plain_f32_formula";
    subject.problem = p;
    subject.weights = weights.tensors();
    subject.run = [p, &weights, before, after](const polyhead_args &given) {
        polyhead_args args = given;
        Tensor key, value; // of floats
        if (p.int8_cache != 0) {
            key = to_floats(given.key, given.key_scales);
            args.key = key.view;
            value = p.value_in_key == 0 ? to_floats(given.value, given.value_scales) : Tensor();
            args.value = value.view;
        }
        if (before) {
            before(p, args);
        }
        const Answer<float> answer = evaluate<float>(p, args, weights.tensors(), all_rows(p, args));
        write(given.out, answer.out);
        write(given.lse, answer.lse);
        write(given.scores, answer.scores);
        write(given.weights_mean, answer.weights_mean);
        if (p.shared_cache == 0) {
            write_new_rows(p, given, given.key_cache, answer.new_rows[0]);
            write_new_rows(p, given, given.value_cache, answer.new_rows[1]);
        }
        if (after) {
            after(p, args);
        }
        return polyhead_status{};
    };
    return subject;
}

inline bool contains(const std::string &text, const char *part) {
    return text.find(part) != std::string::npos;
}

} // namespace polyhead::test
#endif

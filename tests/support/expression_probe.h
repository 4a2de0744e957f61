// Evaluates a user expression at every point of a small problem, by Halide, as kernels do.
#ifndef POLYHEAD_TESTS_EXPRESSION_PROBE_H
#define POLYHEAD_TESTS_EXPRESSION_PROBE_H

#include <functional>
#include <string>
#include <vector>

#include "generators/expressions/values.h"

namespace polyhead::test {

// One point of the probe and what the tensors hold: element i of every tensor in row-major order is tensor_value(i).
struct ProbePoint {
    double score;
    int b, h, q, kv, p, seq_len_q, seq_len_kv, kv_length;
};

constexpr int probe_batch = 2, probe_heads = 3, probe_seq_len_q = 5, probe_seq_len_kv = 9;

inline int tensor_integer(int index) {
    return (index * 7 + 3) % 11 - 4;
}
inline double tensor_real(int index) {
    return tensor_integer(index) * 0.375;
}
inline bool tensor_truth(int index) {
    return tensor_integer(index) % 2 == 0;
}

struct ProbeResult {
    float score;
    float slope; // by the score that it is made from
    bool mask;
    bool has_begin, has_end; // bounds of the keys that the row sees were derived
    int begin, end;
};

void probe(const gen::Expression &expression, const std::function<void(const ProbePoint &point, const ProbeResult &result)> &visit);

} // namespace polyhead::test
#endif

// The same input gives the same bits, whatever the threads, the batch neighbours and the padding of keys.
#include <algorithm>
#include <cstring>

#include "check.h"
#include "problems.h"
#include "reference.h"

namespace polyhead::test {

namespace {

struct Bits {
    std::vector<float> out, lse;
};

// Runs into outputs full of canaries; empty when the call was refused.
bool run_fresh(const Subject &subject, Inputs &inputs, const polyhead_args &args, std::string *failure) {
    inputs.gaps_untouched(); // refills the outputs
    const polyhead_status status = subject.run(args);
    if (status.code != POLYHEAD_OK) {
        *failure = std::string("refused: ") + status.message;
    }
    return status.code == POLYHEAD_OK;
}

bool same(const std::vector<float> &a, const std::vector<float> &b, size_t begin, size_t end) {
    return begin == end || std::memcmp(a.data() + begin, b.data() + begin, (end - begin) * sizeof(float)) == 0;
}

// The view of batch row b alone.
void take_row(polyhead_tensor &tensor, int64_t b) {
    if (tensor.rank != 0) {
        tensor.data = static_cast<char *>(tensor.data) + b * tensor.stride[0] * dtype_bytes(tensor.dtype);
        tensor.shape[0] = 1;
    }
}

std::string threads(const Subject &subject, Inputs &inputs, const Bits &expected) {
    std::string failure;
    for (int count : {2, 5}) {
        subject.set_threads(count);
        if (!run_fresh(subject, inputs, inputs.args(), &failure)) {
            return failure;
        }
        const std::vector<float> out = inputs.out(), lse = inputs.lse();
        if (!same(out, expected.out, 0, out.size()) || !same(lse, expected.lse, 0, lse.size())) {
            return std::to_string(count) + " threads give other bits than 1";
        }
    }
    return "";
}

std::string alone(const Subject &subject, Inputs &inputs, const Bits &expected) {
    std::string failure;
    const int64_t batch = inputs.args().query.shape[0];
    const size_t out_row = expected.out.size() / static_cast<size_t>(batch), lse_row = expected.lse.size() / static_cast<size_t>(batch);
    for (int64_t b = 0; b < batch; b++) {
        polyhead_args args = inputs.args();
        for (polyhead_tensor *tensor : {&args.query, &args.key, &args.value, &args.kv_lengths, &args.out, &args.lse}) {
            take_row(*tensor, b);
        }
        if (!run_fresh(subject, inputs, args, &failure)) {
            return "batch row " + std::to_string(b) + " alone: " + failure;
        }
        const size_t row = static_cast<size_t>(b);
        if (!same(inputs.out(), expected.out, row * out_row, (row + 1) * out_row) ||
            !same(inputs.lse(), expected.lse, row * lse_row, (row + 1) * lse_row)) {
            return "batch row " + std::to_string(b) + " alone gives other bits than among " + std::to_string(batch);
        }
    }
    return "";
}

// Narrows T_kv; the lengths stay. Only key and value have it: in a self-attention layer it is the query length too.
std::string padding(const Subject &subject, Inputs &inputs, const Bits &expected) {
    const Problem &p = subject.problem;
    const std::vector<int32_t> &lengths = inputs.shape().lengths;
    if (lengths.empty() || p.seq_len_kv != 0 || (is_mha(p) && p.cross == 0)) {
        return "";
    }
    std::string failure;
    const int dim = is_mha(p) ? 1 : 2;
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end()), full = inputs.args().key.shape[dim];
    for (int64_t pad : {0, 1, 3, 16, 63, 64, 129, 300}) {
        polyhead_args args = inputs.args();
        args.key.shape[dim] = args.value.shape[dim] = longest + pad;
        if (longest + pad >= full) {
            break;
        }
        if (!run_fresh(subject, inputs, args, &failure)) {
            return failure;
        }
        const std::vector<float> out = inputs.out(), lse = inputs.lse();
        if (!same(out, expected.out, 0, out.size()) || !same(lse, expected.lse, 0, lse.size())) {
            return "keys padded by " + std::to_string(pad) + " give other bits than by " + std::to_string(full - longest);
        }
    }
    return "";
}

} // namespace

std::string check_same_bits(const Subject &subject, const Shape &shape) {
    const int32_t threads_before = polyhead_num_threads();
    Inputs inputs(subject.problem, shape);
    std::string failure;
    subject.set_threads(1);
    if (run_fresh(subject, inputs, inputs.args(), &failure)) {
        const Bits expected{inputs.out(), inputs.lse()};
        failure = threads(subject, inputs, expected);
        if (failure.empty() && !is_linear(subject.problem)) {
            failure = alone(subject, inputs, expected);
        }
        failure = failure.empty() ? padding(subject, inputs, expected) : failure;
    }
    subject.set_threads(threads_before);
    return failure.empty() ? "" : failure + reproduce(subject, shape);
}

} // namespace polyhead::test

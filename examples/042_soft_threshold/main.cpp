// Soft threshold: scores shrink towards 0 by a number given with each call, and small ones become 0.
#include <algorithm>

#include <attention_soft_threshold.h> // generated; the expression is in CMakeLists.txt
#include <polyhead/polyhead.h>

#include "../common/plain_attention.h"

int main() {
    examples::Attention a(1, 2, 90, 48);
    const float tau = 0.4f;

    // A tensor without dimensions is given as one of one element.
    const polyhead::TensorView tensors[] = {polyhead::view(&tau, {1})};
    polyhead::SdpaArgs args = a.args();
    args.expression_tensors = tensors;
    args.num_expression_tensors = 1;
    const polyhead::Status status = attention_soft_threshold.run(args);

    examples::Meaning meaning;
    meaning.score = [&](int64_t, int64_t, int64_t, int64_t, double score) {
        return std::max(score - double(tau), 0.0) + std::min(score + double(tau), 0.0);
    };
    meaning.mask = [](int64_t, int64_t, int64_t, int64_t) { return true; };
    return examples::compare(a, status, meaning);
}

// Relative position bias: a learned number per head and distance is added to each score, looked up inside the kernel.
#include <algorithm>
#include <cmath>
#include <vector>

#include <attention_relative_bias.h> // generated from relative_position_bias.txt
#include <polyhead/polyhead.h>

#include "../common/plain_attention.h"

int main() {
    constexpr int64_t heads = 4, far = 64, entries = 2 * far + 1;
    examples::Attention a(2, heads, 150, 32);
    std::vector<float> bias(heads * entries);
    for (size_t i = 0; i < bias.size(); ++i) {
        bias[i] = std::sin(0.37f * static_cast<float>(i));
    }

    // The tensors of the expression, in the order in which it declares them.
    const polyhead::TensorView tensors[] = {polyhead::view(bias.data(), {heads, entries})};
    polyhead::SdpaArgs args = a.args();
    args.expression_tensors = tensors;
    args.num_expression_tensors = 1;
    const polyhead::Status status = attention_relative_bias.run(args);

    examples::Meaning meaning;
    meaning.score = [&](int64_t, int64_t h, int64_t q, int64_t kv, double score) {
        return score + double(bias[size_t(h * entries + std::clamp(kv - q, -far, far) + far)]);
    };
    meaning.mask = [](int64_t, int64_t, int64_t, int64_t) { return true; };
    return examples::compare(a, status, meaning);
}

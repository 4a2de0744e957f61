// Document mask: several texts packed into one row of tokens; a token sees the tokens before it in its own text.
#include <vector>

#include <attention_documents.h> // generated; the expression is in CMakeLists.txt
#include <polyhead/polyhead.h>

#include "../common/plain_attention.h"

int main() {
    constexpr int64_t batch = 2, seq_len = 200;
    examples::Attention a(batch, 4, seq_len, 32);
    std::vector<int32_t> document(batch * seq_len);
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t t = 0; t < seq_len; ++t) { // texts of 37 and of 90 tokens
            document[size_t(b * seq_len + t)] = static_cast<int32_t>(t / (b == 0 ? 37 : 90));
        }
    }

    const polyhead::TensorView tensors[] = {polyhead::view(document.data(), {batch, seq_len})};
    polyhead::SdpaArgs args = a.args();
    args.expression_tensors = tensors;
    args.num_expression_tensors = 1;
    const polyhead::Status status = attention_documents.run(args);

    examples::Meaning meaning;
    meaning.score = [](int64_t, int64_t, int64_t, int64_t, double score) { return score; };
    meaning.mask = [&](int64_t b, int64_t, int64_t q, int64_t kv) {
        return document[size_t(b * seq_len + q)] == document[size_t(b * seq_len + kv)] && kv <= q;
    };
    return examples::compare(a, status, meaning);
}

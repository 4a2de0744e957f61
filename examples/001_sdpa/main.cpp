// The smallest consumer: one call of a generated attention kernel.
#include <cstdio>
#include <vector>

#include <attention_h8_d64.h> // generated: 8 heads of 64
#include <polyhead/polyhead.h>

int main() {
    const int batch = 2, heads = 8, seq_len = 100, head_dim = 64;
    std::vector<float> query(batch * heads * seq_len * head_dim, 0.5f), key = query, value = query, out(query.size());
    polyhead::SdpaArgs args;
    args.query = polyhead::view(query.data(), {batch, heads, seq_len, head_dim});
    args.key = polyhead::view(key.data(), {batch, heads, seq_len, head_dim});
    args.value = polyhead::view(value.data(), {batch, heads, seq_len, head_dim});
    args.out = polyhead::view(out.data(), {batch, heads, seq_len, head_dim});
    polyhead::Status status = attention_h8_d64.run(args);
    std::printf("%s out[0] = %g, expected 0.5\n", status.ok() ? "ok:" : status.message(), out[0]);
    return status.ok() && out[0] > 0.4999f && out[0] < 0.5001f ? 0 : 1;
}

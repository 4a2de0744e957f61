// Where the tokens of each batch row stand in tensors of tokens [B,..,T,..]: T for each, or packed one behind the other.
#ifndef POLYHEAD_RUNTIME_TOKEN_ROWS_H
#define POLYHEAD_RUNTIME_TOKEN_ROWS_H

#include <algorithm>
#include <cstdint>

#include <polyhead/c_api.h>

#include "../rules/tensor_rules.h"

namespace polyhead::runtime {

// Token t of batch row b, and its indices in tensors of tokens.
struct Token {
    int64_t b, t, outer, at;
};

// The tokens of one batch row: so many, from this one on.
struct TokenRow {
    int64_t first, count;
};

struct TokenRows {
    int64_t batch, tokens;         // T, or the number of all packed tokens
    const polyhead_tensor *counts; // int32 [B]: so many of the T tokens are used; null: all
    const polyhead_tensor *begins; // int32 [B+1]: where the tokens of each row begin; null: they are not packed

    // Within the tensors of tokens, also when another thread changes the integers. Both are of the same reads.
    TokenRow of(int64_t b) const noexcept {
        if (!begins) {
            return {0, counts ? index_at(*counts, tokens, b) : tokens};
        }
        const int64_t first = index_at(*begins, tokens, b);
        return {first, std::max(index_at(*begins, tokens, b + 1), first) - first};
    }
    Token token(int64_t b, const TokenRow &row, int64_t t) const noexcept { return {b, t, begins ? 0 : b, row.first + t}; }
    // The batch row of a packed token.
    int64_t row_at(int64_t token) const noexcept {
        int64_t low = 0, high = batch;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (index_at(*begins, tokens, middle + 1) > token) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        return low;
    }
};

} // namespace polyhead::runtime
#endif

// Which keys a query sees: by lengths, causal and window a range, by masks and expressions single keys of it.
#ifndef POLYHEAD_INSTRUMENTS_VISIBILITY_H
#define POLYHEAD_INSTRUMENTS_VISIBILITY_H

#include <algorithm>
#include <cstdint>
#include <vector>

#include <polyhead/polyhead.h>

namespace polyhead::test {

// Whether positions of queries among the keys matter to this problem: then a call may name an alignment.
bool knows_positions(const Problem &problem);
// Whether tensors are added to the logits: an additive mask, a score bias.
bool adds_tensors(const Problem &problem);
// Whether two rows of one head may see different keys.
bool rows_differ(const Problem &problem);

int64_t key_length(const Problem &problem, const polyhead_args &args, int64_t b);
// Position of query q of batch row b among the keys; may be before the first or after the last.
int64_t position_of(const Problem &problem, const polyhead_args &args, int64_t b, int64_t q);

// Keys begin <= n < end.
struct KeyRange {
    int64_t begin, end;
    int64_t count() const { return end - begin; }
};
// What lengths, causal and window leave of the keys.
KeyRange key_range(const Problem &problem, const polyhead_args &args, int64_t b, int64_t q);

// A row of a mask or bias that broadcasts as [B,H,T_q,T_kv]. Elements are numbers; of a boolean mask 0 or 1.
class MaskRow {
public:
    MaskRow(const polyhead_tensor &mask, int64_t b, int64_t h, int64_t q);
    float operator[](int64_t n) const;

private:
    const uint8_t *data_;
    int32_t dtype_;
    int64_t step_; // in bytes
};

// seen[n] != 0: key n takes part in row q of head h. As many entries as there are keys.
void find_seen(const Problem &problem, const polyhead_args &args, int64_t b, int64_t h, int64_t q, std::vector<uint8_t> &seen);

// Keys that at least one row sees, one entry per key: of a key/value head (sdpa), or of all heads (mha; h_kv is 0).
class SeenKeys {
public:
    SeenKeys(const Problem &problem, const polyhead_args &args);
    bool seen(int64_t b, int64_t h_kv, int64_t n) const { return seen_[static_cast<size_t>((b * groups_ + h_kv) * keys_ + n)] != 0; }

private:
    int64_t groups_, keys_;
    std::vector<uint8_t> seen_;
};

} // namespace polyhead::test
#endif

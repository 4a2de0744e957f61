// Visibility by the definitions of the interface, one key at a time.
#include "visibility.h"

#include <cmath>

#include "../calls/problems.h"
#include "expressions.h"
#include "half.h"
#include "reference.h"

namespace polyhead::test {

bool knows_positions(const Problem &p) {
    return p.causal != POLYHEAD_NOT_CAUSAL || p.window != 0 || p.alibi != 0 || p.rope != POLYHEAD_NO_ROPE || p.position_offsets != 0 ||
           has_expression(p);
}

bool rows_differ(const Problem &p) {
    return p.causal != POLYHEAD_NOT_CAUSAL || p.window != 0 || p.mask != POLYHEAD_NO_MASK || p.score_bias != 0 || has_expression(p);
}

bool adds_tensors(const Problem &p) {
    return p.mask == POLYHEAD_ADDITIVE_MASK || p.score_bias != 0;
}

MaskRow::MaskRow(const polyhead_tensor &mask, int64_t b, int64_t h, int64_t q)
    : dtype_(mask.dtype), step_(mask.shape[mask.rank - 1] == 1 ? 0 : dtype_bytes(mask.dtype)) {
    const int64_t index[4] = {b, h, q, 0};
    int64_t offset = 0;
    for (int dim = 0; dim < mask.rank; dim++) {
        offset += mask.shape[dim] == 1 ? 0 : index[4 - mask.rank + dim] * mask.stride[dim];
    }
    data_ = static_cast<const uint8_t *>(mask.data) + offset * dtype_bytes(mask.dtype);
}

float MaskRow::operator[](int64_t n) const {
    const uint8_t *const at = data_ + n * step_;
    if (dtype_ == POLYHEAD_BOOL) {
        return *at;
    }
    if (!is_16_bit(dtype_)) {
        return *reinterpret_cast<const float *>(at);
    }
    return from_storage_bits(*reinterpret_cast<const uint16_t *>(at), dtype_);
}

int64_t key_length(const Problem &problem, const polyhead_args &args, int64_t b) {
    if (problem.cache != 0) {
        return static_cast<const int32_t *>(args.cache_lengths.data)[b * args.cache_lengths.stride[0]] + num_rows(args);
    }
    return args.kv_lengths.data == nullptr ? num_keys(problem, args)
                                           : static_cast<const int32_t *>(args.kv_lengths.data)[b * args.kv_lengths.stride[0]];
}

int64_t position_of(const Problem &problem, const polyhead_args &args, int64_t b, int64_t q) {
    const int32_t alignment = args.alignment != 0                     ? args.alignment
                              : problem.causal != POLYHEAD_NOT_CAUSAL ? problem.causal
                                                                      : POLYHEAD_BOTTOM_RIGHT;
    int64_t p = q;
    if (alignment == POLYHEAD_BOTTOM_RIGHT) {
        p += key_length(problem, args, b) - num_rows(args);
    }
    if (args.position_offsets.data != nullptr) {
        p += static_cast<const int32_t *>(args.position_offsets.data)[b * args.position_offsets.stride[0]];
    }
    return p;
}

KeyRange key_range(const Problem &problem, const polyhead_args &args, int64_t b, int64_t q) {
    const int64_t p = position_of(problem, args, b, q), length = key_length(problem, args, b);
    KeyRange range{0, length};
    if (problem.causal != POLYHEAD_NOT_CAUSAL) {
        range.end = std::min(range.end, p + 1);
    }
    if (problem.window != 0 && args.has_window != 0) {
        if (args.window_left >= 0) {
            range.begin = std::max(range.begin, p - args.window_left);
        }
        if (args.window_right >= 0) {
            range.end = std::min(range.end, p + args.window_right + 1);
        }
    }
    range.begin = std::min(range.begin, length);
    range.end = std::max(range.end, range.begin);
    return range;
}

namespace {

void exclude_infinite(const polyhead_tensor &bias, int64_t b, int64_t h, int64_t q, KeyRange range, std::vector<uint8_t> &seen) {
    if (bias.data != nullptr) {
        const MaskRow row(bias, b, h, q);
        for (int64_t n = range.begin; n < range.end; n++) {
            seen[n] &= static_cast<uint8_t>(row[n] != -INFINITY);
        }
    }
}

} // namespace

void find_seen(const Problem &p, const polyhead_args &args, int64_t b, int64_t h, int64_t q, std::vector<uint8_t> &seen) {
    const KeyRange range = key_range(p, args, b, q);
    seen.assign(static_cast<size_t>(num_keys(p, args)), 0);
    std::fill(seen.begin() + range.begin, seen.begin() + range.end, uint8_t(1));
    if (p.mask == POLYHEAD_BOOLEAN_MASK && args.mask.data != nullptr) {
        const MaskRow row(args.mask, b, h, q);
        for (int64_t n = range.begin; n < range.end; n++) {
            seen[n] = static_cast<uint8_t>(row[n] != 0);
        }
    }
    if (p.mask == POLYHEAD_ADDITIVE_MASK) {
        exclude_infinite(args.mask, b, h, q, range, seen);
    }
    if (p.score_bias != 0) {
        exclude_infinite(args.score_bias, b, h, q, range, seen);
    }
    if (const ExpressionCase *expression = expression_of(p); expression != nullptr && expression->mask != nullptr) {
        ExpressionPoint<double> point = expression_point<double>(p, args, b, h, q);
        for (point.kv = range.begin; point.kv < range.end; point.kv++) {
            seen[point.kv] &= static_cast<uint8_t>(expression->mask(point));
        }
    }
}

SeenKeys::SeenKeys(const Problem &p, const polyhead_args &args) : groups_(is_sdpa(p) ? p.num_kv_heads : 1), keys_(num_keys(p, args)) {
    const int64_t batch = batch_size(p, args), rows = num_rows(args), group_size = p.num_heads / p.num_kv_heads;
    // Without masks all heads see the same.
    const bool heads_differ = p.mask != POLYHEAD_NO_MASK || p.score_bias != 0 || has_expression(p);
    seen_.assign(static_cast<size_t>(batch * groups_ * keys_), 0);
    std::vector<uint8_t> row;
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t h = 0; h < p.num_heads; h++) {
            uint8_t *group = seen_.data() + (b * groups_ + (is_sdpa(p) ? h / group_size : 0)) * keys_;
            for (int64_t q = 0; q < rows && (heads_differ || h % group_size == 0); q++) {
                find_seen(p, args, b, h, q, row);
                for (int64_t n = 0; n < keys_; n++) {
                    group[n] |= row[n];
                }
            }
        }
    }
}

} // namespace polyhead::test

// What a call to bare attention gives a row: its query, and the keys and values of its head, after norms and rotation.
#ifndef POLYHEAD_INSTRUMENTS_REFERENCE_HEADS_H
#define POLYHEAD_INSTRUMENTS_REFERENCE_HEADS_H

#include <algorithm>
#include <cstdint>
#include <vector>

#include "half.h"
#include "reference.h"
#include "reference_row.h"
#include "visibility.h"

namespace polyhead::test {

// Where key or value n of a head begins, in pages or without.
inline const float *key_row(const Problem &p, const polyhead_args &args, const polyhead_tensor &tensor, int64_t b, int64_t hkv, int64_t n) {
    if (args.page_table.rank == 0) {
        return element(tensor, b, hkv, n);
    }
    const polyhead_tensor &table = args.page_table;
    const int64_t row = b * table.stride[0] + n / p.page_size * table.stride[1];
    return element(tensor, static_cast<const int32_t *>(table.data)[row], hkv, n % p.page_size);
}

template <class Real> void round_in_unit(Real *numbers, int64_t count, const Evaluation &how) {
    const Real unit = how.unit;
    std::transform(numbers, numbers + count, numbers, [unit](Real x) { return x / unit; });
    round_all(numbers, count, how.storage);
    std::transform(numbers, numbers + count, numbers, [unit](Real x) { return x * unit; });
}

// A head after its norm, which is kept in the storage type.
template <class Real> void round_if(bool normalised, Real *numbers, int64_t count, const Evaluation &how) {
    if (normalised && is_16_bit(how.storage) && how.rounded != Rounded::new_rows) {
        round_in_unit(numbers, count, how);
    }
}

// A query or key, before its rotation and behind it.
template <class Real> void round_before(int32_t norm, Real *numbers, int64_t count, const Evaluation &how) {
    round_if(norm != POLYHEAD_NO_NORM && !how.behind_rotation, numbers, count, how);
}
template <class Real> void round_behind(int32_t norm, Real *numbers, int64_t count, const Evaluation &how) {
    round_if(norm != POLYHEAD_NO_NORM && how.behind_rotation, numbers, count, how);
}

// The logits of a gate, of any storage type.
template <class Real> std::vector<Real> gate_row(const polyhead_tensor &gate, int64_t b, int64_t h, int64_t q) {
    std::vector<Real> row(static_cast<size_t>(gate.shape[3]));
    const int64_t first = b * gate.stride[0] + h * gate.stride[1] + q * gate.stride[2];
    for (size_t i = 0; i < row.size(); i++) {
        const int64_t at = first + static_cast<int64_t>(i) * gate.stride[3];
        row[i] = Real(is_16_bit(gate.dtype) ? from_storage_bits(static_cast<const uint16_t *>(gate.data)[at], gate.dtype)
                                            : static_cast<const float *>(gate.data)[at]);
    }
    return row;
}

// Key/value head hkv of batch row b. Keys that lie in no page are 0.
template <class Real>
HeadKeys<Real> head_of_call(const Problem &p, const polyhead_args &args, const RowAttention<Real> &attention, int64_t b, int64_t hkv,
                            const Evaluation &how) {
    const int64_t keys = num_keys(p, args), given = args.page_table.rank != 0 ? key_length(p, args, b) : keys;
    HeadKeys<Real> head(keys, p.head_dim, p.head_dim_v);
    std::vector<Real> key(static_cast<size_t>(p.head_dim));
    for (int64_t n = 0; n < given; n++) {
        std::copy_n(key_row(p, args, args.key, b, hkv, n), p.head_dim, key.begin());
        attention.normalise_key(key.data(), p.head_dim);
        round_before(p.key_norm, key.data(), p.head_dim, how);
        attention.rotate_key(key.data(), b, n);
        round_behind(p.key_norm, key.data(), p.head_dim, how);
        for (int64_t d = 0; d < p.head_dim; d++) {
            head.key_transposed.row(d)[n] = key[d];
        }
        std::copy_n(key_row(p, args, p.value_in_key != 0 ? args.key : args.value, b, hkv, n), p.head_dim_v, head.value.row(n));
        attention.normalise_value(head.value.row(n), p.head_dim_v);
        round_if(p.value_norm != 0, head.value.row(n), p.head_dim_v, how);
    }
    head.find_max_values();
    return head;
}

// Row q of head h, head_dim numbers.
template <class Real>
void query_of_call(const Problem &p, const polyhead_args &args, const RowAttention<Real> &attention, int64_t b, int64_t h, int64_t q,
                   const Evaluation &how, Real *query) {
    std::copy_n(element(args.query, b, h, q), p.head_dim, query);
    attention.normalise_query(query, p.head_dim);
    round_before(p.query_norm, query, p.head_dim, how);
    attention.rotate_query(query, b, q);
    round_behind(p.query_norm, query, p.head_dim, how);
}

} // namespace polyhead::test
#endif

// Rows of heads: conversion, rotation, and the rules that functions around kernels share.
#include "head_rows.h"

#include "../memory/stored.h"
#include "../rules/shared_elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace polyhead::runtime {
namespace {

bool same_place(const polyhead_tensor &a, const polyhead_tensor &b) noexcept {
    const auto same = [&](int i) { return a.shape[i] == b.shape[i] && (a.shape[i] == 1 || a.stride[i] == b.stride[i]); };
    bool all = a.rank == b.rank && a.dtype == b.dtype && elements(a, dtype_bytes(a.dtype)) == elements(b, dtype_bytes(b.dtype));
    for (int i = 0; all && i < a.rank; ++i) {
        all = same(i);
    }
    return all;
}

} // namespace

void load_floats(const char *row, int32_t dtype, int64_t count, float *floats) noexcept {
    with_stored(dtype, [&](auto element) {
        for (int64_t i = 0; i < count; ++i) {
            std::memcpy(&element, row + i * int64_t(sizeof element), sizeof element);
            floats[i] = as_float(element);
        }
    });
}

void store_floats(const float *floats, int64_t count, int32_t dtype, char *row) noexcept {
    with_stored(dtype, [&](auto element) {
        for (int64_t i = 0; i < count; ++i) {
            element = as_stored<decltype(element)>(floats[i]);
            std::memcpy(row + i * int64_t(sizeof element), &element, sizeof element);
        }
    });
}

void store_scaled(const float *floats, int64_t count, int64_t scales, int8_t *row, float *scale) noexcept {
    constexpr float most = 127.0f, to_whole = 12582912.0f; // 1.5 * 2^23: a sum with it is rounded to nearest even
    const int64_t shared = count / scales;
    for (int64_t s = 0; s < scales; ++s) {
        const float *const x = floats + s * shared;
        float largest = 0.0f;
        for (int64_t i = 0; i < shared; ++i) {
            largest = std::max(largest, std::fabs(x[i]));
        }
        scale[s] = largest / most;
        for (int64_t i = 0; i < shared; ++i) { // a scale that is subnormal has few digits: quotients may be larger than 127
            // (What another thread changes to NaN meanwhile becomes a number.)
            const float steps = scale[s] > 0.0f ? std::min(std::max(-most, x[i] / scale[s]), most) : 0.0f;
            row[s * shared + i] = static_cast<int8_t>(static_cast<int32_t>((steps + to_whole) - to_whole));
        }
    }
}

bool check_storage(const char *name, const polyhead_tensor &t, polyhead_status *status, bool or_i8) noexcept {
    const bool known = stores_floats(t.dtype) || (or_i8 && t.dtype == POLYHEAD_I8);
    return absent(t) || known ||
           refuse(status, POLYHEAD_WRONG_DTYPE, "%s: dtype %s, expected %s", name, dtype_name(t.dtype),
                  or_i8 ? "f32, f16, bf16 or i8" : storage_types);
}

bool check_in_place(const char *name, const polyhead_tensor &output, const char *other, const polyhead_tensor &input,
                    polyhead_status *status) noexcept {
    return same_place(output, input) || !may_share_elements(output, input) ||
           refuse(status, POLYHEAD_ALIASED, "%s: shares memory with %s, expected memory of its own, or the same elements", name, other);
}

bool check_rows(const polyhead_tensor &input, const polyhead_tensor &out, polyhead_status *status) noexcept {
    if (!check_storage("input", input, status) || !check_host_tensor({"input", &input, input.dtype, Role::input, 4, {}}, status)) {
        return false;
    }
    const auto as_input = [&](int i) { return Extent{input.shape[i], "input"}; };
    if (input.shape[3] > most_head_dim) {
        return refuse(status, POLYHEAD_WRONG_SHAPE, "input: extent %lld of dimension 3, expected at most %lld",
                      static_cast<long long>(input.shape[3]), static_cast<long long>(most_head_dim));
    }
    return check_host_tensor({"out", &out, input.dtype, Role::output, 4, {as_input(0), as_input(1), as_input(2), as_input(3)}}, status);
}

int64_t Rotation::position(const Token &token, int32_t direction) const noexcept {
    const polyhead_tensor *first = absent(r_.positions) ? first_ : &r_.positions;
    return r_.positions.rank == 3   ? int64_t(integer_at(of_direction(r_.positions, direction), token.outer, token.at))
           : r_.positions.rank == 2 ? int64_t(integer_at(r_.positions, token.outer, token.at))
                                    : (first ? int64_t(integer_at(*first, token.b)) : 0) + token.t;
}

namespace {

bool check_sections(const contract::RopeSections &sections, int64_t pairs, polyhead_status *status) noexcept {
    if (sections.kind < POLYHEAD_NO_SECTIONS || sections.kind > POLYHEAD_SECTIONS_PARTS) {
        return refuse(status, POLYHEAD_BAD_VALUE,
                      "rope_sections: value %d, expected 0 (none), 1 (contiguous), 2 (interleaved) or 3 (parts)", sections.kind);
    }
    const contract::SectionsFault fault = contract::fault_of(sections, static_cast<int32_t>(pairs));
    return !fault.name || refuse(status, POLYHEAD_BAD_VALUE, "%s: value %d, expected %s", fault.name, fault.found, fault.expected);
}

// Of the first tokens [B], or of each token: [B,T], with sections [B,S,T]. Packed tokens are one row of them.
bool check_positions_shape(const polyhead_tensor &positions, const contract::RopeSections &sections, const TokenRows &rows,
                           polyhead_status *status) noexcept {
    const bool by_direction = sections.kind != POLYHEAD_NO_SECTIONS;
    const int each = by_direction ? 3 : 2, rank = positions.rank == each || (by_direction && positions.rank == 2) ? each : 1;
    Extent outer{rows.batch, "key"};
    if (rows.begins) {
        outer = rank == each ? Extent{1, "key"} : Extent{rows.batch, "lengths"};
    }
    TensorRule rule{"positions", &positions, POLYHEAD_I32, Role::lengths, rank, {outer, {rows.tokens, "key"}}};
    if (by_direction) {
        rule.extents[1] = {sections.directions(), "sections"};
        rule.extents[2] = {rows.tokens, "key"};
    }
    return absent(positions) || check_host_tensor(rule, status);
}

} // namespace

bool Rotation::check(const polyhead_rotation &r, const contract::RopeSections &sections, const TokenRows &rows, int64_t head_dim,
                     polyhead_status *status) noexcept {
    if (r.rope < POLYHEAD_NO_ROPE || r.rope > POLYHEAD_ROPE_HALF_SPLIT_TRAILING) {
        return refuse(status, POLYHEAD_BAD_VALUE,
                      "rope: value %d, expected 0 (none), 1 (interleaved), 2 (half_split), 3 or 4 (the same, trailing)", r.rope);
    }
    const struct {
        const char *name;
        const polyhead_tensor &tensor;
    } tensors[] = {{"rope_cos", r.cos}, {"rope_sin", r.sin}, {"positions", r.positions}};
    if (r.rope == POLYHEAD_NO_ROPE) {
        const auto *given = std::find_if(tensors, tensors + 3, [](const auto &t) { return !absent(t.tensor); });
        const char *const name = given != tensors + 3 ? given->name : sections.kind != POLYHEAD_NO_SECTIONS ? "rope_sections" : nullptr;
        return !name || refuse(status, POLYHEAD_WRONG_OPERATION, "%s: given, expected none, because nothing is rotated", name);
    }
    if (!check_host_tensor({"rope_cos", &r.cos, POLYHEAD_F32, Role::input, 2, {}}, status)) {
        return false;
    }
    const Extent positions{r.cos.shape[0], "rope_cos"}, pairs{r.cos.shape[1], "rope_cos"};
    if (2 * r.cos.shape[1] > head_dim) {
        return refuse(status, POLYHEAD_WRONG_SHAPE, "rope_cos: extent %lld of dimension 1, expected at most %lld, half the head dimension",
                      static_cast<long long>(r.cos.shape[1]), static_cast<long long>(head_dim / 2));
    }
    return check_host_tensor({"rope_sin", &r.sin, POLYHEAD_F32, Role::input, 2, {positions, pairs}}, status) &&
           check_sections(sections, r.cos.shape[1], status) && check_positions_shape(r.positions, sections, rows, status);
}

bool Rotation::check_positions(const TokenRows &rows, polyhead_status *status) const noexcept {
    const int64_t positions = r_.cos.shape[0];
    const int32_t directions = r_.positions.rank == 3 ? sections_.directions() : 1; // otherwise all have the same position
    for (int64_t b = 0; rotates() && b < rows.batch; ++b) {
        const TokenRow row = rows.of(b);
        for (int64_t t = 0; t < row.count * directions; ++t) {
            const int64_t at = position(rows.token(b, row, t / directions), static_cast<int32_t>(t % directions));
            if (at < 0 || at >= positions) {
                return refuse(status, POLYHEAD_BAD_VALUE,
                              "positions: token %lld of batch row %lld is at position %lld, expected 0 to %lld (rows of rope_cos)",
                              static_cast<long long>(t / directions), static_cast<long long>(b), static_cast<long long>(at),
                              static_cast<long long>(positions - 1));
            }
        }
    }
    return true;
}

void Rotation::apply(float *row, int64_t width, const Token &token) const noexcept {
    const int64_t pairs = r_.cos.shape[1], last = r_.cos.shape[0] - 1;
    if (pairs == 0 || last < 0) {
        return;
    }
    const float *cos[3], *sin[3]; // by direction
    for (int32_t direction = 0; direction < sections_.directions(); ++direction) {
        const int64_t at = std::clamp<int64_t>(position(token, direction), 0, last); // another thread may have changed it
        cos[direction] = static_cast<const float *>(r_.cos.data) + r_.cos.offset + at * r_.cos.stride[0];
        sin[direction] = static_cast<const float *>(r_.sin.data) + r_.sin.offset + at * r_.sin.stride[0];
    }
    const bool interleaved = rotates_neighbours(r_.rope), in_parts = sections_.splits_parts(interleaved);
    row += rotates_trailing(r_.rope) ? width - 2 * pairs : 0;
    for (int32_t i = 0; i < pairs; ++i) {
        const int32_t direction = sections_.direction_of(i);
        int64_t place = i, apart = pairs;
        if (interleaved) {
            place = 2 * i;
            apart = 1;
        } else if (in_parts) {
            place += sections_.before(direction);
            apart = sections_.pairs[direction];
        }
        float &first = row[place], &second = row[place + apart];
        const float x = first, y = second, c = cos[direction][i], s = sin[direction][i];
        first = x * c - y * s;
        second = y * c + x * s;
    }
}

} // namespace polyhead::runtime

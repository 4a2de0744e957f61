// Rows of a fuzzed cache call as a plain model has them.
#include "model_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <polyhead/half.h>

#include "memory.h"

// The model's own branches are nothing to look for.
#pragma clang attribute push(__attribute__((no_sanitize("coverage"))), apply_to = function)

namespace polyhead::fuzz {

int size_of(const polyhead_tensor &t) {
    return contract::dtype_bytes(t.dtype);
}

bool is_absent(const polyhead_tensor &t) {
    return t.rank == 0 && !t.data;
}

float as_float(const char *from, int32_t dtype) {
    uint16_t bits = 0;
    float value = 0;
    if (dtype == POLYHEAD_F32) {
        std::memcpy(&value, from, sizeof value);
        return value;
    }
    std::memcpy(&bits, from, sizeof bits);
    return dtype == POLYHEAD_F16 ? to_float(f16{bits}) : to_float(bf16{bits});
}

namespace {

void from_float(float value, int32_t dtype, char *to) {
    if (dtype == POLYHEAD_F32) {
        std::memcpy(to, &value, sizeof value);
    } else {
        const uint16_t bits = dtype == POLYHEAD_F16 ? to_f16(value).bits : to_bf16(value).bits;
        std::memcpy(to, &bits, sizeof bits);
    }
}

polyhead_sections make_sections(Bytes *bytes, int32_t pairs) {
    polyhead_sections s{};
    s.rope_sections = bytes->below(8) == 0 ? bytes->below(8) - 2 : 1 + bytes->below(3);
    s.section_2 = bytes->below(4) == 0 ? bytes->below(8) - 2 : pairs / 3;
    s.section_3 = bytes->below(2) == 0 ? 0 : pairs / 3;
    s.section_1 = pairs - s.section_2 - s.section_3 + (bytes->below(8) == 0 ? 1 : 0);
    return s;
}

} // namespace

int64_t Turn::direction_of(int64_t pair) const {
    const polyhead_sections &s = sections;
    if (s.rope_sections == POLYHEAD_SECTIONS_INTERLEAVED) {
        return pair % 3 == 1 && pair / 3 < s.section_2 ? 1 : pair % 3 == 2 && pair / 3 < s.section_3 ? 2 : 0;
    }
    return s.rope_sections == POLYHEAD_NO_SECTIONS || pair < s.section_1 ? 0 : pair < s.section_1 + s.section_2 ? 1 : 2;
}

int64_t Turn::position_of(int64_t direction, const Token &token, int64_t first) const {
    const polyhead_tensor &at = rotation.positions;
    return rotation.rope == POLYHEAD_NO_ROPE || is_absent(at) ? first + token.t
           : at.rank == 3                                     ? integer(at, token.outer, direction, token.at)
           : at.rank == 2                                     ? integer(at, token.outer, token.at)
                                                              : integer(at, token.b) + token.t;
}

Turn make_turn(Bytes *bytes, CacheMemory *memory, const TurnExtents &e) {
    Turn turn;
    polyhead_rotation &r = turn.rotation;
    if (bytes->below(2) == 0) {
        return turn;
    }
    const int64_t most_pairs[] = {e.d / 2, 1, 0, e.d}, pairs = most_pairs[bytes->below(4)];
    r.rope = bytes->below(8) == 0 ? bytes->below(8) - 2 : 1 + bytes->below(4);
    r.cos = memory->tensor(POLYHEAD_F32, {8, pairs});
    r.sin = memory->tensor(POLYHEAD_F32, {8, pairs});
    if (bytes->below(2) == 0) {
        r.positions = bytes->below(2) == 0 ? memory->tensor(POLYHEAD_I32, {e.batch}, Fill::integers)
                                           : memory->tensor(POLYHEAD_I32, {e.outer, e.tokens}, Fill::integers);
    }
    if (bytes->below(4) == 0) {
        turn.sections = make_sections(bytes, static_cast<int32_t>(pairs));
        if (r.positions.rank == 2) {
            r.positions = memory->tensor(POLYHEAD_I32, {e.outer, turn.sections.section_3 > 0 ? 3 : 2, e.tokens}, Fill::integers);
        }
    }
    return turn;
}

std::vector<float> row_of(const polyhead_tensor &t, const Token &token, int64_t h, const Turn &turn, int64_t first_position) {
    const polyhead_rotation &r = turn.rotation;
    std::vector<float> floats;
    for (int64_t d = 0; d < t.shape[3]; ++d) {
        floats.push_back(as_float(element(t, token.outer, h, token.at, d), t.dtype));
    }
    const int64_t pairs = r.rope == POLYHEAD_NO_ROPE ? 0 : r.cos.shape[1];
    const bool interleaved = r.rope == POLYHEAD_ROPE_INTERLEAVED || r.rope == POLYHEAD_ROPE_INTERLEAVED_TRAILING;
    const int64_t begin = r.rope >= POLYHEAD_ROPE_INTERLEAVED_TRAILING ? t.shape[3] - 2 * pairs : 0;
    const int64_t sizes[] = {turn.sections.section_1, turn.sections.section_2, turn.sections.section_3},
                  before[] = {0, sizes[0], sizes[0] + sizes[1]};
    const bool parts = turn.sections.rope_sections == POLYHEAD_SECTIONS_PARTS && !interleaved;
    for (int64_t i = 0; i < pairs; ++i) {
        const int64_t direction = turn.direction_of(i), position = turn.position_of(direction, token, first_position);
        if (position < 0 || position >= r.cos.shape[0]) {
            fail("accepted: position %lld of %lld", static_cast<long long>(position), static_cast<long long>(r.cos.shape[0]));
        }
        const int64_t at = begin + (interleaved ? 2 * i
                                    : parts     ? i + before[direction]
                                                : i),
                      apart = interleaved ? 1
                              : parts     ? sizes[direction]
                                          : pairs;
        float &first = floats[size_t(at)], &second = floats[size_t(at + apart)];
        const float x = first, y = second, cos = as_float(element(r.cos, position, i), POLYHEAD_F32),
                    sin = as_float(element(r.sin, position, i), POLYHEAD_F32);
        first = x * cos - y * sin;
        second = y * cos + x * sin;
    }
    return floats;
}

void model_row(CacheMemory::Snapshot *expected, const CacheMemory &memory, const polyhead_tensor &to, const polyhead_tensor &scales,
               int64_t block, int64_t h, int64_t row, const std::vector<float> &floats) {
    const auto put = [&](const char *address, const void *bytes, size_t count) { std::memcpy(memory.in(expected, address), bytes, count); };
    char stored[4];
    for (int64_t d = 0; to.dtype != POLYHEAD_I8 && d < to.shape[3]; ++d) {
        from_float(floats[size_t(d)], to.dtype, stored);
        put(element(to, block, h, row, d), stored, size_t(size_of(to)));
    }
    for (int64_t s = 0; to.dtype == POLYHEAD_I8 && s < scales.shape[3]; ++s) {
        const int64_t shared = to.shape[3] / scales.shape[3];
        float largest = 0;
        for (int64_t d = s * shared; d < (s + 1) * shared; ++d) {
            largest = std::max(largest, std::fabs(floats[size_t(d)]));
        }
        const float scale = largest / 127.0f;
        put(element(scales, block, h, row, s), &scale, sizeof scale);
        for (int64_t d = s * shared; d < (s + 1) * shared; ++d) {
            const float steps = scale > 0 ? std::nearbyint(floats[size_t(d)] / scale) : 0.0f;
            const auto integer = static_cast<int8_t>(std::min(127.0f, std::max(-127.0f, steps)));
            put(element(to, block, h, row, d), &integer, 1);
        }
    }
}

} // namespace polyhead::fuzz

#pragma clang attribute pop

// Rows of one head of one token: read as floats, rotated by position, written in a storage type. For functions around kernels.
#ifndef POLYHEAD_RUNTIME_HEAD_ROWS_H
#define POLYHEAD_RUNTIME_HEAD_ROWS_H

#include <cstdint>

#include <polyhead/c_cache.h>

#include "../../contract/rope_sections.h"
#include "../rules/tensor_rules.h"
#include "../status.h"
#include "token_rows.h"

namespace polyhead::runtime {

constexpr int64_t most_head_dim = 576;

// Address of row (i, j, k) of a tensor [i,j,k,d] in host memory. The stride of a dimension of one element means nothing.
inline char *head_row(const polyhead_tensor &t, int64_t i, int64_t j, int64_t k) noexcept {
    const int64_t offset = t.offset + i * t.stride[0] + j * t.stride[1] + k * t.stride[2];
    return static_cast<char *>(t.data) + offset * dtype_bytes(t.dtype);
}

// Elements as floats and back; 16 bits are rounded to nearest even.
void load_floats(const char *row, int32_t dtype, int64_t count, float *floats) noexcept;
void store_floats(const float *floats, int64_t count, int32_t dtype, char *row) noexcept;
// Integers from -127 to 127 and their scales, of finite floats: so many neighbouring entries share one that `scales` of them cover a row.
void store_scaled(const float *floats, int64_t count, int64_t scales, int8_t *row, float *scale) noexcept;

// A tensor on the host whose elements are f32, f16 or bf16, or i8; false when that is refused. An absent tensor has no type.
bool check_storage(const char *name, const polyhead_tensor &tensor, polyhead_status *status, bool or_i8 = false) noexcept;
// An output may be an input itself, element for element, and may otherwise share no memory with it.
bool check_in_place(const char *name, const polyhead_tensor &output, const char *other, const polyhead_tensor &input,
                    polyhead_status *status) noexcept;

inline contract::RopeSections sections_of(const polyhead_sections &s) noexcept {
    return {s.rope_sections, {s.section_1, s.section_2, s.section_3}};
}

// Of a function of rows: input [B,H,T,d] of floats, and out of the same extents and type.
bool check_rows(const polyhead_tensor &input, const polyhead_tensor &out, polyhead_status *status) noexcept;

// A checked rotation.
class Rotation {
public:
    // The kind and the shapes, for these tokens.
    static bool check(const polyhead_rotation &rotation, const contract::RopeSections &sections, const TokenRows &rows, int64_t head_dim,
                      polyhead_status *status) noexcept;
    // first: int32 [B] that stands in for absent positions, or null: 0.
    Rotation(const polyhead_rotation &rotation, const contract::RopeSections &sections, const polyhead_tensor *first) noexcept
        : r_(rotation), sections_(sections), first_(first) {}
    bool rotates() const noexcept { return r_.rope != POLYHEAD_NO_ROPE; }
    // The tables have a row for the position of each token.
    bool check_positions(const TokenRows &rows, polyhead_status *status) const noexcept;
    // Rotates the leading or trailing entries of a row of this width.
    void apply(float *row, int64_t width, const Token &token) const noexcept;

private:
    int64_t position(const Token &token, int32_t direction) const noexcept;

    const polyhead_rotation &r_;
    const contract::RopeSections sections_;
    const polyhead_tensor *first_;
};

} // namespace polyhead::runtime

#endif

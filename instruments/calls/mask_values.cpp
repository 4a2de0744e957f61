// Values of masks, row by row.
#include "mask_values.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "../reference/half.h"

namespace polyhead::test {

namespace {

constexpr float huge = 3.4e38f, lowest = -std::numeric_limits<float>::max();

// One row of a mask: its b and its position among the rows.
struct MaskRowAt {
    int64_t b, q;
};

// b is the outermost index of a mask of rank 4, q the last before the keys.
MaskRowAt row_at(const polyhead_tensor &mask, const int64_t (&index)[3]) {
    return {mask.rank == 4 ? index[0] : 0, mask.rank >= 2 ? index[mask.rank - 2] : 0};
}

// Whether key n of this row takes part.
class Pattern {
public:
    Pattern(MaskFill fill, uint64_t seed) : fill_(fill), seed_(seed) {}
    void next_row(MaskRowAt at, Random &random) {
        at_ = at;
        row_is_masked_ = fill_ == MaskFill::rows && random.chance(30);
    }
    bool takes_part(int64_t n, Random &random) const {
        switch (fill_) {
        case MaskFill::all:
            return true;
        case MaskFill::sparse:
            return random.chance(8);
        case MaskFill::columns:
            return Random(seed_ ^ static_cast<uint64_t>(at_.b * 1000003 + n)).chance(60);
        case MaskFill::rows:
            return !row_is_masked_ && random.chance(60);
        case MaskFill::documents:
            return n / 19 == at_.q / 19 || n / 19 == at_.q / 19 + 2;
        default:
            return random.chance(75);
        }
    }

private:
    MaskFill fill_;
    uint64_t seed_;
    MaskRowAt at_{};
    bool row_is_masked_ = false;
};

// One row of an additive mask with sentinels: all of one kind, or a mixture.
void fill_sentinels(std::vector<float> &row, Random &random) {
    const int64_t kind = random.below(10);
    for (float &element : row) {
        switch (kind) {
        case 0:
        case 1: // all at the lowest numbers: the mean of the values
            element = random.chance(50) ? -huge : lowest;
            break;
        case 2:
            element = -INFINITY;
            break;
        case 3:
            element = random.chance(50) ? -huge : -INFINITY;
            break;
        case 4:
            element = -1e4f;
            break;
        default: {
            const int64_t one = random.below(4);
            element = one == 0 ? -1e4f : one == 1 ? -huge : one == 2 ? -INFINITY : random.normal();
        }
        }
    }
}

// Rounds a row to the element type. Finite numbers stay finite: they are sentinels that take part.
void store_row(const std::vector<float> &row, const polyhead_tensor &mask, int64_t offset) {
    const float largest = mask.dtype == POLYHEAD_F16 ? 65504.0f : 0x1.fep127f;
    for (size_t n = 0; n < row.size(); n++) {
        const int64_t at = offset + static_cast<int64_t>(n);
        if (is_16_bit(mask.dtype)) {
            const float kept = std::isinf(row[n]) ? row[n] : std::max(-largest, std::min(row[n], largest));
            static_cast<uint16_t *>(mask.data)[at] = to_storage_bits(kept, mask.dtype);
        } else {
            static_cast<float *>(mask.data)[at] = row[n];
        }
    }
}

} // namespace

void fill_boolean_mask(const polyhead_tensor &mask, MaskFill fill, Random &random) {
    Pattern pattern(fill == MaskFill::sentinels ? MaskFill::random : fill, random.bits());
    for_each_offset(mask, [&](int64_t offset, int64_t i, int64_t j, int64_t k) {
        pattern.next_row(row_at(mask, {i, j, k}), random);
        for (int64_t n = 0; n < mask.shape[mask.rank - 1]; n++) {
            static_cast<uint8_t *>(mask.data)[offset + n] = static_cast<uint8_t>(pattern.takes_part(n, random));
        }
    });
}

void fill_additive_mask(const polyhead_tensor &mask, MaskFill fill, Random &random) {
    Pattern pattern(fill, random.bits());
    for_each_offset(mask, [&](int64_t offset, int64_t i, int64_t j, int64_t k) {
        std::vector<float> row(static_cast<size_t>(mask.shape[mask.rank - 1]));
        if (fill == MaskFill::sentinels) {
            fill_sentinels(row, random);
        } else {
            pattern.next_row(row_at(mask, {i, j, k}), random);
            for (size_t n = 0; n < row.size(); n++) {
                row[n] = pattern.takes_part(static_cast<int64_t>(n), random) ? random.normal() : -INFINITY;
            }
        }
        store_row(row, mask, offset);
    });
}

} // namespace polyhead::test

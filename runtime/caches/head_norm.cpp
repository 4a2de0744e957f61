// Norms of rows of heads, and what is refused of them.
#include "head_norm.h"

#include <cmath>
#include <cstring>

#include "../memory/stored.h"
#include "../rules/tensor_rules.h"
#include "../status.h"

namespace polyhead::runtime {
namespace {

// The sum of term(0) .. term(count - 1): squares of floats do not overflow in it, and four additions do not wait for each other.
template <typename Term> double sum_of(int64_t count, const Term &term) noexcept {
    double sums[4] = {};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        for (int64_t n = 0; n < 4; ++n) {
            sums[n] += term(i + n);
        }
    }
    for (; i < count; ++i) {
        sums[0] += term(i);
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// change(i, x) for every entry x of a checked tensor [width].
template <typename Change> void for_each_entry(const polyhead_tensor &t, int64_t width, const Change &change) noexcept {
    with_stored(t.dtype, [&](auto element) {
        const char *const entries = elements(t, int(sizeof element));
        for (int64_t i = 0; i < width; ++i) {
            std::memcpy(&element, entries + i * int64_t(sizeof element), sizeof element);
            change(i, as_float(element));
        }
    });
}

bool check_entries_of(const char *name, const polyhead_tensor &t, int64_t width, polyhead_status *status) noexcept {
    if (absent(t)) {
        return true;
    }
    if (!stores_floats(t.dtype)) {
        return refuse(status, POLYHEAD_WRONG_DTYPE, "%s: dtype %s, expected %s", name, dtype_name(t.dtype), storage_types);
    }
    return check_host_tensor({name, &t, t.dtype, Role::input, 1, {{width, nullptr}}}, status);
}

} // namespace

bool HeadNorm::check(const NormNames &names, int64_t width, polyhead_status *status) const noexcept {
    if (kind_ < POLYHEAD_NO_NORM || kind_ > POLYHEAD_LAYER_NORM) {
        return refuse(status, POLYHEAD_BAD_VALUE, "%s: value %d, expected 0 (none), 1 (rms), 2 (rms_plus_one) or 3 (layer)", names.norm,
                      kind_);
    }
    if (!normalizes() && !absent(weight_)) {
        return refuse(status, POLYHEAD_WRONG_OPERATION, "%s: given, expected none, because %s is 0 (none)", names.weight, names.norm);
    }
    if (kind_ != POLYHEAD_LAYER_NORM && !absent(bias_)) {
        return refuse(status, POLYHEAD_WRONG_OPERATION, "%s: given, expected none, because %s is not 3 (layer)", names.bias, names.norm);
    }
    return check_entries_of(names.weight, weight_, width, status) && check_entries_of(names.bias, bias_, width, status);
}

bool check_epsilon(const char *name, float epsilon, bool normalizes, polyhead_status *status) noexcept {
    if (!normalizes) {
        return epsilon == 0.0f || refuse(status, POLYHEAD_BAD_VALUE, "%s: value %s, expected 0, because nothing is normalized", name,
                                         NumberText(epsilon).text);
    }
    return (epsilon > 0.0f && std::isfinite(epsilon)) ||
           refuse(status, POLYHEAD_BAD_VALUE, "%s: value %s, expected a finite number above 0", name, NumberText(epsilon).text);
}

void HeadNorm::apply(float *row, int64_t width) const noexcept {
    const auto count = static_cast<double>(width);
    const double mean = kind_ == POLYHEAD_LAYER_NORM ? sum_of(width, [&](int64_t i) { return double(row[i]); }) / count : 0.0;
    const auto centred = [&](int64_t i) { return double(row[i]) - mean; };
    const double squares = sum_of(width, [&](int64_t i) { return centred(i) * centred(i); });
    const double scale = 1.0 / std::sqrt(squares / count + double(epsilon_)); // epsilon is above 0, and so is the root
    for (int64_t i = 0; i < width; ++i) {
        row[i] = static_cast<float>(centred(i) * scale);
    }
    if (!absent(weight_)) {
        const float plus = kind_ == POLYHEAD_RMS_NORM_PLUS_ONE ? 1.0f : 0.0f;
        for_each_entry(weight_, width, [&](int64_t i, float weight) { row[i] *= plus + weight; });
    }
    if (!absent(bias_)) {
        for_each_entry(bias_, width, [&](int64_t i, float bias) { row[i] += bias; });
    }
}

} // namespace polyhead::runtime

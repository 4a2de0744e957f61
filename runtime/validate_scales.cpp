// Checks the scales of an int8 cache: those of valid keys are finite and not negative.
#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cstring>
#include <functional>
#include <numeric>

#include "head_rows.h"
#include "status.h"
#include "validate_parts.h"

namespace polyhead::runtime {
namespace {

bool good(float scale) noexcept {
    return scale >= 0.0f && scale <= FLT_MAX; // false for NaN
}

// A block of scales at a time, of which compilers make vectors: the sign bit of `bits` is set in a negative number, that of the sum in
// infinity and NaN. -0 is looked at again.
bool all_good(const float *scales, int64_t count) noexcept {
    constexpr int64_t block = 32;
    constexpr uint32_t one_exponent = 1u << 23;
    uint32_t any[block] = {};
    const int64_t blocks = count / block * block;
    for (int64_t first = 0; first < blocks; first += block) {
        uint32_t bits[block];
        std::memcpy(bits, scales + first, sizeof bits);
        for (int64_t i = 0; i < block; ++i) {
            any[i] |= bits[i] | (bits[i] + one_exponent);
        }
    }
    const uint32_t all = std::accumulate(any, any + block, 0u, std::bit_or<>());
    return (all >> 31 == 0 || std::all_of(scales, scales + blocks, good)) && std::all_of(scales + blocks, scales + count, good);
}

// The scales of one tensor, as a call reads them.
class Scales {
public:
    Scales(const char *name, const polyhead_tensor &scales, const polyhead_problem &p, const polyhead_args &args,
           const CallShape &shape) noexcept
        : name_(name), scales_(scales), args_(args), shape_(shape), page_size_(p.page_size) {}

    bool check(polyhead_status *status) const noexcept {
        const int64_t heads = scales_.shape[1], each = scales_.shape[3];
        std::atomic<bool> all{true};
        const int64_t bytes = shape_.batch * heads * shape_.seq_len_kv * each * int64_t(sizeof(float));
        for_each_row(shape_.batch * heads, bytes, [&](int64_t i) {
            for_each_run(i / heads, i % heads, [&](const float *scales, int64_t count, int64_t) {
                if (!all_good(scales, count)) {
                    all.store(false, std::memory_order_relaxed);
                }
            });
        });
        return all.load() || refuse_first(status);
    }

private:
    int64_t length(int64_t b) const noexcept { return absent(args_.kv_lengths) ? shape_.seq_len_kv : integer_at(args_.kv_lengths, b); }

    // Calls run(scales, count, key) for the scales of the valid keys of a head; those of neighbouring keys that lie side by side are one
    // run, which begins at `key`.
    template <typename Run> void for_each_run(int64_t b, int64_t h, const Run &run) const noexcept {
        const int64_t each = scales_.shape[3], block = page_size_ > 0 ? page_size_ : shape_.seq_len_kv, keys = length(b);
        const bool dense = block == 1 || scales_.stride[2] == each;
        for (int64_t first = 0; first < keys; first += block) {
            const int64_t outer = page_size_ > 0 ? integer_at(args_.page_table, b, first / block) : b,
                          count = std::min(block, keys - first);
            for (int64_t n = 0; n < count; n += dense ? count : 1) {
                const auto *const scales = reinterpret_cast<const float *>(head_row(scales_, outer, h, n));
                run(scales, dense ? count * each : each, first + n);
            }
        }
    }

    bool refuse_first(polyhead_status *status) const noexcept {
        const int64_t heads = scales_.shape[1], each = scales_.shape[3];
        for (int64_t i = 0; i < shape_.batch * heads; ++i) {
            const float *bad = nullptr;
            int64_t key = 0;
            for_each_run(i / heads, i % heads, [&](const float *scales, int64_t count, int64_t first) {
                const float *const found = bad ? nullptr : std::find_if_not(scales, scales + count, good);
                if (found && found != scales + count) {
                    bad = found;
                    key = first + (found - scales) / each;
                }
            });
            if (bad) {
                return refuse(status, POLYHEAD_BAD_VALUE,
                              "%s: value %g of key %lld, head %lld, batch row %lld, expected a finite number of at least 0", name_,
                              static_cast<double>(*bad), static_cast<long long>(key), static_cast<long long>(i % heads),
                              static_cast<long long>(i / heads));
            }
        }
        return true; // another thread has changed it meanwhile
    }

    const char *name_;
    const polyhead_tensor &scales_;
    const polyhead_args &args_;
    const CallShape &shape_;
    int64_t page_size_;
};

} // namespace

bool check_scales(const polyhead_problem &p, const polyhead_args &args, const CallShape &shape, polyhead_status *status) noexcept {
    if ((!absent(args.kv_lengths) && !readable(args.kv_lengths)) || (p.page_size > 0 && !readable(args.page_table))) {
        return true;
    }
    return (!readable(args.key_scales) || Scales("key_scales", args.key_scales, p, args, shape).check(status)) &&
           (!readable(args.value_scales) || Scales("value_scales", args.value_scales, p, args, shape).check(status));
}

} // namespace polyhead::runtime

// Checks the scales of an int8 cache: those of valid keys are finite and not negative.
#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cstring>

#include "../caches/head_rows.h"
#include "../status.h"
#include "../threads/for_each_row.h"
#include "validate_parts.h"

namespace polyhead::runtime {
namespace {

bool good(float scale) noexcept {
    return scale >= 0.0f && scale <= FLT_MAX; // false for NaN
}

// What scales have in common: the sign bit of `bits` is set in a negative number, that of the sum in infinity and NaN.
class Seen {
public:
    // later: where as many scales lie that are looked at some blocks of keys later, or null: asked from memory, line by line.
    void add(const float *scales, int64_t count, const float *later) noexcept {
        constexpr int64_t line = 16; // scales
        int64_t first = 0;
        for (; first + line <= count; first += line) {
            if (later != nullptr) {
                __builtin_prefetch(later + first);
            }
            for (int64_t i = 0; i < line / lanes; ++i) {
                Lanes bits;
                std::memcpy(&bits, scales + first + i * lanes, sizeof bits);
                any_[i] |= bits | (bits + one_exponent);
            }
        }
        for (; first < count; ++first) {
            uint32_t bits = 0;
            std::memcpy(&bits, scales + first, sizeof bits);
            any_[0][0] |= bits | (bits + one_exponent);
        }
    }
    // Not of -0, which is looked at again.
    bool all_good() const noexcept {
        const Lanes any = any_[0] | any_[1] | any_[2] | any_[3];
        return (any[0] | any[1] | any[2] | any[3]) >> 31 == 0;
    }

private:
    static constexpr int64_t lanes = 4;
    static constexpr uint32_t one_exponent = 1u << 23;
    using Lanes [[gnu::vector_size(lanes * sizeof(uint32_t))]] = uint32_t; // GCC makes no vectors of the loop by itself
    Lanes any_[4] = {};
};

// The scales of one tensor, as a call reads them.
class Scales {
public:
    Scales(const char *name, const polyhead_tensor &scales, const polyhead_problem &p, const polyhead_args &args,
           const CallShape &shape) noexcept
        : name_(name), scales_(scales), args_(args), shape_(shape), page_size_(p.page_size) {}

    bool check(Workers *workers, polyhead_status *status) const noexcept {
        const int64_t heads = scales_.shape[1], each = scales_.shape[3], keys = block() * blocks_of_piece,
                      pieces = (shape_.seq_len_kv + keys - 1) / keys;
        std::atomic<bool> all{true};
        const int64_t bytes = shape_.batch * heads * shape_.seq_len_kv * each * int64_t(sizeof(float));
        for_each_row(shape_.batch * pieces, bytes, workers, [&](int64_t i) {
            const int64_t b = i / pieces, end = std::min((i % pieces + 1) * keys, length(b));
            Seen seen;
            for (int64_t first = i % pieces * keys; first < end; first += block()) {
                for (int64_t h = 0; h < heads; ++h) { // of a page, heads lie side by side
                    const int64_t ahead = first + blocks_ahead * block();
                    const float *const later = ahead < end ? scales_of(b, h, ahead) : nullptr;
                    for_each_run(b, h, first, std::min(first + block(), end), [&](const float *scales, int64_t count, int64_t key) {
                        seen.add(scales, count, key == first ? later : nullptr);
                    });
                }
            }
            if (!seen.all_good()) {
                all.store(false, std::memory_order_relaxed);
            }
        });
        return all.load() || refuse_first(status);
    }

private:
    static constexpr int64_t blocks_of_piece = 64, blocks_ahead = 4, keys_side_by_side = 64;

    // Keys that lie side by side: a page, or some of a whole cache.
    int64_t block() const noexcept { return page_size_ > 0 ? page_size_ : keys_side_by_side; }
    int64_t length(int64_t b) const noexcept {
        return absent(args_.kv_lengths) ? shape_.seq_len_kv : index_at(args_.kv_lengths, shape_.seq_len_kv, b);
    }

    // Calls run(scales, count, key) for the scales of keys begin .. end - 1 of a head, where begin is the first key of a block; those of
    // neighbouring keys that lie side by side are one run, which begins at `key`.
    template <typename Run> void for_each_run(int64_t b, int64_t h, int64_t begin, int64_t end, const Run &run) const noexcept {
        const int64_t each = scales_.shape[3];
        const bool dense = block() == 1 || scales_.stride[2] == each;
        for (int64_t first = begin; first < end; first += block()) {
            const int64_t count = std::min(block(), end - first);
            const float *const scales = scales_of(b, h, first);
            for (int64_t n = 0; n < count; n += dense ? count : 1) {
                run(scales + n * scales_.stride[2], dense ? count * each : each, first + n);
            }
        }
    }

    // Of the first key of a block.
    const float *scales_of(int64_t b, int64_t h, int64_t key) const noexcept {
        const auto page = [&] { return index_at(args_.page_table, scales_.shape[0] - 1, b, key / page_size_); };
        return reinterpret_cast<const float *>(page_size_ > 0 ? head_row(scales_, page(), h, 0) : head_row(scales_, b, h, key));
    }

    bool refuse_first(polyhead_status *status) const noexcept {
        const int64_t heads = scales_.shape[1], each = scales_.shape[3];
        for (int64_t i = 0; i < shape_.batch * heads; ++i) {
            const float *bad = nullptr;
            int64_t key = 0;
            for_each_run(i / heads, i % heads, 0, length(i / heads), [&](const float *scales, int64_t count, int64_t first) {
                const float *const found = bad ? nullptr : std::find_if_not(scales, scales + count, good);
                if (found && found != scales + count) {
                    bad = found;
                    key = first + (found - scales) / each;
                }
            });
            if (bad) {
                return refuse(status, POLYHEAD_BAD_VALUE,
                              "%s: value %s of key %lld, head %lld, batch row %lld, expected a finite number of at least 0", name_,
                              NumberText(*bad).text, static_cast<long long>(key), static_cast<long long>(i % heads),
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

bool check_scales(const polyhead_problem &p, const polyhead_args &args, const CallShape &shape, Workers *workers,
                  polyhead_status *status) noexcept {
    if ((!absent(args.kv_lengths) && !readable(args.kv_lengths)) || (p.page_size > 0 && !readable(args.page_table))) {
        return true;
    }
    return (!readable(args.key_scales) || Scales("key_scales", args.key_scales, p, args, shape).check(workers, status)) &&
           (!readable(args.value_scales) || Scales("value_scales", args.value_scales, p, args, shape).check(workers, status));
}

} // namespace polyhead::runtime

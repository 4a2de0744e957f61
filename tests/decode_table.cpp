// Decoding with a cache: keys after the valid ones cost neither time nor memory and change no bit, whatever the capacity.
#include <cmath>
#include <cstring>
#include <string>

#include "kernel_table.h"

#include "contract/problem.h"
#include "instruments/calls/problems.h"
#include "instruments/calls/subject.h"
#include "instruments/reference/half.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/environment.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

const std::vector<int32_t> lengths = {16, 0, 200};
constexpr size_t most_bytes = size_t(70) << 20;

// Bare attention over a cache, with nothing that would have to be as long as the cache. Masks and biases are left out of the calls.
bool decodes(const Problem &p) {
    return is_sdpa(p) && !is_backward(p) && p.page_size == 0 && p.kv_lengths && p.seq_len_q == 0 && p.seq_len_kv == 0 && !p.rope &&
           !p.alibi && !p.sinks && !p.softcap && !p.head_gate && !p.gate && !contract::normalises(p) && p.scores == POLYHEAD_NO_SCORES &&
           !p.weights_mean && !(p.expression && p.expression[0]);
}

float number(size_t i) {
    return std::sin(static_cast<float>(i) * 0.37f);
}

polyhead_tensor dense(void *data, int32_t dtype, const std::vector<int64_t> &shape) {
    polyhead_tensor t{};
    t.data = data;
    t.dtype = dtype;
    t.rank = static_cast<int32_t>(shape.size());
    int64_t stride = 1;
    for (int i = t.rank - 1; i >= 0; i--) {
        t.shape[i] = shape[static_cast<size_t>(i)];
        t.stride[i] = stride;
        stride *= t.shape[i];
    }
    return t;
}

// [1, heads, capacity, d]: numbers in the first 200 rows of each head, NaN behind.
std::vector<float> cache(int64_t heads, int64_t capacity, int64_t d) {
    std::vector<float> all(static_cast<size_t>(heads * capacity * d));
    std::memset(all.data(), 0xff, all.size() * sizeof(float));
    for (int64_t h = 0; h < heads; h++) {
        for (int64_t i = 0; i < 200 * d; i++) {
            all[static_cast<size_t>(h * capacity * d + i)] = number(static_cast<size_t>(h * 200 * d + i));
        }
    }
    return all;
}

// Elements of a storage type.
std::vector<uint8_t> stored(const std::vector<float> &values, int32_t dtype) {
    if (dtype == POLYHEAD_I8) {
        std::vector<uint8_t> bytes;
        for (const float x : values) {
            bytes.push_back(static_cast<uint8_t>(std::isnan(x) ? 128 : static_cast<int>(100 * x) & 255));
        }
        return bytes;
    }
    const size_t element = is_16_bit(dtype) ? 2 : 4;
    std::vector<uint8_t> bytes(values.size() * element);
    for (size_t i = 0; i < values.size(); i++) {
        const uint16_t half = to_storage_bits(values[i], dtype);
        std::memcpy(bytes.data() + i * element, is_16_bit(dtype) ? static_cast<const void *>(&half) : &values[i], element);
    }
    return bytes;
}

struct Answer {
    std::vector<uint8_t> out;
    std::vector<float> lse;
    int64_t scratch = 0;
};

Answer answer(const polyhead_kernel &kernel, int64_t seq_len_q, int64_t capacity) {
    const Problem &p = call_problem(kernel);
    const auto batch = static_cast<int64_t>(lengths.size());
    const int64_t rows = batch * p.num_heads * seq_len_q;
    std::vector<float> numbers(static_cast<size_t>(rows * p.head_dim));
    for (size_t i = 0; i < numbers.size(); i++) {
        numbers[i] = number(3 * i);
    }
    const int32_t key_dtype = p.int8_cache != 0 ? POLYHEAD_I8 : p.dtype, channels = p.scale_channels;
    std::vector<uint8_t> query = stored(numbers, p.dtype), key = stored(cache(p.num_kv_heads, capacity, p.head_dim), key_dtype),
                         value = stored(cache(p.num_kv_heads, capacity, p.head_dim_v), key_dtype);
    std::vector<float> scales[] = {cache(p.num_kv_heads, capacity, channels != 0 ? p.head_dim / channels : 1),
                                   cache(p.num_kv_heads, capacity, channels != 0 ? p.head_dim_v / channels : 1)};
    Answer answer{std::vector<uint8_t>(static_cast<size_t>(rows * p.head_dim_v * (is_16_bit(p.dtype) ? 2 : 4))),
                  std::vector<float>(static_cast<size_t>(rows))};
    std::vector<int32_t> valid = lengths, offsets(lengths.size(), 0);
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    args.query = dense(query.data(), p.dtype, {batch, p.num_heads, seq_len_q, p.head_dim});
    args.key = dense(key.data(), key_dtype, {batch, p.num_kv_heads, capacity, p.head_dim});
    if (p.value_in_key == 0) {
        args.value = dense(value.data(), key_dtype, {batch, p.num_kv_heads, capacity, p.head_dim_v});
    }
    for (auto [all, view] : {std::pair(&scales[0], &args.key_scales), std::pair(&scales[1], &args.value_scales)}) {
        if (p.int8_cache != 0 && (p.value_in_key == 0 || view == &args.key_scales)) {
            for (float &scale : *all) {
                scale = std::abs(scale) / 100; // NaN stays NaN
            }
            *view = dense(all->data(), POLYHEAD_F32,
                          {batch, p.num_kv_heads, capacity, static_cast<int64_t>(all->size()) / p.num_kv_heads / capacity});
        }
    }
    // One cache for all batch rows.
    args.key.stride[0] = args.value.stride[0] = args.key_scales.stride[0] = args.value_scales.stride[0] = 0;
    args.kv_lengths = dense(valid.data(), POLYHEAD_I32, {batch});
    args.out = dense(answer.out.data(), p.dtype, {batch, p.num_heads, seq_len_q, p.head_dim_v});
    if (p.lse) {
        args.lse = dense(answer.lse.data(), POLYHEAD_F32, {batch, p.num_heads, seq_len_q});
    }
    if (p.window) {
        args.has_window = 1;
        args.window_left = 20;
        args.window_right = 0;
    }
    if (p.position_offsets) {
        args.position_offsets = dense(offsets.data(), POLYHEAD_I32, {batch});
    }
    answer.scratch = polyhead_scratch_bytes(&kernel, &args, nullptr);
    const polyhead_status status = polyhead_run(&kernel, &args);
    INFO(kernel.name << ", capacity " << capacity << ": " << status.message);
    CHECK(status.code == POLYHEAD_OK);
    return answer;
}

bool same(const std::vector<float> &a, const std::vector<float> &b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

} // namespace

TEST_CASE("decoding: the capacity of a cache changes neither bits nor memory") {
    int checked = 0;
    for (const Kernel *kernel : kernel_table) {
        const Problem &p = call_problem(*kernel);
        if (!decodes(p)) {
            continue;
        }
        for (const polyhead_kernel &forced : forced_variants(*kernel)) {
            for (const int64_t seq_len_q : {1, 5}) {
                if (!serves(forced, seq_len_q)) {
                    continue;
                }
                const Answer small = answer(forced, seq_len_q, 256);
                for (const int64_t capacity : {4096, 65536}) {
                    if (static_cast<size_t>(p.num_kv_heads * capacity * p.head_dim) * sizeof(float) > most_bytes) {
                        continue;
                    }
                    const Answer large = answer(forced, seq_len_q, capacity);
                    INFO(forced.name << " " << forced.variants[0].tiling << ", seq_len_q " << seq_len_q << ", capacity " << capacity);
                    CHECK(small.out == large.out);
                    CHECK(same(small.lse, large.lse));
                    CHECK(small.scratch == large.scratch);
                    checked++;
                }
            }
        }
    }
    CHECK(checked > 0);
}

TEST_CASE("decoding: mixed lengths, some of them 0, and windows far from the first key") {
    for (const Kernel *kernel : kernel_table) {
        const Problem &p = kernel->problem;
        if (!is_sdpa(p) || is_backward(p) || !p.kv_lengths || p.seq_len_q != 0 || p.seq_len_kv != 0 || p.head_dim > 128) {
            continue;
        }
        for (const polyhead_kernel &forced : forced_variants(*kernel)) {
            const KernelSubject subject(forced, 11);
            for (const int64_t seq_len_q : {1, 4}) {
                if (!serves(forced, seq_len_q)) {
                    continue;
                }
                Shape shape = plain_shape(p, 4, seq_len_q, 1500, 3);
                shape.lengths = lengths_within(shape, {700, 0, 1, 1203});
                shape.poison = true;
                CHECK(check_answer(subject.subject(), shape) == "");
            }
        }
    }
}

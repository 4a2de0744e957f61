// Fuzzes append, copy_page, rotate and merge_states over tensors whose every field may be anything, and which may share memory; and pools
// of pages. What is accepted is compared with a plain model, byte for byte; what is refused has changed nothing.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>

#include "cache_memory.h"
#include "memory.h"
#include "model_rows.h"
#include "runtime/status.h"

// The model's own branches are nothing to look for.
#pragma clang attribute push(__attribute__((no_sanitize("coverage"))), apply_to = function)

namespace polyhead::fuzz {
namespace {

using Snapshot = CacheMemory::Snapshot;

// One call: its status is one sentence or none, it ends soon, and a refusal changes nothing.
template <typename Call> bool accepted(const CacheMemory &memory, const Snapshot &before, const Call &call) {
    constexpr double most_seconds = 2; // of processor time, with sanitizers
    const std::clock_t start = std::clock();
    const polyhead_status status = call();
    if (double(std::clock() - start) / CLOCKS_PER_SEC > most_seconds) {
        fail("the call took more than %g s", most_seconds);
    }
    if ((status.code == POLYHEAD_OK) != (status.message[0] == 0) || std::strchr(status.message, '\n')) {
        fail("status %d: '%s'", status.code, status.message);
    }
    if (status.code != POLYHEAD_OK && !memory.same(before)) {
        fail("refused, and memory changed: %s", status.message);
    }
    return status.code == POLYHEAD_OK;
}

bool without_elements(const polyhead_tensor &t) {
    return is_absent(t) || std::find(t.shape, t.shape + t.rank, 0) != t.shape + t.rank;
}

// Of an accepted call: an output shares no byte with an input or another output.
void expect_apart(const std::vector<const polyhead_tensor *> &outputs, const std::vector<const polyhead_tensor *> &inputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
        for (size_t j = 0; j < i + inputs.size(); ++j) {
            const polyhead_tensor *const other = j < i ? outputs[j] : inputs[j - i];
            if (!without_elements(*outputs[i]) && !without_elements(*other) && share_a_byte(*outputs[i], *other)) {
                fail("accepted: output %zu shares a byte with tensor %zu", i, j);
            }
        }
    }
}

void expect_memory(const CacheMemory &memory, const Snapshot &expected, const char *what) {
    if (!memory.same(expected)) {
        fail("%s: memory is not what the model has", what);
    }
}

struct Extents {
    int64_t batch, heads, d, rows, tokens;
    explicit Extents(Bytes *bytes)
        : batch(pick(bytes, {1, 2, 3, 0})), heads(pick(bytes, {1, 2, 0})), d(pick(bytes, {4, 1, 6, 64, 0, 576, 32, 577})),
          rows(pick(bytes, {4, 8, 1, 0})), tokens(pick(bytes, {1, 2, 5, 0})) {}
    static int64_t pick(Bytes *bytes, std::initializer_list<int64_t> values) {
        const auto n = static_cast<size_t>(bytes->byte()) * 5 / 4; // the first ones more often
        return values.begin()[n / 64 < 3 ? n % values.size() : 0];
    }
};

polyhead_cache make_cache(Bytes *bytes, CacheMemory *memory, const Extents &e, int32_t dtype, bool paged) {
    const bool value = bytes->below(4) != 0;
    const int64_t blocks = paged ? 6 : e.batch, columns = Extents::pick(bytes, {2, 1, 3, 0}),
                  scales = Extents::pick(bytes, {1, e.d / 32, e.d / 64, 0});
    polyhead_cache cache = polyhead_cache_of(memory->tensor(dtype, {blocks, e.heads, e.rows, e.d}),
                                             value ? memory->tensor(dtype, {blocks, e.heads, e.rows, e.d}) : polyhead_tensor{},
                                             paged ? memory->tensor(POLYHEAD_I32, {e.batch, columns}, Fill::integers) : polyhead_tensor{});
    if (dtype == POLYHEAD_I8) {
        cache.key_scales = memory->tensor(POLYHEAD_F32, {blocks, e.heads, e.rows, scales});
        if (value) {
            cache.value_scales = memory->tensor(POLYHEAD_F32, {blocks, e.heads, e.rows, scales});
        }
    }
    cache.size -= bytes->below(32) == 0 ? 8 : 0;
    return cache;
}

void model_append(Snapshot *expected, const CacheMemory &memory, const polyhead_cache &cache, const polyhead_new_keys &keys) {
    const bool paged = !is_absent(cache.page_table), has_value = !is_absent(cache.value);
    if (without_elements(keys.key) && (!has_value || without_elements(keys.value))) {
        return;
    }
    const int64_t rows = cache.key.shape[2], capacity = paged ? cache.page_table.shape[1] * rows : rows;
    const bool packed = !is_absent(keys.cu_seqlens);
    const int64_t batch = packed ? keys.cu_seqlens.shape[0] - 1 : keys.key.shape[0];
    if (packed && (integer(keys.cu_seqlens, 0) != 0 || integer(keys.cu_seqlens, batch) != keys.key.shape[2])) {
        fail("accepted: packed tokens %d to %d", integer(keys.cu_seqlens, 0), integer(keys.cu_seqlens, batch));
    }
    for (int64_t b = 0; b < batch; ++b) {
        const int64_t outer = packed ? 0 : b, begin = packed ? integer(keys.cu_seqlens, b) : 0, first = integer(keys.lengths, b),
                      count = packed                   ? integer(keys.cu_seqlens, b + 1) - begin
                              : is_absent(keys.counts) ? keys.key.shape[2]
                                                       : integer(keys.counts, b);
        if (first < 0 || count < 0 || count > keys.key.shape[2] || first + count > capacity) {
            fail("accepted: %lld keys behind %lld", static_cast<long long>(count), static_cast<long long>(first));
        }
        for (int64_t t = 0; t < count; ++t) {
            const int64_t at = first + t, block = paged ? integer(cache.page_table, b, at / rows) : b;
            if (block < 0 || block >= cache.key.shape[0]) {
                fail("accepted: page %lld", static_cast<long long>(block));
            }
            const Token token{b, t, outer, begin + t};
            for (int64_t h = 0; h < keys.key.shape[1]; ++h) {
                model_row(expected, memory, cache.key, cache.key_scales, block, h, at % rows,
                          row_of(keys.key, token, h, {keys.rotation, keys.sections}, first));
                if (has_value) {
                    model_row(expected, memory, cache.value, cache.value_scales, block, h, at % rows, row_of(keys.value, token, h, {}, 0));
                }
            }
        }
    }
}

// NaN of 16 bits may change its bits when it is converted and back.
bool any_nan(const polyhead_tensor &t) {
    bool found = false;
    if (!without_elements(t) && t.dtype <= POLYHEAD_BF16) {
        for_each_element(t, size_of(t), [&](const char *at, const int64_t *) { found = found || std::isnan(as_float(at, t.dtype)); });
    }
    return found;
}

// Where packed tokens begin: mostly so that there is such a call.
polyhead_tensor make_begins(Bytes *bytes, CacheMemory *memory, int64_t batch, int64_t total) {
    const polyhead_tensor t = memory->tensor(POLYHEAD_I32, {batch + 1}, Fill::integers);
    const bool given = t.rank == 1 && t.dtype == POLYHEAD_I32 && t.shape[0] == batch + 1 && reinterpret_cast<uintptr_t>(t.data) > 64;
    if (given && bytes->below(8) != 0) {
        int32_t begin = 0;
        for (int64_t b = 0; b <= batch; ++b) {
            begin = b == 0 ? 0 : b == batch ? static_cast<int32_t>(total) : std::min(begin + bytes->below(4), static_cast<int>(total));
            std::memcpy(element(t, b), &begin, sizeof begin);
        }
    }
    return t;
}

void make_norms(Bytes *bytes, CacheMemory *memory, const Extents &e, polyhead_new_keys *keys) {
    static const float epsilons[] = {1e-5f, 1e-45f, 0.0f, -1.0f, __builtin_nanf(""), __builtin_inff()};
    static const int32_t types[] = {POLYHEAD_F32, POLYHEAD_BF16, POLYHEAD_F16, POLYHEAD_I8};
    if (bytes->below(2) == 0) {
        return;
    }
    keys->key_norm = bytes->below(8) == 0 ? bytes->below(8) - 2 : bytes->below(4);
    keys->value_norm = bytes->below(16) == 0 ? bytes->below(4) - 1 : bytes->below(2);
    keys->key_norm_weight = bytes->below(2) == 0 ? polyhead_tensor{} : memory->tensor(types[bytes->below(4)], {e.d});
    keys->key_norm_bias = bytes->below(4) != 0 ? polyhead_tensor{} : memory->tensor(types[bytes->below(4)], {e.d});
    keys->norm_epsilon = epsilons[bytes->below(4) == 0 ? bytes->below(6) : 0];
}

void expect_norms(const polyhead_new_keys &keys) {
    const bool none = keys.key_norm == 0 && keys.value_norm == 0, positive = keys.norm_epsilon > 0 && std::isfinite(keys.norm_epsilon);
    if (keys.key_norm < 0 || keys.key_norm > 3 || keys.value_norm < 0 || keys.value_norm > 1 ||
        (none ? keys.norm_epsilon != 0 : !positive) || (keys.key_norm == 0 && !is_absent(keys.key_norm_weight)) ||
        (keys.key_norm != 3 && !is_absent(keys.key_norm_bias))) {
        fail("accepted: norms %d and %d, epsilon %g", keys.key_norm, keys.value_norm, double(keys.norm_epsilon));
    }
}

// A batch of new keys, or packed ones that may have norms.
void fuzz_new_keys(Bytes *bytes, bool packed) {
    static const int32_t types[] = {POLYHEAD_F32, POLYHEAD_I8, POLYHEAD_BF16, POLYHEAD_F16};
    CacheMemory memory(bytes);
    const Extents e(bytes);
    const int32_t dtype = types[bytes->below(4)], new_dtype = bytes->below(2) == 0 ? POLYHEAD_F32 : types[bytes->below(4)];
    const polyhead_cache cache = make_cache(bytes, &memory, e, dtype, bytes->below(2) != 0);
    polyhead_new_keys keys = polyhead_new_keys_of();
    const int64_t outer = packed ? 1 : e.batch;
    keys.key = memory.tensor(new_dtype, {outer, e.heads, e.tokens, e.d});
    keys.value = is_absent(cache.value) ? polyhead_tensor{} : memory.tensor(new_dtype, {outer, e.heads, e.tokens, e.d});
    keys.lengths = memory.tensor(POLYHEAD_I32, {e.batch}, Fill::integers);
    keys.counts = bytes->below(packed ? 16 : 2) != 1 ? polyhead_tensor{} : memory.tensor(POLYHEAD_I32, {e.batch}, Fill::integers);
    const Turn turn = make_turn(bytes, &memory, {e.batch, outer, e.tokens, e.d});
    keys.rotation = turn.rotation;
    keys.sections = turn.sections;
    keys.has_window = bytes->below(4) == 0;
    keys.window_left = keys.has_window ? static_cast<int32_t>(bytes->number()) : 0;
    const bool shorter = bytes->below(32) == 0; // without the last two fields
    if (packed) {
        keys.cu_seqlens = make_begins(bytes, &memory, e.batch, e.tokens);
        make_norms(bytes, &memory, e, &keys);
    }
    if (shorter) {
        keys.size -= 8;
        keys.norm_epsilon = 0;
        keys.value_norm = 0;
    }
    Snapshot expected = memory.snapshot();
    if (!memory.affordable() || !accepted(memory, expected, [&] { return polyhead_append(&cache, &keys); })) {
        return;
    }
    const polyhead_rotation &r = keys.rotation;
    expect_apart({&cache.key, &cache.value, &cache.key_scales, &cache.value_scales},
                 {&keys.key, &keys.value, &keys.lengths, &keys.counts, &cache.page_table, &r.cos, &r.sin, &r.positions, &keys.cu_seqlens,
                  &keys.key_norm_weight, &keys.key_norm_bias});
    expect_norms(keys);
    if (keys.key_norm != 0 || keys.value_norm != 0) {
        return; // EXCLUDED: the numbers that a norm gives, whose last bits follow the order of its sums: runtime_head_norm.cpp
    }
    if (!any_nan(keys.key) && !any_nan(keys.value) && !any_nan(r.cos) && !any_nan(r.sin)) {
        model_append(&expected, memory, cache, keys);
        expect_memory(memory, expected, "append");
    }
}

void fuzz_append(Bytes *bytes) {
    fuzz_new_keys(bytes, false);
}

void fuzz_packed_append(Bytes *bytes) {
    fuzz_new_keys(bytes, true);
}

void fuzz_copy_page(Bytes *bytes) {
    static const int32_t types[] = {POLYHEAD_F32, POLYHEAD_I8, POLYHEAD_BF16, POLYHEAD_F16};
    static const int32_t pages[] = {0, 1, 2, 5, 6, -1, INT32_MAX, INT32_MIN};
    CacheMemory memory(bytes);
    const Extents e(bytes);
    const polyhead_cache cache = make_cache(bytes, &memory, e, types[bytes->below(4)], bytes->below(2) != 0);
    const int32_t from = pages[bytes->below(8)], to = pages[bytes->below(8)];
    Snapshot expected = memory.snapshot();
    if (!memory.affordable() || !accepted(memory, expected, [&] { return polyhead_copy_page(&cache, from, to); })) {
        return;
    }
    const std::vector<const polyhead_tensor *> tensors = {&cache.key, &cache.value, &cache.key_scales, &cache.value_scales};
    expect_apart(tensors, {});
    const Snapshot before = expected;
    for (const polyhead_tensor *t : tensors) {
        if (without_elements(*t)) {
            continue; // EXCLUDED: tensors without elements: nothing of them is copied, and no page number concerns them (c_cache.h)
        }
        if (from < 0 || to < 0 || from >= t->shape[0] || to >= t->shape[0]) {
            fail("accepted: page %d to page %d of %lld", from, to, static_cast<long long>(t->shape[0]));
        }
        for_each_element(*t, size_of(*t), [&](const char *, const int64_t *i) {
            if (i[0] == to) {
                std::memcpy(memory.in(&expected, element(*t, i[0], i[1], i[2], i[3])),
                            memory.in(const_cast<Snapshot *>(&before), element(*t, from, i[1], i[2], i[3])), size_t(size_of(*t)));
            }
        });
    }
    expect_memory(memory, expected, "copy_page");
}

void fuzz_rotate(Bytes *bytes) {
    CacheMemory memory(bytes);
    const Extents e(bytes);
    const int32_t dtype = bytes->below(4);
    const polyhead_tensor input = memory.tensor(dtype, {e.batch, e.heads, e.tokens, e.d}),
                          out = bytes->below(3) == 0 ? input : memory.tensor(dtype, {e.batch, e.heads, e.tokens, e.d});
    const Turn turn = make_turn(bytes, &memory, {e.batch, e.batch, e.tokens, e.d});
    const polyhead_rotation &r = turn.rotation;
    Snapshot expected = memory.snapshot(), before = expected;
    if (!memory.affordable() ||
        !accepted(memory, before, [&] { return polyhead_rotate_sections_in(nullptr, &input, &r, &turn.sections, &out); })) {
        return;
    }
    const bool in_place = element(input, 0) == element(out, 0);
    std::vector<const polyhead_tensor *> others = {&r.cos, &r.sin, &r.positions};
    in_place ? void() : others.push_back(&input);
    expect_apart({&out}, others);
    if (without_elements(input)) {
        return expect_memory(memory, before, "rotate");
    }
    const Snapshot after = memory.snapshot();
    for_each_element(input, size_of(input), [&](char *at, const int64_t *) { // in place, the input has gone
        std::memcpy(at, memory.in(&before, at), size_t(size_of(input)));
    });
    if (any_nan(input) || any_nan(r.cos) || any_nan(r.sin)) {
        return;
    }
    for_each_element(input, size_of(input), [&](char *, const int64_t *i) {
        if (i[3] == 0) {
            model_row(&expected, memory, out, {}, i[0], i[1], i[2], row_of(input, {i[0], i[2], i[0], i[2]}, i[1], turn, 0));
        }
    });
    if (after != expected) {
        fail("rotate: memory is not what the model has");
    }
}

// What the states have for one row, merged in double; false where a number is NaN.
bool model_merge(const std::vector<polyhead_state> &parts, const polyhead_tensor *sinks, const int64_t *i, double *lse,
                 std::vector<double> *out) {
    double largest = -std::numeric_limits<double>::infinity();
    std::vector<double> sums;
    for (const polyhead_state &part : parts) {
        sums.push_back(as_float(element(part.lse, i[0], i[1], i[2]), POLYHEAD_F32));
        largest = std::max(largest, sums.back());
    }
    std::fill(out->begin(), out->end(), 0.0);
    *lse = largest;
    if (std::isinf(largest)) {
        return largest < 0;
    }
    const double sink = sinks ? as_float(element(*sinks, i[1]), POLYHEAD_F32) : -std::numeric_limits<double>::infinity();
    double total = std::exp(sink - largest);
    for (size_t n = 0; n < parts.size(); ++n) {
        const double weight = std::exp(sums[n] - largest);
        total += weight;
        for (size_t d = 0; d < out->size() && weight > 0; ++d) {
            (*out)[d] += weight * as_float(element(parts[n].out, i[0], i[1], i[2], int64_t(d)), parts[n].out.dtype);
        }
    }
    for (double &entry : *out) {
        entry /= total;
    }
    *lse = largest + std::log(total);
    return std::isfinite(total);
}

void fuzz_merge(Bytes *bytes) {
    CacheMemory memory(bytes);
    const Extents e(bytes);
    const int32_t dtype = bytes->below(4);
    const int count = bytes->below(4);
    std::vector<polyhead_state> parts;
    for (int i = 0; i < count; ++i) {
        parts.push_back(
            {memory.tensor(dtype, {e.batch, e.heads, e.tokens, e.d}), memory.tensor(POLYHEAD_F32, {e.batch, e.heads, e.tokens})});
    }
    const bool with_sinks = bytes->below(2) != 0, with_lse = bytes->below(4) != 0;
    const polyhead_tensor sinks = memory.tensor(POLYHEAD_F32, {e.heads});
    const polyhead_tensor out = count > 0 && bytes->below(3) == 0 ? parts[0].out : memory.tensor(dtype, {e.batch, e.heads, e.tokens, e.d});
    const polyhead_tensor lse =
        count > 0 && bytes->below(3) == 0 ? parts[0].lse : memory.tensor(POLYHEAD_F32, {e.batch, e.heads, e.tokens});
    const Snapshot before = memory.snapshot();
    const auto call = [&] {
        return polyhead_merge_states(parts.data(), count, with_sinks ? &sinks : nullptr, &out, with_lse ? &lse : nullptr);
    };
    if (!memory.affordable() || !accepted(memory, before, call)) {
        return;
    }
    std::vector<const polyhead_tensor *> outputs = {&out}, of_out, of_lse;
    with_lse ? outputs.push_back(&lse) : void();
    with_sinks ? of_out.push_back(&sinks) : void();
    with_sinks ? of_lse.push_back(&sinks) : void();
    bool in_place = false;
    for (const polyhead_state &part : parts) {
        of_out.push_back(&part.lse);
        of_lse.push_back(&part.out);
        in_place = in_place || (!without_elements(out) && share_a_byte(out, part.out)) ||
                   (with_lse && !without_elements(lse) && share_a_byte(lse, part.lse));
    }
    expect_apart(outputs, {});
    expect_apart({&out}, of_out);
    with_lse ? expect_apart({&lse}, of_lse) : void();
    if (without_elements(out) || in_place) { // values of calls in place: runtime_states.cpp
        return;
    }
    const double unit = dtype == POLYHEAD_F32 ? 1e-5 : dtype == POLYHEAD_BF16 ? 1.0 / 128 : 1.0 / 512;
    std::vector<double> expected(size_t(out.shape[3]));
    double sum = 0;
    bool numbers = true;
    for_each_element(out, size_of(out), [&](const char *at, const int64_t *i) {
        numbers = i[3] == 0 ? model_merge(parts, with_sinks ? &sinks : nullptr, i, &sum, &expected) : numbers;
        if (!numbers) {
            return;
        }
        const double found = as_float(at, out.dtype), right = expected[size_t(i[3])];
        const double found_sum = with_lse ? as_float(element(lse, i[0], i[1], i[2]), POLYHEAD_F32) : sum;
        if (std::fabs(found - right) > unit * (std::fabs(right) + 1e-3) ||
            (found_sum != sum && std::fabs(found_sum - sum) > 1e-5 * (1 + std::fabs(sum)))) {
            fail("merge_states: %g, lse %g; expected %g, %g", found, found_sum, right, sum);
        }
    });
}

} // namespace

// tests/fuzz/fuzz_pool.cpp
void fuzz_pool(Bytes *bytes);

} // namespace polyhead::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace polyhead::fuzz;
    polyhead_set_num_threads(1);
    Bytes bytes(data, size);
    static void (*const targets[])(Bytes *) = {fuzz_append, fuzz_packed_append, fuzz_copy_page, fuzz_rotate, fuzz_merge, fuzz_pool};
    targets[bytes.byte() % std::size(targets)](&bytes);
    return 0;
}

#pragma clang attribute pop

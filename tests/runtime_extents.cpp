// Tensors without elements whose other extents are as large as can be, by strides of 0: every call ends at once, and nobody looks at the
// addresses. What has an element must then be refused, or is there.
#include <chrono>
#include <string>
#include <vector>

#include <polyhead/cache.h>

#include "runtime_calls.h"
#include "support/environment.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int64_t large = 2147483647;

// Faults at every access: no memory is there.
void *const nowhere = reinterpret_cast<void *>(uintptr_t(64)); // NOLINT(performance-no-int-to-ptr)

polyhead_tensor hollow(DType dtype, const std::vector<int64_t> &shape) {
    polyhead_tensor t{};
    t.data = nowhere;
    t.dtype = static_cast<int32_t>(dtype);
    t.rank = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), t.shape);
    t.stride[t.rank - 1] = 1; // kernels load vectors there
    return t;
}

// The status, and that it came within a second.
template <typename Call> polyhead_status at_once(const Call &call) {
    const auto start = std::chrono::steady_clock::now();
    const polyhead_status status = call();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    CHECK(seconds.count() < (sanitized() ? 10.0 : 1.0));
    INFO(status.message);
    CHECK((status.code == POLYHEAD_OK) == (status.message[0] == 0));
    return status;
}

struct CacheCall {
    // Of a cache in pages (columns > 0) or in one piece.
    CacheCall(DType dtype, int64_t batch, int64_t heads, int64_t rows, int64_t d, int64_t scales, int64_t pages, int64_t columns,
              int64_t tokens, int64_t positions) {
        const int64_t blocks = pages >= 0 ? pages : batch;
        cache = polyhead_cache_of(hollow(dtype, {blocks, heads, rows, d}), hollow(dtype, {blocks, heads, rows, d}),
                                  pages >= 0 ? hollow(DType::i32, {batch, columns}) : polyhead_tensor{});
        if (dtype == DType::i8) {
            cache.key_scales = cache.value_scales = hollow(DType::f32, {blocks, heads, rows, scales});
        }
        keys.key = keys.value = hollow(DType::f32, {batch, heads, tokens, d});
        keys.lengths = keys.counts = hollow(DType::i32, {batch});
        if (positions >= 0) {
            keys.rotation = {POLYHEAD_ROPE_HALF_SPLIT, hollow(DType::f32, {positions, d / 2}), hollow(DType::f32, {positions, d / 2}),
                             hollow(DType::i32, {batch, tokens})};
        }
    }
    polyhead_cache cache;
    polyhead_new_keys keys = polyhead_new_keys_of();
};

} // namespace

TEST_CASE("extents: a cache without elements, or new keys without", "[runtime]") {
    int done = 0;
    for (const DType dtype : {DType::f32, DType::bf16, DType::i8}) {
        for (const bool paged : {false, true}) {
            for (const bool rotated : {false, true}) {
                for (int zero = 0; zero < 8; ++zero) { // which extent is 0
                    const auto extent = [&](int which) { return which == zero ? 0 : large; };
                    const CacheCall call(dtype, extent(0), extent(1), extent(2), zero == 3 ? 0 : 64, zero == 3 ? 0 : 1,
                                         paged ? extent(4) : -1, paged ? extent(5) : 0, extent(6), rotated ? extent(7) : -1);
                    INFO("extent " << zero << ", dtype " << static_cast<int>(dtype) << (paged ? ", pages" : "")
                                   << (rotated ? ", rotated" : ""));
                    done += at_once([&] { return polyhead_append(&call.cache, &call.keys); }).code == POLYHEAD_OK;
                    done += at_once([&] { return polyhead_copy_page(&call.cache, 0, 1); }).code == POLYHEAD_OK;
                }
            }
        }
    }
    CHECK(done > 20);
}

TEST_CASE("extents: rows without entries", "[runtime]") {
    std::vector<int32_t> lengths = {0, 2}, table = {0, 1};
    for (const DType dtype : {DType::f32, DType::f16, DType::i8}) {
        for (const int64_t scales : {0, 1, 2}) {
            CacheCall call(dtype, 2, 3, 4, 0, scales, -1, 0, 2, -1);
            call.keys.lengths = view(lengths.data(), {2});
            call.keys.counts = polyhead_tensor{};
            std::vector<float> key_scales(2 * 3 * 4 * 2), value_scales = key_scales;
            if (dtype == DType::i8) {
                call.cache.key_scales = view(key_scales.data(), {2, 3, 4, scales});
                call.cache.value_scales = view(value_scales.data(), {2, 3, 4, scales});
            }
            const polyhead_status status = at_once([&] { return polyhead_append(&call.cache, &call.keys); });
            CHECK(status.code == (dtype == DType::i8 && scales != 1 ? POLYHEAD_WRONG_SHAPE : POLYHEAD_OK));
        }
    }
    // Keys without entries beside values that have some.
    std::vector<float> values(2 * 3 * 4 * 2, untouched), new_values(2 * 3 * 2 * 2, 5.0f);
    CacheCall call(DType::f32, 2, 3, 4, 0, 1, -1, 0, 2, -1);
    call.cache.value = view(values.data(), {2, 3, 4, 2});
    call.keys.value = view(new_values.data(), {2, 3, 2, 2});
    call.keys.lengths = view(lengths.data(), {2});
    call.keys.counts = polyhead_tensor{};
    CHECK(std::string(polyhead_append(&call.cache, &call.keys).message).empty());
    for (int64_t i = 0; i < 2 * 3 * 4 * 2; ++i) {
        const int64_t b = i / (3 * 4 * 2), row = i / 2 % 4;
        CHECK(values[static_cast<size_t>(i)] == (row / 2 == b ? 5.0f : untouched));
    }
}

TEST_CASE("extents: rotate and merge_states", "[runtime]") {
    int done = 0;
    for (int zero = 0; zero < 5; ++zero) {
        INFO("extent " << zero);
        const auto extent = [&](int which) { return which == zero ? 0 : large; };
        const std::vector<int64_t> rows = {extent(0), extent(1), extent(2)}, shape = {extent(0), extent(1), extent(2), zero == 3 ? 0 : 64};
        const int64_t pairs = zero == 3 ? 0 : 32, positions = zero == 4 ? 0 : 16;
        for (const DType dtype : {DType::f32, DType::bf16}) {
            const polyhead_tensor input = hollow(dtype, shape), out = hollow(dtype, shape);
            const polyhead_rotation rotations[] = {
                {},
                {POLYHEAD_ROPE_INTERLEAVED, hollow(DType::f32, {positions, pairs}), hollow(DType::f32, {positions, pairs}), {}},
                {POLYHEAD_ROPE_HALF_SPLIT, hollow(DType::f32, {positions, pairs}), hollow(DType::f32, {positions, pairs}),
                 hollow(DType::i32, {extent(0), extent(2)})}};
            for (const polyhead_rotation &rotation : rotations) {
                done += at_once([&] { return polyhead_rotate(&input, &rotation, &out); }).code == POLYHEAD_OK;
            }
            const polyhead_state parts[] = {{input, hollow(DType::f32, rows)}, {input, hollow(DType::f32, rows)}};
            const polyhead_tensor lse = hollow(DType::f32, rows), sinks = hollow(DType::f32, {extent(1)});
            done += at_once([&] { return polyhead_merge_states(parts, 2, nullptr, &out, nullptr); }).code == POLYHEAD_OK;
            done += at_once([&] { return polyhead_merge_states(parts, 2, &sinks, &out, &lse); }).code == POLYHEAD_OK;
        }
    }
    CHECK(done > 20);
}

TEST_CASE("extents: states without entries still have sums", "[runtime]") {
    std::vector<float> sums = {1.0f, 2.0f}, lse(2, untouched);
    const polyhead_tensor rows = hollow(DType::f32, {1, 1, 2, 0});
    const polyhead_state part = {rows, view(sums.data(), {1, 1, 2})};
    const polyhead_tensor out = rows, result = view(lse.data(), {1, 1, 2});
    CHECK(std::string(polyhead_merge_states(&part, 1, nullptr, &out, &result).message).empty());
    CHECK(lse == sums);
}

namespace {

// A kernel whose heads are free, with every optional input that has an extent of its own.
Problem with_free_heads(bool packed) {
    Problem p = sdpa(0, 0, 8, 8);
    p.group_size = 1;
    p.kv_lengths = p.position_offsets = p.score_bias = p.alibi = p.sinks = p.head_gate = p.lse = 1;
    p.mask = POLYHEAD_BOOLEAN_MASK;
    p.rope = POLYHEAD_ROPE_HALF_SPLIT;
    if (!packed) {
        p.scores = POLYHEAD_LOGITS;
        p.weights_mean = 1;
    }
    return p;
}

polyhead_args hollow_call(const Problem &p, int64_t B_, int64_t H_, int64_t Q_, int64_t KV_, int64_t P_) {
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    args.query = hollow(DType::f32, {B_, H_, Q_, 8});
    args.key = args.value = hollow(DType::f32, {B_, H_, KV_, 8});
    args.out = hollow(DType::f32, {B_, H_, Q_, 8});
    args.kv_lengths = args.position_offsets = hollow(DType::i32, {B_});
    args.mask = hollow(DType::boolean, {B_, H_, Q_, KV_});
    args.score_bias = hollow(DType::f32, {B_, H_, Q_, KV_});
    args.alibi_slopes = hollow(DType::f32, {B_, H_});
    args.sinks = args.head_gate = hollow(DType::f32, {H_});
    args.rope_cos = args.rope_sin = hollow(DType::f32, {P_, 4});
    args.positions_q = hollow(DType::i32, {B_, Q_});
    args.positions_kv = hollow(DType::i32, {B_, KV_});
    args.lse = hollow(DType::f32, {B_, H_, Q_});
    if (p.weights_mean) {
        args.scores = hollow(DType::f32, {B_, H_, Q_, KV_});
        args.weights_mean = hollow(DType::f32, {B_, Q_, KV_});
    }
    return args;
}

} // namespace

TEST_CASE("extents: attention", "[runtime]") {
    FakeKernel fake(with_free_heads(false));
    int done = 0;
    const int64_t extents[][5] = {{0, 65535, large, large, 16}, {1, 0, 1, 1, 16},     {1, 1, 0, large / 8, 16},
                                  {large / 8, 1, 0, 1, 16},     {1, 1, large, 0, 16}, {1, 2, 3, 4, 0}};
    for (const auto &e : extents) {
        INFO(e[0] << " batch rows, " << e[1] << " heads, " << e[2] << " queries, " << e[3] << " keys, " << e[4] << " positions");
        const polyhead_args args = hollow_call(fake.table.problem, e[0], e[1], e[2], e[3], e[4]);
        done += at_once([&] { return fake.run(args); }).code == POLYHEAD_OK;
        char text[512];
        at_once([&] { return polyhead_explain(&fake.table, &args, text, sizeof text); });
        polyhead_status status;
        CHECK(polyhead_scratch_bytes(&fake.table, &args, &status) == 0);
    }
    CHECK(done == 3); // no batch row, no query; the others have results that cannot lie in one place
    CHECK(fake.calls == 0);
}

TEST_CASE("extents: one tensor of a call alone", "[runtime]") {
    SdpaCall call;
    for (polyhead_tensor polyhead_args::*tensor : {&polyhead_args::query, &polyhead_args::key, &polyhead_args::value, &polyhead_args::out,
                                                   &polyhead_args::kv_lengths, &polyhead_args::lse}) {
        const polyhead_tensor before = call.args.*tensor;
        for (int zero = 0; zero < before.rank; ++zero) {
            std::vector<int64_t> shape(static_cast<size_t>(before.rank), large);
            shape[static_cast<size_t>(zero)] = 0;
            call.args.*tensor = hollow(DType(before.dtype), shape);
            CHECK(at_once([&] { return call.fake.run(call.args); }).code == POLYHEAD_WRONG_SHAPE);
        }
        call.args.*tensor = before;
    }
    CHECK(call.fake.calls == 0);
}

TEST_CASE("extents: packed tokens", "[runtime]") {
    FakeKernel fake(with_free_heads(true));
    std::vector<int32_t> zeros(1, 0);
    for (const int64_t sequences : {int64_t(0), int64_t(3), large - 1}) {
        polyhead_args args = hollow_call(fake.table.problem, 1, 2, 0, 0, 4);
        args.kv_lengths = args.position_offsets = hollow(DType::i32, {sequences});
        args.alibi_slopes = hollow(DType::f32, {2});
        args.cu_seqlens_q = args.cu_seqlens_kv = view(zeros.data(), {sequences + 1}, {0});
        CHECK(std::string(at_once([&] { return fake.run(args); }).message).empty());
        args.query.shape[2] = args.out.shape[2] = args.lse.shape[2] = args.mask.shape[2] = args.score_bias.shape[2] =
            args.positions_q.shape[1] = large; // tokens that no sequence has
        at_once([&] { return fake.run(args); });
    }
    CHECK(fake.calls == 0);
}

TEST_CASE("extents: layers and linear layers", "[runtime]") {
    MhaCall call(MhaCall::cross());
    for (int zero = 0; zero < 3; ++zero) {
        INFO("extent " << zero);
        const auto extent = [&](int which) { return which == zero ? 0 : large; };
        call.args.query = hollow(DType::f32, {extent(0), extent(1), 8});
        call.args.key = hollow(DType::f32, {extent(0), extent(2), 10});
        call.args.value = hollow(DType::f32, {extent(0), extent(2), 12});
        call.args.out = hollow(DType::f32, {extent(0), extent(1), 8});
        call.args.kv_lengths = hollow(DType::i32, {extent(0)});
        at_once([&] { return call.fake.run(call.args); });
    }
    CHECK(call.fake.calls == 0);
    Problem p = mha(8, 2);
    p.cache = 1;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    MhaCall cached(p);
    for (int zero = 0; zero < 2; ++zero) {
        const auto extent = [&](int which) { return which == zero ? 0 : large; };
        cached.args.query = cached.args.out = hollow(DType::f32, {extent(0), extent(1), 8});
        cached.args.cache_lengths = hollow(DType::i32, {extent(0)});
        cached.args.key_cache = cached.args.value_cache = hollow(DType::f32, {extent(0), 2, large, 4});
        at_once([&] { return cached.fake.run(cached.args); });
    }
    CHECK(cached.fake.calls == 0);
}

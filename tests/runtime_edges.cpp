// Edges of the functions around kernels: the last number that is taken and the first that is refused, every input in the memory of every
// output, and memory that ends exactly where it should.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <polyhead/cache.h>

#include "../runtime/memory/memory.h"
#include "../runtime/memory/scratch.h"
#include "runtime_calls.h"
#include "support/catch.h"

namespace polyhead::test {
namespace edges {

// A pool of two pages of two rows with two heads, a sequence of it, and one new token that is rotated by a table of four positions.
struct PagedAppend {
    static constexpr int64_t heads = 2, entries = 4, rows = 2, pages = 2;
    std::vector<float> key = std::vector<float>(pages * heads * rows * entries, untouched), value = key,
                       new_key = std::vector<float>(heads * entries, 1.0f), new_value = new_key, cos = std::vector<float>(8, 1.0f),
                       sin = std::vector<float>(8, 0.0f);
    std::vector<int32_t> lengths = {1}, counts = {1}, positions = {0}, table = {0, 1};
    polyhead_cache cache = polyhead_cache_of({}, {}, {});
    polyhead_new_keys keys = polyhead_new_keys_of();

    PagedAppend() {
        cache.key = view(key.data(), {pages, heads, rows, entries});
        cache.value = view(value.data(), {pages, heads, rows, entries});
        cache.page_table = integers(table, {1, 2});
        keys.key = view(const_cast<const float *>(new_key.data()), {1, heads, 1, entries});
        keys.value = view(const_cast<const float *>(new_value.data()), {1, heads, 1, entries});
        keys.lengths = integers(lengths, {1});
        keys.counts = integers(counts, {1});
        keys.rotation.rope = POLYHEAD_ROPE_HALF_SPLIT;
        keys.rotation.cos = view(const_cast<const float *>(cos.data()), {4, 2});
        keys.rotation.sin = view(const_cast<const float *>(sin.data()), {4, 2});
        keys.rotation.positions = integers(positions, {1});
    }
    static TensorView integers(const std::vector<int32_t> &values, std::initializer_list<int64_t> shape) {
        return view(values.data(), shape);
    }
    void refused(polyhead_code code, const std::string &message) {
        check_refused(polyhead_append(&cache, &keys), code, message, {&key, &value});
    }
};

// Puts each input into the memory of each output in turn; the call must be refused and leave the outputs.
void check_each_over_each(const std::vector<polyhead_tensor *> &outputs, const std::vector<polyhead_tensor *> &inputs,
                          const std::function<polyhead_status()> &call) {
    for (const polyhead_tensor *output : outputs) {
        for (polyhead_tensor *input : inputs) {
            const polyhead_tensor before = *input;
            input->data = output->data;
            const polyhead_status status = call();
            INFO(status.message);
            CHECK(status.code == POLYHEAD_ALIASED);
            *input = before;
        }
    }
}

} // namespace edges

using edges::PagedAppend;

TEST_CASE("edges: every input of append in the memory of every output", "[runtime]") {
    PagedAppend call;
    polyhead_new_keys &keys = call.keys;
    edges::check_each_over_each({&call.cache.key, &call.cache.value},
                                {&keys.key, &keys.value, &keys.lengths, &keys.counts, &keys.rotation.cos, &keys.rotation.sin,
                                 &keys.rotation.positions, &call.cache.page_table},
                                [&] { return polyhead_append(&call.cache, &keys); });
    CHECK(call.key == std::vector<float>(call.key.size(), untouched));
    CHECK(std::string(polyhead_append(&call.cache, &keys).message).empty());
    CHECK(call.key != std::vector<float>(call.key.size(), untouched));
}

TEST_CASE("edges: every input of rotate and of merge_states in the memory of every output", "[runtime]") {
    std::vector<float> input(32, 1.0f), out(32, untouched), cos(8, 1.0f), sin(8, 0.0f), lse(8, 0.0f), merged_lse(8, untouched),
        sinks(2, 0.0f);
    std::vector<int32_t> at = {0};
    polyhead_rotation rotation{};
    rotation.rope = POLYHEAD_ROPE_INTERLEAVED;
    rotation.cos = view(const_cast<const float *>(cos.data()), {4, 2});
    rotation.sin = view(const_cast<const float *>(sin.data()), {4, 2});
    rotation.positions = view(const_cast<const int32_t *>(at.data()), {1});
    polyhead_tensor from = view(const_cast<const float *>(input.data()), {1, 2, 4, 4}), to = view(out.data(), {1, 2, 4, 4});
    edges::check_each_over_each({&to}, {&rotation.cos, &rotation.sin, &rotation.positions},
                                [&] { return polyhead_rotate(&from, &rotation, &to); });
    CHECK(out == std::vector<float>(32, untouched));

    polyhead_state part =
        State(view(const_cast<const float *>(input.data()), {1, 2, 4, 4}), view(const_cast<const float *>(lse.data()), {1, 2, 4}));
    polyhead_tensor to_lse = view(merged_lse.data(), {1, 2, 4}), with = view(const_cast<const float *>(sinks.data()), {2});
    const auto merge = [&] { return polyhead_merge_states(&part, 1, &with, &to, &to_lse); };
    edges::check_each_over_each({&to}, {&part.lse, &with}, merge);
    edges::check_each_over_each({&to_lse}, {&part.out, &with}, merge);
    CHECK(out == std::vector<float>(32, untouched));
    CHECK(merged_lse == std::vector<float>(8, untouched));
    CHECK(std::string(merge().message).empty());
}

TEST_CASE("edges: rows of a cache have at most 576 entries", "[runtime]") {
    for (const int64_t entries : {576, 577}) {
        std::vector<float> key(size_t(2 * entries), untouched);
        const std::vector<float> token(size_t(entries), 2.0f), cos(size_t(entries), 1.0f);
        const std::vector<int32_t> lengths = {0};
        polyhead_cache cache = polyhead_cache_of({}, {}, {});
        cache.key = view(key.data(), {1, 1, 2, entries});
        polyhead_new_keys keys = polyhead_new_keys_of();
        keys.key = view(token.data(), {1, 1, 1, entries});
        keys.lengths = view(lengths.data(), {1});
        keys.rotation.rope = POLYHEAD_ROPE_INTERLEAVED; // through memory on the stack
        keys.rotation.cos = keys.rotation.sin = view(cos.data(), {1, entries / 2});
        const polyhead_status status = polyhead_append(&cache, &keys);
        CHECK(std::string(status.message) == (entries == 576 ? "" : "cache key: extent 577 of dimension 3, expected at most 576"));
        CHECK((key[0] == untouched) == (entries == 577));
        CHECK(key[size_t(entries)] == untouched);
    }
}

TEST_CASE("edges: what append refuses", "[runtime]") {
    PagedAppend call;
    SECTION("pages without keys") {
        call.cache.key.shape[2] = call.cache.value.shape[2] = 0;
        call.refused(POLYHEAD_WRONG_SHAPE, "cache key: extent 0 of dimension 2, expected at least 1 key in a page");
    }
    SECTION("new keys of another version") {
        PagedAppend earlier;
        earlier.keys.size = call.keys.size = uint32_t(offsetof(polyhead_new_keys, sections));
        CHECK(polyhead_append(&earlier.cache, &earlier.keys).code == POLYHEAD_OK);
        call.keys.size -= 8; // without a field of the first version
        call.refused(POLYHEAD_UNSUPPORTED, "new keys: a struct of " + std::to_string(call.keys.size) + " bytes, expected " +
                                               std::to_string(sizeof(polyhead_new_keys)) + ": compile with the headers of polyhead " +
                                               polyhead_version());
    }
    SECTION("a cache of another version") {
        call.cache.size -= 8;
        CHECK(polyhead_append(&call.cache, &call.keys).code == POLYHEAD_UNSUPPORTED);
    }
    SECTION("a window that ends behind its query") {
        call.keys.has_window = 1;
        call.keys.window_left = -1;
        call.refused(POLYHEAD_BAD_VALUE, "window_left: value -1, expected at least 0");
        call.keys.window_left = 0;
        CHECK(polyhead_append(&call.cache, &call.keys).code == POLYHEAD_OK);
    }
    SECTION("a table of sines with fewer rows") {
        call.keys.rotation.sin.shape[0] = 3;
        call.refused(POLYHEAD_WRONG_SHAPE, "rope_sin: extent 3 of dimension 0, expected 4 as in rope_cos");
    }
    SECTION("a position before the first row, and one behind the last") {
        call.positions[0] = -1;
        call.refused(POLYHEAD_BAD_VALUE, "positions: token 0 of batch row 0 is at position -1, expected 0 to 3 (rows of rope_cos)");
        call.positions[0] = 4;
        call.refused(POLYHEAD_BAD_VALUE, "positions: token 0 of batch row 0 is at position 4, expected 0 to 3 (rows of rope_cos)");
        call.positions[0] = 3;
        CHECK(polyhead_append(&call.cache, &call.keys).code == POLYHEAD_OK);
    }
}

TEST_CASE("edges: what rotate refuses", "[runtime]") {
    std::vector<float> input(8, 1.0f), out(8, untouched), table(8, 1.0f);
    std::vector<int32_t> at = {-1};
    polyhead_rotation rotation{};
    rotation.rope = POLYHEAD_ROPE_INTERLEAVED;
    rotation.cos = rotation.sin = view(const_cast<const float *>(table.data()), {4, 2});
    rotation.positions = view(const_cast<const int32_t *>(at.data()), {1});
    const polyhead_tensor from = view(const_cast<const float *>(input.data()), {1, 1, 2, 4}), to = view(out.data(), {1, 1, 2, 4});
    const auto message = [&] { return std::string(polyhead_rotate(&from, &rotation, &to).message); };
    CHECK(message() == "positions: token 0 of batch row 0 is at position -1, expected 0 to 3 (rows of rope_cos)");
    at[0] = 3;
    CHECK(message() == "positions: token 1 of batch row 0 is at position 4, expected 0 to 3 (rows of rope_cos)");
    at[0] = 2;
    rotation.sin.shape[0] = 3;
    CHECK(message() == "rope_sin: extent 3 of dimension 0, expected 4 as in rope_cos");
    CHECK(out == std::vector<float>(8, untouched));
    rotation.sin.shape[0] = 4;
    CHECK(message().empty());
}

TEST_CASE("edges: a page is copied to its last entry", "[runtime]") {
    PagedAppend call;
    for (size_t i = 0; i < call.key.size(); i++) {
        call.key[i] = float(i);
        call.value[i] = -float(i);
    }
    REQUIRE(polyhead_copy_page(&call.cache, 0, 1).code == POLYHEAD_OK);
    const size_t page = call.key.size() / 2;
    for (size_t i = 0; i < page; i++) {
        CHECK(call.key[page + i] == float(i));
        CHECK(call.value[page + i] == -float(i));
        CHECK(call.key[i] == float(i));
    }
}

TEST_CASE("edges: one scale for 64 entries, for 32 and for a row", "[runtime]") {
    constexpr int64_t entries = 128;
    for (const int64_t scales : {1, 2, 4, 3, 8, 0}) {
        std::vector<int8_t> key(entries, 77);
        std::vector<float> of_key(16, untouched), token(entries, 0.0f);
        for (int64_t i = 0; i < entries; i++) {
            token[size_t(i)] = float(1 + i / 32);
        }
        const std::vector<int32_t> lengths = {0};
        polyhead_cache cache = polyhead_cache_of({}, {}, {});
        cache.key = view(key.data(), {1, 1, 1, entries});
        cache.key_scales = view(of_key.data(), {1, 1, 1, scales});
        polyhead_new_keys keys = polyhead_new_keys_of();
        keys.key = view(const_cast<const float *>(token.data()), {1, 1, 1, entries});
        keys.lengths = view(lengths.data(), {1});
        const polyhead_status status = polyhead_append(&cache, &keys);
        const bool right = scales == 1 || scales == 2 || scales == 4;
        INFO(status.message);
        CHECK((status.code == POLYHEAD_OK) == right);
        for (int64_t s = 0; right && s < scales; s++) {
            CHECK(of_key[size_t(s)] == float(4 / scales * (s + 1)) / 127.0f); // of its largest entry
        }
        CHECK(of_key[size_t(right ? scales : 0)] == untouched);
    }
}

TEST_CASE("edges: parts are merged in every column, and not where a sum is infinite", "[runtime]") {
    constexpr int64_t width = 700;
    std::vector<float> first(width), second(width), out(width), lse = {0.0f}, other = {std::log(3.0f)};
    for (int64_t i = 0; i < width; i++) {
        first[size_t(i)] = float(i);
        second[size_t(i)] = float(2 * i);
    }
    std::vector<State> parts;
    parts.emplace_back(view(const_cast<const float *>(first.data()), {1, 1, 1, width}),
                       view(const_cast<const float *>(lse.data()), {1, 1, 1}));
    parts.emplace_back(view(const_cast<const float *>(second.data()), {1, 1, 1, width}),
                       view(const_cast<const float *>(other.data()), {1, 1, 1}));
    const auto merge = [&] { return merge_states(parts.data(), 2, view(out.data(), {1, 1, 1, width})); };
    REQUIRE(merge().ok());
    for (int64_t i = 0; i < width; i++) {
        REQUIRE(std::abs(out[size_t(i)] - 1.75f * float(i)) < 1e-6f * float(i + 1));
    }
    other[0] = std::numeric_limits<float>::infinity();
    std::fill(out.begin(), out.end(), untouched);
    CHECK(std::string(merge().message()) ==
          "lse of a part: value inf at index 0, 0, 0 of part 1, expected a finite number, or -inf where the part has no key");
    CHECK(out == std::vector<float>(width, untouched));
}

TEST_CASE("edges: every scale of a long cache is looked at", "[runtime]") {
    constexpr int64_t length = 9000;
    const std::vector<int8_t> rows(length, 1);
    std::vector<float> scales(length, 1.0f), query(1, 1.0f), out(1, untouched);
    Problem problem = sdpa(1, 1, 1, 1);
    problem.int8_cache = 1;
    FakeKernel fake(problem);
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    args.query = view(query.data(), {1, 1, 1, 1});
    args.key = args.value = TensorView(rows.data(), DType::i8, {1, 1, length, 1});
    args.key_scales = args.value_scales = view(const_cast<const float *>(scales.data()), {1, 1, length, 1});
    args.out = view(out.data(), {1, 1, 1, 1});
    CHECK(std::string(fake.run(args).message).empty());
    for (const int64_t at : {int64_t(0), int64_t(63), int64_t(4095), int64_t(4096), int64_t(4097), length - 1}) {
        scales[size_t(at)] = -1.0f;
        CHECK(std::string(fake.run(args).message) ==
              "key_scales: value -1 of key " + std::to_string(at) + ", head 0, batch row 0, expected a finite number of at least 0");
        scales[size_t(at)] = 1.0f;
    }
}

TEST_CASE("edges: offsets of tensors", "[runtime]") {
    SdpaCall call;
    for (const int64_t offset : {int64_t(-1), (int64_t(1) << 48) + 1}) {
        call.args.query.offset = offset;
        call.refused(POLYHEAD_WRONG_STRIDE, "query: offset " + std::to_string(offset) + ", expected 0 to 2^48");
    }
}

TEST_CASE("edges: blocks of scratch end before its memory does, and are all free again", "[runtime]") {
    constexpr size_t bytes = 2048, unit = runtime::Scratch::alignment;
    void *const memory = runtime::new_block(bytes);
    REQUIRE(memory != nullptr);
    {
        runtime::Scratch scratch;
        scratch.use(memory, bytes);
        CHECK(scratch.take(bytes - 2 * unit + 1) == nullptr); // behind it a unit is read
        void *whole = scratch.take(bytes - 2 * unit);
        REQUIRE(whole != nullptr);
        CHECK(static_cast<char *>(whole) + bytes - 2 * unit + unit == static_cast<char *>(memory) + bytes);
        CHECK(scratch.take(1) == nullptr);
        scratch.give(whole);
        void *const below = scratch.take(100), *const above = scratch.take(100);
        scratch.give(below); // not the last one: free when that is
        CHECK(scratch.take(bytes - 5 * unit) == nullptr);
        scratch.give(above);
        whole = scratch.take(bytes - 2 * unit);
        CHECK(whole != nullptr);
        scratch.use(nullptr, 0);
    }
    runtime::free_block(memory);
}

TEST_CASE("edges: a block that was kept is as large as it must be", "[runtime]") {
    runtime::give_kept_memory_back();
    for (size_t bytes = 1; bytes < 5000; bytes += 61) {
        void *const first = runtime::take_memory(bytes);
        runtime::give_memory(first);
        void *const second = runtime::take_memory(bytes + 127);
        CHECK(runtime::block_bytes(second) >= bytes + 127);
        runtime::give_memory(second);
    }
    runtime::give_kept_memory_back();
}

} // namespace polyhead::test

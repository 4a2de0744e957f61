// The rules of a layer with a cache, and what its kernel is shown: nothing is written, not even to the caches, when a call is refused.
#include <limits>
#include <string>
#include <vector>

#include "runtime_calls.h"
#include "runtime_fake_device.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int64_t capacity = 10, heads = 2, width = 4;

Problem cached(int32_t page_size = 0) {
    Problem p = mha(8, 2);
    p.cache = 1;
    p.page_size = page_size;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    return p;
}

// Two batch rows with 4 and 7 keys, and three new ones each: the second row is full afterwards.
struct CacheCall : MhaCall {
    std::vector<float> keys = std::vector<float>(B * heads * capacity * width, untouched), values = keys;
    std::vector<int32_t> lengths = {4, 7};

    explicit CacheCall(const Problem &p = cached()) : MhaCall(p) {
        args.cache_lengths = view(lengths.data(), {B});
        args.key_cache = view(keys.data(), {B, heads, capacity, width});
        args.value_cache = view(values.data(), {B, heads, capacity, width});
    }
    void refused(polyhead_code code, const std::string &message) { check_refused(fake, args, code, message, {&out, &keys, &values}); }
    void accepted() {
        const polyhead_status status = fake.run(args);
        INFO(status.message);
        CHECK(status.code == POLYHEAD_OK);
        CHECK(fake.calls == 1);
    }
};

// The same in pages of 4 keys of a pool of 6: keys 0..6 of the first row in pages 5 and 1, keys 0..9 of the second in 0, 4 and 2.
constexpr int64_t page_size = 4, pages = 6, columns = 3;
struct PagedCacheCall : CacheCall {
    std::vector<int32_t> table = {5, 1, -7, 0, 4, 2};

    explicit PagedCacheCall(const Problem &p = cached(page_size)) : CacheCall(p) {
        keys.assign(pages * heads * page_size * width, untouched);
        values = keys;
        args.key_cache = view(keys.data(), {pages, heads, page_size, width});
        args.value_cache = view(values.data(), {pages, heads, page_size, width});
        args.page_table = view(table.data(), {B, columns});
    }
};

} // namespace

TEST_CASE("cache of a layer: a kernel gets the rows that are needed, behind the other outputs", "[runtime]") {
    CacheCall call;
    call.lengths = {4, 2};
    call.fake.on_call = [&](FakeKernel &f) {
        CHECK(f.buffer(5).host == call.lengths.data());
        CHECK(f.scalar<int32_t>(7) == 1); // from_end
        CHECK(f.buffer(8).host == call.out.data());
        CHECK(f.buffer(9).host == call.keys.data());
        CHECK(f.buffer(9).extents == std::vector<int32_t>{width, 7, heads, B});
        CHECK(f.buffer(9).strides == std::vector<int32_t>{1, width, width * capacity, width * capacity * heads});
        CHECK(f.buffer(10).host == call.values.data());
        CHECK(f.buffer(10).extents == f.buffer(9).extents);
    };
    call.accepted();
}

TEST_CASE("cache of a layer: with pages a kernel gets the pool and the columns that are needed", "[runtime]") {
    PagedCacheCall call;
    call.lengths = {4, 1};
    call.fake.on_call = [&](FakeKernel &f) {
        CHECK(f.buffer(5).host == call.table.data());
        CHECK(f.buffer(5).extents == std::vector<int32_t>{2, B});
        CHECK(f.buffer(6).host == call.lengths.data());
        CHECK(f.buffer(10).extents == std::vector<int32_t>{width, page_size, heads, pages});
        CHECK(f.buffer(11).host == call.values.data());
    };
    call.accepted();
}

TEST_CASE("cache of a layer: its tensors", "[runtime]") {
    CacheCall call;
    polyhead_args &a = call.args;
    SECTION("key_cache missing") {
        a.key_cache = polyhead_tensor{};
        call.refused(POLYHEAD_NULL_POINTER, "key_cache: missing, expected a tensor of rank 4");
    }
    SECTION("cache_lengths missing") {
        a.cache_lengths = polyhead_tensor{};
        call.refused(POLYHEAD_NULL_POINTER, "cache_lengths: missing, expected a tensor of rank 1");
    }
    SECTION("another batch") {
        a.key_cache.shape[0] = 1;
        call.refused(POLYHEAD_WRONG_SHAPE, "key_cache: extent 1 of dimension 0, expected 2 as in input");
    }
    SECTION("other heads") {
        a.value_cache.shape[1] = 1;
        call.refused(POLYHEAD_WRONG_SHAPE, "value_cache: extent 1 of dimension 1, expected 2");
    }
    SECTION("another capacity of values") {
        a.value_cache.shape[2] = 9;
        call.refused(POLYHEAD_WRONG_SHAPE, "value_cache: extent 9 of dimension 2, expected 10 as in key_cache");
    }
    SECTION("another head_dim") {
        a.key_cache.shape[3] = 3;
        call.refused(POLYHEAD_WRONG_SHAPE, "key_cache: extent 3 of dimension 3, expected 4");
    }
    SECTION("more tokens than the capacity") {
        a.key_cache.shape[2] = a.value_cache.shape[2] = 2;
        call.refused(POLYHEAD_WRONG_SHAPE, "input: extent 3 of dimension 1, expected at most 2, the capacity of key_cache");
    }
    SECTION("another type") {
        a.key_cache.dtype = POLYHEAD_F16;
        call.refused(POLYHEAD_WRONG_DTYPE, "key_cache: dtype f16, expected f32");
    }
    SECTION("one cache for all batch rows") {
        a.key_cache.stride[0] = 0;
        call.refused(POLYHEAD_WRONG_STRIDE, "key_cache: stride 0 of dimension 0 makes elements overlap, expected at least 1");
    }
    SECTION("key lengths beside it") {
        a.kv_lengths = view(call.lengths.data(), {B});
        call.refused(POLYHEAD_WRONG_OPERATION, "kv_lengths: given, expected none, because the kernel was built without key lengths");
    }
    SECTION("a cache for a layer without") {
        MhaCall plain;
        plain.args.key_cache = a.key_cache;
        plain.refused(POLYHEAD_WRONG_OPERATION, "key_cache: given, expected none, because the kernel was built without a cache");
    }
}

TEST_CASE("cache of a layer: lengths that leave room for the new keys", "[runtime]") {
    CacheCall call;
    SECTION("full") {
        call.lengths[1] = 8;
        call.refused(POLYHEAD_BAD_VALUE, "cache_lengths: value 8 at index 1 of dimension 0, expected 0 to 7 (capacity 10, 3 new keys)");
    }
    SECTION("negative") {
        call.lengths[0] = -1;
        call.refused(POLYHEAD_BAD_VALUE, "cache_lengths: value -1 at index 0 of dimension 0, expected 0 to 7 (capacity 10, 3 new keys)");
    }
    SECTION("positions beyond the tables") {
        Problem p = cached();
        p.rope = POLYHEAD_ROPE_HALF_SPLIT;
        CacheCall rotated(p);
        std::vector<float> rows(9 * 2);
        rotated.args.rope_cos = rotated.args.rope_sin = view(rows.data(), {9, 2});
        rotated.refused(POLYHEAD_WRONG_SHAPE,
                        "rope_cos: extent 9 of dimension 0, expected at least 10: without positions_q the last query is at position 9");
        std::vector<int32_t> positions(B * T_q);
        rotated.args.positions_q = view(positions.data(), {B, T_q});
        rotated.refused(POLYHEAD_WRONG_SHAPE,
                        "rope_cos: extent 9 of dimension 0, expected at least 10: without positions_kv the last key is at position 9");
        rotated.args.positions_kv = view(positions.data(), {B, T_q}); // of the new keys
        rotated.accepted();
    }
    SECTION("nothing to do") {
        call.args.query.shape[1] = call.args.out.shape[1] = 0;
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        CHECK(call.fake.calls == 0);
    }
}

TEST_CASE("cache of a layer: memory of its own", "[runtime]") {
    CacheCall call;
    SECTION("the input") {
        call.args.query.data = call.keys.data();
        call.refused(POLYHEAD_ALIASED, "key_cache: shares memory with input, expected memory of its own");
    }
    SECTION("out") {
        call.args.out.data = call.values.data() + 3;
        call.refused(POLYHEAD_ALIASED, "value_cache: shares memory with out, expected memory of its own");
    }
    SECTION("keys and values of a batch row side by side") {
        std::vector<float> both(2 * call.keys.size(), untouched);
        for (polyhead_tensor *cache : {&call.args.key_cache, &call.args.value_cache}) {
            cache->data = both.data() + (cache == &call.args.value_cache ? heads * capacity * width : 0);
            cache->stride[0] = 2 * heads * capacity * width;
        }
        call.accepted();
    }
}

TEST_CASE("cache of a layer: pages", "[runtime]") {
    PagedCacheCall call;
    SECTION("entries behind the keys are not read") {
        call.table[2] = std::numeric_limits<int32_t>::max();
        call.accepted();
    }
    SECTION("a page that does not exist, for new keys") {
        call.table[5] = 6;
        call.refused(POLYHEAD_BAD_VALUE, "page_table: value 6 at index 1, 2, expected 0 to 5 (pages of key_cache)");
    }
    SECTION("a page that does not exist, for old keys") {
        call.table[0] = -1;
        call.refused(POLYHEAD_BAD_VALUE, "page_table: value -1 at index 0, 0, expected 0 to 5 (pages of key_cache)");
    }
    SECTION("a page that two rows write") {
        call.table[4] = 1;
        call.refused(POLYHEAD_ALIASED, "page_table: page 1 at index 1, 1 is written, and used a second time: copy it first");
    }
    SECTION("a page that one row writes and another one reads") {
        call.table[3] = 1;
        call.refused(POLYHEAD_ALIASED, "page_table: page 1 at index 1, 0 is written, and used a second time: copy it first");
    }
    SECTION("a page that both only read") {
        call.table[3] = 5;
        call.accepted();
    }
    SECTION("no room in the table") {
        call.lengths[0] = 10;
        call.refused(POLYHEAD_BAD_VALUE, "cache_lengths: value 10 at index 0 of dimension 0, expected 0 to 9 (capacity 12, 3 new keys)");
    }
    SECTION("pages of another size") {
        call.args.key_cache.shape[2] = 2;
        call.refused(POLYHEAD_WRONG_SHAPE, "key_cache: extent 2 of dimension 2, expected 4");
    }
    SECTION("no pages") {
        call.args.key_cache.shape[0] = call.args.value_cache.shape[0] = 0;
        call.refused(POLYHEAD_WRONG_SHAPE, "key_cache: extent 0 of dimension 0, expected at least 1 page");
    }
    SECTION("without a table") {
        call.args.page_table = polyhead_tensor{};
        call.refused(POLYHEAD_NULL_POINTER, "page_table: missing, expected a tensor of rank 2");
    }
}

TEST_CASE("cache of a layer: a ring of pages is as long as its window, and no key in use is written over", "[runtime]") {
    Problem p = cached(page_size);
    p.window = p.position_offsets = 1;
    PagedCacheCall call(p);
    call.table = {5, 1, 3, 0, 4, 0}; // the new keys 7 to 9 of the second row go to pages 4 and 0, where keys 0 to 3 were
    call.args.has_window = 1;
    call.args.window_left = 3;
    const std::string refusal = "page_table: page 0 at index 1, 0 is written, and used a second time: copy it first";
    SECTION("keys that no query sees") {
        call.accepted();
    }
    SECTION("a longer window") {
        call.args.window_left = 4;
        call.refused(POLYHEAD_ALIASED, refusal);
    }
    SECTION("no window") {
        call.args.window_left = -1;
        call.refused(POLYHEAD_ALIASED, refusal);
    }
    SECTION("the other alignment") {
        call.args.alignment = POLYHEAD_TOP_LEFT;
        call.refused(POLYHEAD_ALIASED, refusal);
    }
    SECTION("offsets of positions") {
        std::vector<int32_t> offsets(B);
        call.args.position_offsets = view(offsets.data(), {B});
        call.refused(POLYHEAD_ALIASED, refusal);
    }
}

TEST_CASE("cache of a layer: on a device keys and values do not lie side by side", "[runtime]") {
    CacheCall call;
    FakeDevice device;
    call.args.device = &device;
    void *memory = nullptr;
    REQUIRE(polyhead_device_allocate(&device, 2 * call.keys.size() * sizeof(float), &memory).code == POLYHEAD_OK);
    for (polyhead_tensor *cache : {&call.args.key_cache, &call.args.value_cache}) {
        cache->data = memory;
        cache->device = &device;
        cache->offset = cache == &call.args.value_cache ? heads * capacity * width : 0;
        cache->stride[0] = 2 * heads * capacity * width;
    }
    call.refused(POLYHEAD_ALIASED, "value_cache: shares memory with key_cache, expected memory of its own");
    polyhead_device_free(&device, memory);
}

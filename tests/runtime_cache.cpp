// Caches: keys and values are where they were put, in every type, with pages and without; and what is refused.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <polyhead/cache.h>

#include "instruments/calls/layouts.h"
#include "instruments/calls/random.h"
#include "instruments/reference/half.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int64_t B = 3, H = 2, d = 6, d_v = 5, capacity = 24, positions = 40;

TensorView integers(const std::vector<int32_t> &values) {
    return view(const_cast<const int32_t *>(values.data()), {int64_t(values.size())});
}

// Row (i, j, k) of a tensor of any storage type, as floats.
std::vector<float> row_of(const polyhead_tensor &t, int64_t i, int64_t j, int64_t k) {
    std::vector<float> row;
    const int64_t first = i * t.stride[0] + j * t.stride[1] + k * t.stride[2];
    for (int64_t n = first; n < first + t.shape[3]; n++) {
        row.push_back(t.dtype == POLYHEAD_I8 ? float(static_cast<const int8_t *>(t.data)[n])
                      : is_16_bit(t.dtype)   ? from_storage_bits(static_cast<const uint16_t *>(t.data)[n], t.dtype)
                                             : static_cast<const float *>(t.data)[n]);
    }
    return row;
}

using Rows = std::vector<std::vector<float>>; // of one head, in the order of positions

// A cache, and what it must hold: rows[b][h][n].
struct Model {
    int32_t dtype;
    int64_t page_size; // 0: contiguous
    Tensor key, value, key_scales, value_scales, cos, sin;
    std::vector<int32_t> lengths = std::vector<int32_t>(B, 0), table;
    int64_t columns, pages;
    std::vector<std::vector<Rows>> keys, values;
    Random random;

    Model(int32_t dtype_, int64_t page_size_, Layout layout, uint64_t seed)
        : dtype(dtype_), page_size(page_size_), columns(page_size_ > 0 ? capacity / page_size_ : 0), pages(B * columns + 4),
          keys(B, std::vector<Rows>(H)), values(keys), random(seed) {
        const int64_t outermost = page_size > 0 ? pages : B, rows = page_size > 0 ? page_size : capacity;
        key = make_tensor(DType(dtype), {outermost, H, rows, d}, head_strides(layout, H, rows, d), Place::at_end);
        value = make_tensor(DType(dtype), {outermost, H, rows, d_v}, head_strides(layout, H, rows, d_v), Place::at_begin);
        if (dtype == POLYHEAD_I8) {
            key_scales = make_tensor(DType::f32, {outermost, H, rows, 1}, head_strides(layout, H, rows, 1), Place::at_end);
            value_scales = make_tensor(DType::f32, {outermost, H, rows, 1}, head_strides(layout, H, rows, 1), Place::at_begin);
        }
        cos = make_tensor(DType::f32, {positions, 2}, {2, 1}, Place::at_end);
        sin = make_tensor(DType::f32, {positions, 2}, {2, 1}, Place::at_end);
        for (int64_t n = 0; n < positions; n++) {
            for (int64_t i = 0; i < 2; i++) {
                static_cast<float *>(cos.view.data)[2 * n + i] = std::cos(float(n) / float(1 + 9 * i));
                static_cast<float *>(sin.view.data)[2 * n + i] = std::sin(float(n) / float(1 + 9 * i));
            }
        }
        for (int64_t i = 0; i < B * columns; i++) {
            table.push_back(int32_t((7 * i + 3) % pages)); // distinct: pages is no multiple of 7
        }
    }
    Cache cache() {
        Cache c;
        static_cast<polyhead_tensor &>(c.key) = key.view;
        static_cast<polyhead_tensor &>(c.value) = value.view;
        static_cast<polyhead_tensor &>(c.key_scales) = key_scales.view;
        static_cast<polyhead_tensor &>(c.value_scales) = value_scales.view;
        if (page_size > 0) {
            c.page_table = view(const_cast<const int32_t *>(table.data()), {B, columns});
        }
        return c;
    }
    // What another order of the operations of a rotation may change.
    float unit() const { return dtype == POLYHEAD_BF16 ? 0x1p-7f : dtype == POLYHEAD_F16 ? 0x1p-10f : 0x1p-21f; }
    float stored(float x) const { return is_16_bit(dtype) ? from_storage_bits(to_storage_bits(x, dtype), dtype) : x; }
    // What a row of the cache stands for: half a step of its scale is lost.
    bool holds(const std::vector<float> &row, float scale, const std::vector<float> &expected, float slack) const {
        float largest = 0;
        for (const float x : expected) {
            largest = std::max(largest, std::abs(x));
        }
        bool all = dtype != POLYHEAD_I8 || std::abs(scale - largest / 127) <= 1e-6f * largest;
        for (size_t i = 0; i < row.size(); i++) {
            all = all && (dtype == POLYHEAD_I8 ? std::abs(row[i] * scale - expected[i]) <= 0.5001f * scale
                                               : std::abs(row[i] - stored(expected[i])) <=
                                                     slack * std::abs(stored(expected[i])) + (slack > 0 ? 1e-6f : 0.0f));
        }
        return all;
    }
    static float scale_at(const Tensor &scales, int64_t i, int64_t j, int64_t k) {
        return scales.view.rank == 0 ? 1.0f : row_of(scales.view, i, j, k)[0];
    }

    // Appends up to three tokens to each row, some of them rotated, some of f32.
    Status append_some() {
        const int64_t tokens = random.between(0, 3);
        std::vector<int32_t> counts;
        for (int64_t b = 0; b < B; b++) {
            counts.push_back(int32_t(std::min(random.between(0, tokens), capacity - lengths[size_t(b)])));
        }
        Tensor new_key = make_tensor(DType::f32, {B, H, tokens, d}, head_strides(Layout::bshd, H, tokens, d), Place::at_end),
               new_value = make_tensor(DType::f32, {B, H, tokens, d_v}, head_strides(Layout::bhsd, H, tokens, d_v), Place::at_end);
        fill_normal(new_key, random, 1.0f);
        fill_normal(new_value, random, 1.0f);
        const bool rotated = random.chance(50), interleaved = random.chance(50);
        const bool as_stored = is_16_bit(dtype) && random.chance(50);
        Tensor stored_key = as_stored ? store(new_key, dtype, Place::at_end) : Tensor(),
               stored_value = as_stored ? store(new_value, dtype, Place::at_end) : Tensor();
        NewKeys keys_;
        static_cast<polyhead_tensor &>(keys_.key) = as_stored ? stored_key.view : new_key.view;
        static_cast<polyhead_tensor &>(keys_.value) = as_stored ? stored_value.view : new_value.view;
        keys_.lengths = integers(lengths);
        keys_.counts = integers(counts);
        if (rotated) {
            static_cast<polyhead_tensor &>(keys_.rotation.cos) = cos.view;
            static_cast<polyhead_tensor &>(keys_.rotation.sin) = sin.view;
            keys_.rotation.interleaved = interleaved;
        }
        const Status status = append(cache(), keys_);
        if (status.ok()) {
            remember(new_key, new_value, counts, rotated, interleaved);
        }
        return status;
    }
    void remember(const Tensor &new_key, const Tensor &new_value, const std::vector<int32_t> &counts, bool rotated, bool interleaved) {
        for (size_t b = 0; b < size_t(B); b++) {
            for (int64_t t = 0; t < counts[b]; t++) {
                for (size_t h = 0; h < size_t(H); h++) {
                    std::vector<float> k = row_of(new_key.view, int64_t(b), int64_t(h), t),
                                       v = row_of(new_value.view, int64_t(b), int64_t(h), t);
                    for (size_t i = 0; rotated && i < 2; i++) {
                        float &first = k[interleaved ? 2 * i : i], &second = k[interleaved ? 2 * i + 1 : i + 2];
                        const float c = static_cast<float *>(cos.view.data)[2 * (lengths[b] + t) + int64_t(i)],
                                    s = static_cast<float *>(sin.view.data)[2 * (lengths[b] + t) + int64_t(i)], x = first, y = second;
                        first = x * c - y * s;
                        second = y * c + x * s;
                    }
                    keys[b][h].push_back(k);
                    values[b][h].push_back(v);
                }
            }
            lengths[b] += counts[b];
        }
    }
    void truncate(size_t b, int32_t length) {
        lengths[b] = std::min(lengths[b], length);
        for (size_t h = 0; h < size_t(H); h++) {
            keys[b][h].resize(size_t(lengths[b]));
            values[b][h].resize(size_t(lengths[b]));
        }
    }
    // Row `to` becomes row `from`: whole pages are shared, the last one is copied.
    void fork(size_t from, size_t to, int32_t spare) {
        const size_t whole = size_t(lengths[from] / page_size);
        const Cache c = cache();
        if (lengths[from] % page_size != 0) {
            REQUIRE(copy_page(c, table[from * size_t(columns) + whole], spare).ok());
            table[to * size_t(columns) + whole] = spare;
        }
        std::copy_n(table.begin() + int64_t(from) * columns, whole, table.begin() + int64_t(to) * columns);
        lengths[to] = lengths[from];
        keys[to] = keys[from];
        values[to] = values[from];
    }
    void check() {
        bool same = true;
        for (size_t b = 0; b < size_t(B); b++) {
            for (size_t h = 0; h < size_t(H); h++) {
                for (int64_t n = 0; n < lengths[b]; n++) {
                    const int64_t outer = page_size > 0 ? table[b * size_t(columns) + size_t(n / page_size)] : int64_t(b),
                                  row = page_size > 0 ? n % page_size : n;
                    const std::vector<float> k = row_of(key.view, outer, int64_t(h), row), v = row_of(value.view, outer, int64_t(h), row);
                    same = same && holds(k, scale_at(key_scales, outer, int64_t(h), row), keys[b][h][size_t(n)], unit()) &&
                           holds(v, scale_at(value_scales, outer, int64_t(h), row), values[b][h][size_t(n)], 0);
                }
            }
        }
        CHECK(same);
    }
};

} // namespace

TEST_CASE("cache: random histories of appends, truncation and forks", "[runtime]") {
    for (const int32_t dtype : {POLYHEAD_F32, POLYHEAD_F16, POLYHEAD_BF16, POLYHEAD_I8}) {
        for (const int64_t page_size : {0, 1, 4, 8}) {
            for (const Layout layout : {Layout::bhsd, Layout::bshd_padded}) {
                for (uint64_t seed = 0; seed < 6; seed++) {
                    INFO("dtype " << dtype << ", page_size " << page_size << ", seed " << seed);
                    Model model(dtype, page_size, layout, seed);
                    for (int step = 0; step < 12; step++) {
                        const Status status = model.append_some();
                        INFO(status.message());
                        REQUIRE(status.ok());
                        if (model.random.chance(20)) {
                            model.truncate(size_t(model.random.below(B)), int32_t(model.random.below(capacity)));
                        }
                        model.check();
                    }
                }
            }
        }
    }
}

TEST_CASE("cache: a fork shares whole pages and copies the last one", "[runtime]") {
    Model model(GENERATE(POLYHEAD_F32, POLYHEAD_I8), 4, Layout::bhsd, 3);
    while (model.lengths[0] < 10) {
        REQUIRE(model.append_some().ok());
    }
    model.truncate(0, 10);
    std::vector<bool> used(size_t(model.pages), false);
    for (const int32_t page : model.table) {
        used[size_t(page)] = true;
    }
    const auto spare = int32_t(std::find(used.begin(), used.end(), false) - used.begin());
    model.fork(0, 1, spare);
    model.check();
    CHECK(model.table[0] == model.table[size_t(model.columns)]);
    for (int i = 0; i < 3; i++) { // the rows go on apart
        REQUIRE(model.append_some().ok());
        model.check();
    }
}

namespace {

// A good call with pages of 4 keys: row 0 has 5 keys in pages 0 and 1, row 1 has none, row 2 has 4 keys in page 3; two tokens more for
// each.
struct GoodAppend {
    static constexpr int64_t page_size = 4, pages = 8, tokens = 2;
    std::vector<float> key = std::vector<float>(pages * H * page_size * d, 7.0f),
                       value = std::vector<float>(pages * H * page_size * d_v, 7.0f),
                       new_key = std::vector<float>(B * H * tokens * d, 1.0f), new_value = std::vector<float>(B * H * tokens * d_v, 1.0f),
                       cos = std::vector<float>(positions * 2), sin = std::vector<float>(positions * 2);
    std::vector<int32_t> table = {0, 1, -1, 2, -5, 99, 3, 4, 1 << 30}, lengths = {5, 0, 4}, counts = {2, 1, 2}, at = {5, 0, 4};
    Cache cache;
    NewKeys keys;

    GoodAppend() {
        cache.key = view(key.data(), {pages, H, page_size, d});
        cache.value = view(value.data(), {pages, H, page_size, d_v});
        cache.page_table = view(const_cast<const int32_t *>(table.data()), {B, 3});
        keys.key = view(const_cast<const float *>(new_key.data()), {B, H, tokens, d});
        keys.value = view(const_cast<const float *>(new_value.data()), {B, H, tokens, d_v});
        keys.lengths = integers(lengths);
        keys.counts = integers(counts);
    }
    void rotate() {
        keys.rotation.cos = view(const_cast<const float *>(cos.data()), {positions, 2});
        keys.rotation.sin = view(const_cast<const float *>(sin.data()), {positions, 2});
        keys.rotation.positions = integers(at);
    }
    void refused(polyhead_code code, const std::string &message) {
        const Status status = append(cache, keys);
        CHECK(status.code() == code);
        CHECK(std::string(status.message()) == message);
        CHECK(key == std::vector<float>(key.size(), 7.0f));
        CHECK(value == std::vector<float>(value.size(), 7.0f));
    }
};

} // namespace

TEST_CASE("cache: a good call writes its rows and nothing else", "[runtime]") {
    GoodAppend good;
    const Status status = append(good.cache, good.keys);
    INFO(status.message());
    CHECK(status.ok());
    CHECK(std::count(good.key.begin(), good.key.end(), 1.0f) == 5 * H * d);
    CHECK(std::count(good.value.begin(), good.value.end(), 1.0f) == 5 * H * d_v);
    for (const int64_t page_row : {1 * 8 + 1, 1 * 8 + 2, 2 * 8 + 0, 4 * 8 + 0, 4 * 8 + 1}) { // of head 0
        CHECK(good.key[size_t(page_row * d)] == 1.0f);
        CHECK(good.value[size_t((page_row + GoodAppend::page_size) * d_v)] == 1.0f); // of head 1
    }
}

TEST_CASE("cache: lengths, counts and positions that do not fit", "[runtime]") {
    GoodAppend bad;
    SECTION("more keys than there is room for") {
        bad.lengths[2] = 11;
        bad.refused(POLYHEAD_BAD_VALUE, "lengths: value 11 at index 2 of dimension 0, expected 0 to 10 (capacity 12, 2 new keys)");
    }
    SECTION("a negative length") {
        bad.lengths[1] = -1;
        bad.refused(POLYHEAD_BAD_VALUE, "lengths: value -1 at index 1 of dimension 0, expected 0 to 11 (capacity 12, 1 new keys)");
    }
    SECTION("more tokens than are given") {
        bad.counts[0] = 3;
        bad.refused(POLYHEAD_BAD_VALUE, "counts: value 3 at index 0 of dimension 0, expected 0 to 2 (tokens of key)");
    }
    SECTION("a position behind the tables") {
        bad.rotate();
        bad.at[1] = 40;
        bad.refused(POLYHEAD_BAD_VALUE, "positions: token 0 of batch row 1 is at position 40, expected 0 to 39 (rows of rope_cos)");
    }
    SECTION("tables that are wider than the head") {
        bad.rotate();
        bad.keys.rotation.cos = view(const_cast<const float *>(bad.cos.data()), {10, 4});
        bad.refused(POLYHEAD_WRONG_SHAPE, "rope_cos: extent 4 of dimension 1, expected at most 3, half the head dimension");
    }
    SECTION("positions without tables") {
        bad.keys.rotation.positions = integers(bad.at);
        bad.refused(POLYHEAD_NULL_POINTER, "rope_cos: missing, expected a tensor of rank 2");
    }
}

TEST_CASE("cache: pages that do not exist, or belong to two rows", "[runtime]") {
    GoodAppend bad;
    SECTION("a page of valid keys that is none") {
        bad.table[0] = 8;
        bad.refused(POLYHEAD_BAD_VALUE, "page_table: value 8 at index 0, 0, expected 0 to 7 (pages of the cache)");
    }
    SECTION("a page of new keys that is none") {
        bad.table[7] = -1;
        bad.refused(POLYHEAD_BAD_VALUE, "page_table: value -1 at index 2, 1, expected 0 to 7 (pages of the cache)");
    }
    SECTION("two rows write to one page") {
        bad.table[7] = 1;
        bad.refused(POLYHEAD_ALIASED, "page_table: page 1 at index 2, 1 is written, and used a second time: copy it first");
    }
    SECTION("a row reads what another one writes") {
        bad.table[6] = 2;
        bad.refused(POLYHEAD_ALIASED, "page_table: page 2 at index 2, 0 is written, and used a second time: copy it first");
    }
    SECTION("a row reads what it writes") {
        bad.table[7] = 3;
        bad.refused(POLYHEAD_ALIASED, "page_table: page 3 at index 2, 0 is written, and used a second time: copy it first");
    }
    SECTION("rows may share what nobody writes") {
        bad.table[6] = 0;
        CHECK(append(bad.cache, bad.keys).ok());
    }
    SECTION("copies of pages that do not exist") {
        CHECK(std::string(copy_page(bad.cache, 0, 8).message()) == "to: page 8, expected 0 to 7 (pages of the cache)");
        CHECK(std::string(copy_page(bad.cache, -1, 7).message()) == "from: page -1, expected 0 to 7 (pages of the cache)");
        bad.cache.page_table = TensorView(); // is not read
        CHECK(copy_page(bad.cache, 0, 1).ok());
    }
}

TEST_CASE("cache: shapes, types and memory", "[runtime]") {
    GoodAppend bad;
    SECTION("another number of heads") {
        bad.keys.key.shape[1] = 1;
        bad.refused(POLYHEAD_WRONG_SHAPE, "key: extent 1 of dimension 1, expected 2 as in cache key");
    }
    SECTION("another number of tokens") {
        bad.keys.value.shape[2] = 1;
        bad.refused(POLYHEAD_WRONG_SHAPE, "value: extent 1 of dimension 2, expected 2 as in key");
    }
    SECTION("a cache of bf16 takes no f16") {
        bad.cache.key.dtype = bad.cache.value.dtype = POLYHEAD_BF16;
        bad.keys.key.dtype = POLYHEAD_F16;
        bad.refused(POLYHEAD_WRONG_DTYPE, "key: dtype f16, expected bf16 or f32");
    }
    SECTION("a cache of integers") {
        bad.cache.key.dtype = POLYHEAD_I32;
        bad.refused(POLYHEAD_WRONG_DTYPE, "cache key: dtype i32, expected f32, f16, bf16 or i8");
    }
    SECTION("a value for a cache that has none") {
        bad.cache.value = MutableTensorView();
        bad.refused(POLYHEAD_WRONG_OPERATION, "value: given, expected none, because the cache has no value");
    }
    SECTION("new keys in the cache itself") {
        bad.keys.key.data = bad.key.data();
        bad.refused(POLYHEAD_ALIASED, "cache key: shares memory with key, expected memory of its own");
    }
    SECTION("keys of the cache that lie on each other") {
        bad.cache.key.stride[0] = 0;
        bad.refused(POLYHEAD_WRONG_STRIDE, "cache key: stride 0 of dimension 0 makes elements overlap, expected at least 1");
    }
    SECTION("structs of another version") {
        polyhead_cache old = bad.cache.raw();
        old.size -= 8;
        const polyhead_new_keys keys = polyhead_new_keys_of();
        CHECK(polyhead_append(&old, &keys).code == POLYHEAD_UNSUPPORTED);
        CHECK(polyhead_append(nullptr, &keys).code == POLYHEAD_NULL_POINTER);
        CHECK(polyhead_append(&old, nullptr).code == POLYHEAD_NULL_POINTER);
    }
    SECTION("key and value of the cache may be interleaved, and a call without rows does nothing") {
        std::vector<float> both(size_t(B * 2 * H * capacity * d), 7.0f);
        Cache cache;
        cache.key = MutableTensorView(both.data(), DType::f32, {B, H, capacity, d}, {2 * H * capacity * d, capacity * d, d, 1});
        cache.value = MutableTensorView(both.data() + H * capacity * d, DType::f32, {B, H, capacity, d_v},
                                        {2 * H * capacity * d, capacity * d, d, 1});
        CHECK(append(cache, bad.keys).ok());
        CHECK(std::count(both.begin(), both.end(), 1.0f) == 5 * H * (d + d_v));
        bad.counts = {0, 0, 0};
        bad.lengths = {24, 24, 24};
        CHECK(append(cache, bad.keys).ok());
    }
}

// Packed tokens that are appended: the bits of one call for each sequence, in every form, and what is refused.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <polyhead/cache.h>

#include "executors.h"
#include "instruments/calls/layouts.h"
#include "instruments/calls/random.h"
#include "runtime_calls.h"
#include "scratch_memory.h"
#include "support/catch.h"

namespace polyhead::test {
namespace packed_append {

constexpr int64_t heads = 2, width = 64, value_width = 32, table_rows = 300;

MutableTensorView mutable_view(const Tensor &tensor) {
    MutableTensorView view;
    static_cast<polyhead_tensor &>(view) = tensor.view;
    return view;
}

TensorView integers(const std::vector<int32_t> &values, const std::vector<int64_t> &shape) {
    return TensorView(values.data(), DType::i32, static_cast<int32_t>(shape.size()), shape.data());
}

// A cache that is written: pages, or one piece (page_size 0).
struct Written {
    Tensor key, value, key_scales, value_scales;

    Written(DType dtype, int64_t blocks, int64_t rows) {
        const auto made = [&](DType type, int64_t entries, Place place) {
            const std::vector<int64_t> shape = {blocks, heads, rows, entries};
            Tensor tensor = make_tensor(type, shape, dense_strides(shape), place);
            std::memset(tensor.memory.data(), 0x35, tensor.memory.bytes());
            return tensor;
        };
        key = made(dtype, width, Place::at_end);
        value = made(dtype, value_width, Place::at_begin);
        if (dtype == DType::i8) {
            key_scales = made(DType::f32, 2, Place::at_end);
            value_scales = made(DType::f32, 1, Place::at_begin);
        }
    }
    Cache cache() const { return {mutable_view(key), mutable_view(value), {}, mutable_view(key_scales), mutable_view(value_scales)}; }
    bool same(const Written &other) const {
        const auto equal = [](const Tensor &a, const Tensor &b) {
            return a.view.rank == 0 || std::memcmp(a.memory.data(), b.memory.data(), a.memory.bytes()) == 0;
        };
        return equal(key, other.key) && equal(value, other.value) && equal(key_scales, other.key_scales) &&
               equal(value_scales, other.value_scales);
    }
};

// Sequences with so many new tokens each behind so many keys.
struct Sequences {
    std::vector<int32_t> counts, lengths, begins = {0};
    int64_t batch, total;

    Sequences(const std::vector<int32_t> &counts_, const std::vector<int32_t> &lengths_) : counts(counts_), lengths(lengths_) {
        for (const int32_t count : counts) {
            begins.push_back(begins.back() + count);
        }
        batch = static_cast<int64_t>(counts.size());
        total = begins.back();
    }
};

struct Form {
    DType dtype = DType::f32, new_dtype = DType::f32;
    int64_t page_size = 0, capacity = 24;
    Layout layout = Layout::bhsd;
    int rotation = 0;  // 0: none; else 1 + interleaved + 2 * trailing
    int positions = 0; // 0: absent, 1: of first tokens, 2: of each token
    bool norms = false;
    std::optional<int32_t> window_left;
    int threads = 1;
};

// The new keys of all sequences, and what is written by one call or by one for each of them.
class Comparison {
public:
    Comparison(const Form &form, const Sequences &sequences, uint64_t seed) : form_(form), s_(sequences), random_(seed) {
        const auto made = [&](int64_t entries) {
            Tensor tensor =
                make_tensor(DType::f32, {1, heads, s_.total, entries}, head_strides(form.layout, heads, s_.total, entries), Place::at_end);
            fill_normal(tensor, random_, 1.0f);
            return form.new_dtype == DType::f32 ? std::move(tensor) : store(tensor, int32_t(form.new_dtype), Place::at_end);
        };
        key_ = made(width);
        value_ = made(value_width);
        for (int64_t i = 0; i < table_rows * width / 4; i++) {
            cos_.push_back(std::cos(0.01f * float(i)));
            sin_.push_back(std::sin(0.01f * float(i)));
        }
        for (int64_t i = 0; i < width; i++) {
            weight_.push_back(0.5f + 0.01f * float(i));
        }
        for (int64_t i = 0; i < std::max(s_.total, s_.batch); i++) {
            positions_.push_back(int32_t(random_.below(table_rows - 256)));
        }
        columns_ = form.page_size > 0 ? form.capacity / form.page_size : 0;
        for (int64_t b = 0; b < s_.batch; b++) {
            for (int64_t j = 0; j < columns_; j++) { // of a row, in a ring where there is a window
                const int64_t of_row = form.window_left ? std::min<int64_t>(columns_, 5) : columns_;
                table_.push_back(int32_t((b * of_row + j % of_row) * 7 % pages()));
            }
        }
    }
    int64_t pages() const { return s_.batch * columns_ + (s_.batch * columns_ % 7 == 0 ? 1 : 0); }

    // The one call with threads and memory of the caller, where an executor is given.
    bool same_bits(const polyhead_executor *executor = nullptr) {
        const Written one = memory(), many = memory();
        NewKeys all = keys(key_.view, value_.view);
        all.lengths = integers(s_.lengths, {s_.batch});
        all.cu_seqlens = integers(s_.begins, {s_.batch + 1});
        all.rotation.positions = form_.positions == 0   ? TensorView()
                                 : form_.positions == 1 ? integers(positions_, {s_.batch})
                                                        : integers(positions_, {1, s_.total});
        Cache cache = one.cache();
        cache.page_table = columns_ > 0 ? integers(table_, {s_.batch, columns_}) : TensorView();
        set_num_threads(form_.threads);
        const ScratchMemory scratch(append_scratch_bytes(cache, all));
        const Workspace given{executor, scratch.get(), scratch.bytes()};
        CHECK(std::string(append(cache, all, executor ? given : Workspace()).message()).empty());
        set_num_threads(0);
        for (int64_t b = 0; b < s_.batch; b++) {
            append_one(many, b);
        }
        return one.same(many) && !one.same(memory());
    }

private:
    Written memory() const {
        return form_.page_size > 0 ? Written(form_.dtype, pages(), form_.page_size) : Written(form_.dtype, s_.batch, form_.capacity);
    }
    NewKeys keys(const polyhead_tensor &key, const polyhead_tensor &value) const {
        NewKeys made;
        static_cast<polyhead_tensor &>(made.key) = key;
        static_cast<polyhead_tensor &>(made.value) = value;
        made.window_left = form_.window_left;
        if (form_.rotation > 0) {
            made.rotation.cos = view(cos_.data(), {table_rows, width / 4});
            made.rotation.sin = view(sin_.data(), {table_rows, width / 4});
            made.rotation.interleaved = (form_.rotation - 1) % 2 != 0;
            made.rotation.trailing = (form_.rotation - 1) / 2 != 0;
        }
        if (form_.norms) {
            made.key_norm = POLYHEAD_LAYER_NORM;
            made.key_norm_weight = made.key_norm_bias = view(weight_.data(), {width});
            made.norm_epsilon = 1e-6f;
            made.value_norm = true;
        }
        return made;
    }
    // Sequence b alone.
    void append_one(const Written &written, int64_t b) const {
        const auto part = [&](polyhead_tensor t) {
            t.offset = s_.begins[size_t(b)] * t.stride[2];
            t.shape[2] = s_.counts[size_t(b)];
            return t;
        };
        NewKeys one = keys(part(key_.view), part(value_.view));
        one.lengths = view(&s_.lengths[size_t(b)], {1});
        one.rotation.positions = form_.positions == 0   ? TensorView()
                                 : form_.positions == 1 ? view(&positions_[size_t(b)], {1})
                                                        : view(positions_.data() + s_.begins[size_t(b)], {1, s_.counts[size_t(b)]});
        Cache cache = written.cache();
        if (columns_ > 0) {
            cache.page_table = view(table_.data() + b * columns_, {1, columns_});
        } else {
            for (polyhead_tensor *t : std::vector<polyhead_tensor *>{&cache.key, &cache.value, &cache.key_scales, &cache.value_scales}) {
                t->offset = t->rank == 0 ? 0 : b * t->stride[0];
                t->shape[0] = t->rank == 0 ? 0 : 1;
            }
        }
        CHECK(std::string(append(cache, one).message()).empty());
    }

    const Form form_;
    const Sequences s_;
    Random random_;
    Tensor key_, value_;
    std::vector<float> cos_, sin_, weight_;
    std::vector<int32_t> positions_, table_;
    int64_t columns_ = 0;
};

} // namespace packed_append

using packed_append::Comparison;
using packed_append::Form;
using packed_append::Sequences;

TEST_CASE("packed append: the bits of one call for each sequence, in every storage type", "[runtime]") {
    const Sequences sequences({3, 0, 1, 7, 0, 1}, {5, 4, 0, 17, 24, 23});
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i8}) {
        for (const DType new_dtype : {DType::f32, dtype == DType::i8 ? DType::bf16 : dtype}) {
            for (const int64_t page_size : {0, 1, 4}) {
                for (const bool norms : {false, true}) {
                    Form form;
                    form.dtype = dtype;
                    form.new_dtype = new_dtype;
                    form.page_size = page_size;
                    form.norms = norms;
                    form.layout = page_size == 4 ? Layout::bshd_padded : Layout::bhsd;
                    form.rotation = norms ? 2 : 0;
                    CAPTURE(int(dtype), int(new_dtype), page_size, norms);
                    CHECK(Comparison(form, sequences, 1).same_bits());
                }
            }
        }
    }
}

TEST_CASE("packed append: every rotation, and every kind of positions", "[runtime]") {
    const Sequences sequences({2, 5, 0, 1}, {3, 0, 9, 21});
    for (const DType dtype : {DType::f32, DType::i8}) {
        for (int rotation = 1; rotation <= 4; rotation++) {
            for (int positions = 0; positions < 3; positions++) {
                Form form;
                form.dtype = dtype;
                form.rotation = rotation;
                form.positions = positions;
                form.page_size = positions == 1 ? 8 : 0;
                CAPTURE(int(dtype), rotation, positions);
                CHECK(Comparison(form, sequences, 2).same_bits());
            }
        }
    }
}

TEST_CASE("packed append: rings of a window", "[runtime]") {
    const Sequences sequences({3, 9, 1, 0}, {40, 31, 0, 17});
    Form form;
    form.page_size = 4;
    form.capacity = 48;
    form.window_left = 6;
    CHECK(Comparison(form, sequences, 3).same_bits()); // 5 pages of 4: 6 + 9 + 4 - 1 is less
}

TEST_CASE("packed append: sequences that several threads share", "[runtime]") {
    const Sequences sequences({300, 0, 1, 130, 16, 2}, {0, 7, 15, 60, 1, 0});
    for (const int threads : {1, 2, 4}) {
        for (const DType dtype : {DType::f32, DType::bf16}) {
            Form form;
            form.dtype = dtype;
            form.page_size = 16;
            form.capacity = 320;
            form.threads = threads;
            CAPTURE(threads, int(dtype));
            CHECK(Comparison(form, sequences, 4).same_bits());
            const TestExecutor executor(threads, on_threads);
            CHECK(Comparison(form, sequences, 4).same_bits(executor.raw()));
        }
    }
}

TEST_CASE("packed append: random sequences", "[runtime]") {
    for (uint64_t seed = 0; seed < 200; seed++) {
        Random random(seed);
        std::vector<int32_t> counts, lengths;
        for (int64_t b = random.between(1, 9); b > 0; b--) {
            counts.push_back(int32_t(random.chance(30) ? 0 : random.between(1, 20)));
            lengths.push_back(int32_t(random.below(40 - counts.back() + 1)));
        }
        counts.back() = std::max(counts.back(), 1);
        lengths.back() = std::min(lengths.back(), 39);
        Form form;
        form.capacity = 40;
        form.page_size = random.chance(50) ? 8 : 0;
        form.rotation = int(random.below(5));
        form.positions = form.rotation > 0 ? int(random.below(3)) : 0;
        form.norms = random.chance(30);
        form.layout = random.chance(50) ? Layout::bshd : Layout::bhsd;
        CAPTURE(seed);
        REQUIRE(Comparison(form, Sequences(counts, lengths), seed).same_bits());
    }
}

namespace packed_append {

// Three sequences of 2, 0 and 1 tokens for pages of 2 keys; the last one is behind 3 keys.
struct Call {
    static constexpr int64_t d = 4, pages = 6;
    std::vector<float> key = std::vector<float>(pages * 2 * d, untouched), value = key, new_key = std::vector<float>(3 * d, 1.0f),
                       new_value = new_key, cos = std::vector<float>(8, 1.0f), sin = std::vector<float>(8, 0.0f);
    std::vector<int32_t> begins = {0, 2, 2, 3}, lengths = {0, 4, 3}, table = {0, -1, 1, 2, 3, 4}, counts = {1, 1, 1}, at = {0, 1, 2};
    polyhead_cache cache = polyhead_cache_of({}, {}, {});
    polyhead_new_keys keys = polyhead_new_keys_of();

    Call() {
        cache.key = view(key.data(), {pages, 1, 2, d});
        cache.value = view(value.data(), {pages, 1, 2, d});
        cache.page_table = integers(table, {3, 2});
        keys.key = view(const_cast<const float *>(new_key.data()), {1, 1, 3, d});
        keys.value = view(const_cast<const float *>(new_value.data()), {1, 1, 3, d});
        keys.lengths = integers(lengths, {3});
        keys.cu_seqlens = integers(begins, {4});
    }
    void rotate(const std::vector<int64_t> &shape) {
        keys.rotation = {POLYHEAD_ROPE_HALF_SPLIT, view(const_cast<const float *>(cos.data()), {4, 2}),
                         view(const_cast<const float *>(sin.data()), {4, 2}), integers(at, shape)};
    }
    void refused(polyhead_code code, const std::string &message) {
        check_refused(polyhead_append(&cache, &keys), code, message, {&key, &value});
    }
};

} // namespace packed_append

TEST_CASE("packed append: where sequences begin", "[runtime]") {
    packed_append::Call bad;
    SECTION("as they are") {
        CHECK(std::string(polyhead_append(&bad.cache, &bad.keys).message).empty());
        CHECK(std::count(bad.key.begin(), bad.key.end(), 1.0f) == 3 * packed_append::Call::d);
    }
    SECTION("not at 0") {
        bad.begins[0] = 1;
        bad.refused(POLYHEAD_BAD_VALUE, "cu_seqlens: value 1 at index 0, expected 0");
    }
    SECTION("falling") {
        bad.begins[2] = 1;
        bad.refused(POLYHEAD_BAD_VALUE, "cu_seqlens: value 1 at index 2, expected at least 2, the value before it");
    }
    SECTION("not to the last token") {
        bad.begins[3] = 2;
        bad.refused(POLYHEAD_BAD_VALUE, "cu_seqlens: value 2 at index 3, the last, expected 3, the extent of dimension 2 of key");
    }
    SECTION("of another number of sequences") {
        bad.keys.cu_seqlens.shape[0] = 3;
        bad.refused(POLYHEAD_WRONG_SHAPE, "cu_seqlens: extent 3 of dimension 0, expected 4");
    }
    SECTION("a batch of new keys") {
        bad.keys.key.shape[0] = 3;
        bad.keys.key.shape[2] = 1;
        bad.refused(POLYHEAD_WRONG_SHAPE, "key: extent 3 of dimension 0, expected 1 as in calls with packed tokens");
    }
    SECTION("values of another number of tokens") {
        bad.keys.value.shape[2] = 2;
        bad.refused(POLYHEAD_WRONG_SHAPE, "value: extent 2 of dimension 2, expected 3 as in key");
    }
    SECTION("with counts") {
        bad.keys.counts = packed_append::integers(bad.counts, {3});
        bad.refused(POLYHEAD_WRONG_OPERATION, "counts: given, expected none, because cu_seqlens says how many tokens are appended");
    }
    SECTION("in the memory of the cache") {
        bad.keys.cu_seqlens.data = bad.key.data();
        bad.refused(POLYHEAD_ALIASED, "cache key: shares memory with cu_seqlens, expected memory of its own");
    }
    SECTION("without new keys they may be anything") {
        bad.begins = {7, -1, 0, 9};
        bad.keys.key.shape[2] = bad.keys.value.shape[2] = 0;
        CHECK(polyhead_append(&bad.cache, &bad.keys).code == POLYHEAD_OK);
    }
}

TEST_CASE("packed append: lengths, pages and positions that do not fit", "[runtime]") {
    packed_append::Call bad;
    SECTION("more keys than the capacity") {
        bad.lengths[2] = 4;
        bad.refused(POLYHEAD_BAD_VALUE, "lengths: value 4 at index 2 of dimension 0, expected 0 to 3 (capacity 4, 1 new keys)");
    }
    SECTION("a page that is none") {
        bad.table[0] = 6;
        bad.refused(POLYHEAD_BAD_VALUE, "page_table: value 6 at index 0, 0, expected 0 to 5 (pages of the cache)");
    }
    SECTION("two sequences write to one page") {
        bad.table[5] = 0;
        bad.refused(POLYHEAD_ALIASED, "page_table: page 0 at index 2, 1 is written, and used a second time: copy it first");
    }
    SECTION("a sequence without tokens reads what another one writes") {
        bad.table[3] = 4;
        bad.refused(POLYHEAD_ALIASED, "page_table: page 4 at index 1, 1 is written, and used a second time: copy it first");
    }
    SECTION("positions of first tokens") {
        bad.rotate({3});
        bad.at[0] = 3;
        bad.refused(POLYHEAD_BAD_VALUE, "positions: token 1 of batch row 0 is at position 4, expected 0 to 3 (rows of rope_cos)");
    }
    SECTION("positions of each token") {
        bad.rotate({1, 3});
        bad.at[2] = -1;
        bad.refused(POLYHEAD_BAD_VALUE, "positions: token 0 of batch row 2 is at position -1, expected 0 to 3 (rows of rope_cos)");
    }
    SECTION("positions of fewer sequences, and of tokens of a batch") {
        bad.rotate({2});
        bad.refused(POLYHEAD_WRONG_SHAPE, "positions: extent 2 of dimension 0, expected 3 as in lengths");
        bad.rotate({3, 1});
        bad.refused(POLYHEAD_WRONG_SHAPE, "positions: extent 3 of dimension 0, expected 1 as in key");
        bad.rotate({1, 2});
        bad.refused(POLYHEAD_WRONG_SHAPE, "positions: extent 2 of dimension 1, expected 3 as in key");
    }
    SECTION("a cache of int8 takes no infinity") {
        std::vector<int8_t> whole(packed_append::Call::pages * 2 * packed_append::Call::d);
        std::vector<float> scales(packed_append::Call::pages * 2);
        bad.cache.key = bad.cache.value = view(whole.data(), {packed_append::Call::pages, 1, 2, packed_append::Call::d});
        bad.cache.value = polyhead_tensor{};
        bad.keys.value = polyhead_tensor{};
        bad.cache.key_scales = view(scales.data(), {packed_append::Call::pages, 1, 2, 1});
        bad.new_key[2 * packed_append::Call::d] = std::numeric_limits<float>::infinity();
        bad.refused(POLYHEAD_BAD_VALUE, "key: value inf of token 0, head 0, batch row 2, expected finite numbers for a cache of int8");
    }
}

} // namespace polyhead::test

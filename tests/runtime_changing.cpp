// Integers in the caller's memory that another writer changes during a call, before each read of them in turn: no access leaves the
// tensors, which lie against unmapped pages.
#include <limits>
#include <string>
#include <vector>

#include <polyhead/cache.h>

#include "instruments/calls/layouts.h"
#include "instruments/calls/not_run.h"
#include "runtime_calls.h"
#include "support/changing_memory.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// What a hostile writer, or one that is simply earlier or later, puts into lengths, counts, pages and positions.
const std::vector<int32_t> values = {16, 1 << 24, -1, std::numeric_limits<int32_t>::min()};

// A tensor of zeros beside an unmapped page, on the side where an access that goes wrong by little would go.
struct Exact {
    Exact(DType dtype, const std::vector<int64_t> &shape_, Place place = Place::at_end)
        : shape(shape_), tensor(make_tensor(dtype, shape, dense_strides(shape), place)) {
        std::memset(tensor.memory.data(), 0, tensor.memory.bytes());
    }
    MutableTensorView view() const {
        MutableTensorView view;
        static_cast<polyhead_tensor &>(view) = tensor.view;
        return view;
    }
    std::vector<int64_t> shape;
    Tensor tensor;
};

// The call, with the elements changed before each of their reads, to each of the values.
template <typename Call> void change(ChangingMemory &memory, const Call &call) {
    for (const int32_t value : values) {
        memory.change_at_each(value, call);
    }
}

// A cache of two batch rows, contiguous or in pages of 4 keys, and three new tokens each.
struct Append {
    static constexpr int64_t rows = 2, d = 64, capacity = 16, page_size = 4, pages = 9, columns = capacity / page_size, tokens = 3;

    Append(bool paged, DType dtype, Place place)
        : key(dtype, {paged ? pages : rows, 2, paged ? page_size : capacity, d}, place), value(dtype, key.shape, place),
          key_scales(DType::f32, {paged ? pages : rows, 2, paged ? page_size : capacity, 2}, place),
          value_scales(DType::f32, key_scales.shape, place), new_key(DType::f32, {rows, 2, tokens, d}, place),
          new_value(DType::f32, {rows, 2, tokens, d}, place), cos(DType::f32, {16, 8}, place), sin(DType::f32, {16, 8}, place) {
        cache.key = key.view();
        cache.value = value.view();
        if (dtype == DType::i8) {
            cache.key_scales = key_scales.view();
            cache.value_scales = value_scales.view();
        }
        if (paged) {
            cache.page_table = integers(table, {rows, columns});
        }
        keys.key = new_key.view();
        keys.value = new_value.view();
        keys.lengths = integers(lengths, {rows});
        keys.counts = integers(counts, {rows});
    }
    static TensorView integers(const ChangingMemory &memory, std::initializer_list<int64_t> shape) {
        return view(const_cast<const int32_t *>(memory.data()), shape);
    }
    void rotate(const ChangingMemory *positions, std::initializer_list<int64_t> shape) {
        keys.rotation.cos = cos.view();
        keys.rotation.sin = sin.view();
        if (positions) {
            keys.rotation.positions = integers(*positions, shape);
        }
    }

    Exact key, value, key_scales, value_scales, new_key, new_value, cos, sin;
    ChangingMemory table{{8, 0, 7, 1, 6, 2, 5, 3}}, lengths{{5, 13}}, counts{{2, 3}};
    Cache cache;
    NewKeys keys;
};

} // namespace

TEST_CASE("changing integers: append", "[runtime]") {
    if (!ChangingMemory::supported()) {
        return note_not_run("changing integers", "reads are stopped one by one on x86-64 Linux alone");
    }
    set_num_threads(1);
    for (const bool paged : {false, true}) {
        for (const DType dtype : {DType::f32, DType::i8}) {
            Append call(paged, dtype, paged == (dtype == DType::i8) ? Place::at_end : Place::at_begin);
            const auto run = [&] { append(call.cache, call.keys); };
            CHECK(append(call.cache, call.keys).ok());
            change(call.lengths, run);
            change(call.counts, run);
            if (paged) {
                change(call.table, run);
            }
            call.rotate(nullptr, {});
            CHECK(append(call.cache, call.keys).ok());
            change(call.lengths, run);
            ChangingMemory first({3, 12}), each({0, 1, 2, 3, 4, 15});
            call.rotate(&first, {Append::rows});
            CHECK(append(call.cache, call.keys).ok());
            change(first, run);
            call.rotate(&each, {Append::rows, Append::tokens});
            CHECK(append(call.cache, call.keys).ok());
            change(each, run);
        }
    }
    set_num_threads(0);
}

TEST_CASE("changing integers: packed tokens that are appended", "[runtime]") {
    if (!ChangingMemory::supported()) {
        return note_not_run("changing integers", "reads are stopped one by one on x86-64 Linux alone");
    }
    set_num_threads(1);
    for (const bool paged : {false, true}) {
        for (const DType dtype : {DType::f32, DType::i8}) {
            const Place place = paged == (dtype == DType::i8) ? Place::at_end : Place::at_begin;
            Append call(paged, dtype, place);
            ChangingMemory begins({0, 3, 5}), first({3, 12}), each({0, 1, 2, 15, 4});
            const Exact new_key(DType::f32, {1, 2, 5, Append::d}, place), new_value(DType::f32, {1, 2, 5, Append::d}, place);
            call.keys.key = new_key.view();
            call.keys.value = new_value.view();
            call.keys.counts = TensorView();
            call.keys.cu_seqlens = Append::integers(begins, {Append::rows + 1});
            const auto run = [&] { append(call.cache, call.keys); };
            const auto change_all = [&] {
                CHECK(append(call.cache, call.keys).ok());
                change(begins, run);
                change(call.lengths, run);
                if (paged) {
                    change(call.table, run);
                }
            };
            change_all();
            call.rotate(nullptr, {});
            change_all();
            call.rotate(&first, {Append::rows});
            change_all();
            change(first, run);
            call.rotate(&each, {1, 5});
            change_all();
            change(each, run);
            ChangingMemory directions({0, 1, 2, 15, 4, 15, 3, 2, 1, 0});
            call.keys.rotation.sections = Sections(POLYHEAD_SECTIONS_CONTIGUOUS, 5, 3);
            call.rotate(&directions, {1, 2, 5});
            change_all();
            change(directions, run);
        }
    }
    set_num_threads(0);
}

TEST_CASE("changing integers: an append that has nothing to write at first", "[runtime]") {
    if (!ChangingMemory::supported()) {
        return note_not_run("changing integers", "reads are stopped one by one on x86-64 Linux alone");
    }
    ChangingMemory counts({0}), lengths({0}), table({0});
    Exact no_keys(DType::f32, {1, 1, 0, 4}), page(DType::f32, {0, 1, 4, 4}), new_key(DType::f32, {1, 1, 2, 4}), no_rows(DType::f32, {0, 2});
    Cache cache;
    NewKeys keys;
    keys.key = new_key.view();
    keys.lengths = Append::integers(lengths, {1});
    keys.counts = Append::integers(counts, {1});
    const auto run = [&] { append(cache, keys); };
    cache.key = no_keys.view();
    CHECK(append(cache, keys).ok());
    change(counts, run);
    change(lengths, run);
    cache.key = page.view(); // no pages
    cache.page_table = Append::integers(table, {1, 1});
    CHECK(append(cache, keys).ok());
    change(counts, run);
    change(lengths, run);
    change(table, run);
    keys.rotation.cos = keys.rotation.sin = no_rows.view(); // no positions
    CHECK(append(cache, keys).ok());
    change(counts, run);
    Exact pages(DType::f32, {2, 1, 4, 4});
    cache.key = pages.view();
    CHECK(append(cache, keys).ok());
    change(counts, run);
    cache.page_table = Append::integers(table, {1, 0}); // no columns
    CHECK(append(cache, keys).ok());
    change(counts, run);
}

TEST_CASE("changing integers: rotate", "[runtime]") {
    if (!ChangingMemory::supported()) {
        return note_not_run("changing integers", "reads are stopped one by one on x86-64 Linux alone");
    }
    Exact input(DType::f32, {2, 1, 3, 8}), out(DType::f32, {2, 1, 3, 8}), cos(DType::f32, {6, 4}), sin(DType::f32, {6, 4}, Place::at_begin);
    Rotation rotation;
    rotation.cos = cos.view();
    rotation.sin = sin.view();
    const auto run = [&] { rotate(input.view(), rotation, out.view()); };
    ChangingMemory first({0, 3}), each({0, 1, 2, 3, 4, 5});
    rotation.positions = Append::integers(first, {2});
    CHECK(rotate(input.view(), rotation, out.view()).ok());
    change(first, run);
    rotation.positions = Append::integers(each, {2, 3});
    CHECK(rotate(input.view(), rotation, out.view()).ok());
    change(each, run);
}

namespace {

// The stand-in for a kernel checks that no buffer is larger than its tensor. (What kernels do with the integers: changing_table.cpp.)
template <typename Call> void shows_no_more(Call *call, int64_t keys, int64_t columns) {
    call->fake.on_call = [=](FakeKernel &f) {
        if (columns > 0) {
            CHECK(f.buffer(4).extents[0] <= columns);
            CHECK(f.buffer(4).extents[0] >= 1);
        } else {
            CHECK(f.buffer(1).extents[1] <= keys);
            CHECK(f.buffer(1).extents[1] >= 1);
        }
    };
}

} // namespace

TEST_CASE("changing integers: lengths, offsets and positions", "[runtime]") {
    if (!ChangingMemory::supported()) {
        return note_not_run("changing integers", "reads are stopped one by one on x86-64 Linux alone");
    }
    set_num_threads(1);
    SdpaCall call;
    const bool sections = GENERATE(false, true);
    ChangingMemory lengths({5, 2}), offsets({0, 3}), positions_q(std::vector<int32_t>(B * T_q * 2, 1)),
        positions_kv(std::vector<int32_t>(B * T_kv * 2, 2));
    Exact cos(DType::f32, {16, d / 2}), sin(DType::f32, {16, d / 2});
    call.fake.table.problem.position_offsets = 1;
    call.fake.table.problem.rope = POLYHEAD_ROPE_HALF_SPLIT;
    call.args.kv_lengths = Append::integers(lengths, {B});
    call.args.position_offsets = Append::integers(offsets, {B});
    call.args.positions_q = Append::integers(positions_q, {B, T_q});
    call.args.positions_kv = Append::integers(positions_kv, {B, T_kv});
    call.args.rope_cos = cos.view();
    call.args.rope_sin = sin.view();
    if (sections) {
        call.fake.table.problem.rope_sections = POLYHEAD_SECTIONS_CONTIGUOUS;
        call.fake.table.problem.section_1 = 1;
        call.fake.table.problem.section_2 = d / 2 - 1;
        call.args.positions_q = Append::integers(positions_q, {B, 2, T_q});
        call.args.positions_kv = Append::integers(positions_kv, {B, 2, T_kv});
    }
    shows_no_more(&call, T_kv, 0);
    CHECK(std::string(call.fake.run(call.args).message).empty());
    for (ChangingMemory *memory : {&lengths, &offsets, &positions_q, &positions_kv}) {
        change(*memory, [&] { call.fake.run(call.args); });
    }
    set_num_threads(0);
}

TEST_CASE("changing integers: pages and their scales", "[runtime]") {
    if (!ChangingMemory::supported()) {
        return note_not_run("changing integers", "reads are stopped one by one on x86-64 Linux alone");
    }
    set_num_threads(1);
    constexpr int64_t pages = 5, page_size = 4, columns = 3;
    SdpaCall call;
    ChangingMemory lengths({6, 12}), table({4, 1, 0, 3, 2, 0});
    Exact keys(DType::i8, {pages, H_kv, page_size, d}), values_(DType::i8, {pages, H_kv, page_size, d_v}),
        key_scales(DType::f32, {pages, H_kv, page_size, 1}), value_scales(DType::f32, {pages, H_kv, page_size, 1}, Place::at_begin);
    call.fake.table.problem.page_size = page_size;
    call.fake.table.problem.int8_cache = 1;
    call.args.kv_lengths = Append::integers(lengths, {B});
    call.args.page_table = Append::integers(table, {B, columns});
    call.args.key = keys.view();
    call.args.value = values_.view();
    call.args.key_scales = key_scales.view();
    call.args.value_scales = value_scales.view();
    shows_no_more(&call, 0, columns);
    CHECK(std::string(call.fake.run(call.args).message).empty());
    for (ChangingMemory *memory : {&lengths, &table}) {
        change(*memory, [&] { call.fake.run(call.args); });
    }
    set_num_threads(0);
}

TEST_CASE("changing integers: scales of a cache in one piece", "[runtime]") {
    if (!ChangingMemory::supported()) {
        return note_not_run("changing integers", "reads are stopped one by one on x86-64 Linux alone");
    }
    set_num_threads(1);
    SdpaCall call;
    ChangingMemory lengths({5, 2});
    Exact keys(DType::i8, {B, H_kv, T_kv, d}), values_(DType::i8, {B, H_kv, T_kv, d_v}), scales(DType::f32, {B, H_kv, T_kv, 1});
    call.fake.table.problem.int8_cache = 1;
    call.args.kv_lengths = Append::integers(lengths, {B});
    call.args.key = keys.view();
    call.args.value = values_.view();
    call.args.key_scales = call.args.value_scales = scales.view();
    CHECK(std::string(call.fake.run(call.args).message).empty());
    change(lengths, [&] { call.fake.run(call.args); });
    set_num_threads(0);
}

TEST_CASE("changing integers: packed tokens", "[runtime]") {
    if (!ChangingMemory::supported()) {
        return note_not_run("changing integers", "reads are stopped one by one on x86-64 Linux alone");
    }
    set_num_threads(1);
    constexpr int64_t total = 6;
    FakeKernel fake(sdpa(H, H_kv, d, d_v));
    ChangingMemory begins_q({0, 1, 4, 6}), begins_kv({0, 3, 3, 6});
    Exact query(DType::f32, {1, H, total, d}), key(DType::f32, {1, H_kv, total, d}), value(DType::f32, {1, H_kv, total, d_v}),
        out(DType::f32, {1, H, total, d_v});
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    args.query = query.view();
    args.key = key.view();
    args.value = value.view();
    args.out = out.view();
    args.cu_seqlens_q = Append::integers(begins_q, {4});
    args.cu_seqlens_kv = Append::integers(begins_kv, {4});
    fake.on_call = [&](FakeKernel &f) {
        const SeenBuffer q = f.buffer(0), k = f.buffer(1);
        const auto first_q = static_cast<float *>(q.host) - static_cast<float *>(query.tensor.view.data),
                   first_kv = static_cast<float *>(k.host) - static_cast<float *>(key.tensor.view.data);
        CHECK((first_q >= 0 && first_q + int64_t(q.extents[3] - 1) * q.strides[3] + q.extents[1] * d <= total * d));
        CHECK((first_kv >= 0 && first_kv + int64_t(k.extents[3] - 1) * k.strides[3] + k.extents[1] * d <= total * d));
    };
    CHECK(std::string(fake.run(args).message).empty());
    for (ChangingMemory *memory : {&begins_q, &begins_kv}) {
        change(*memory, [&] { fake.run(args); });
    }
    set_num_threads(0);
}

TEST_CASE("changing integers: a layer with a cache", "[runtime]") {
    if (!ChangingMemory::supported()) {
        return note_not_run("changing integers", "reads are stopped one by one on x86-64 Linux alone");
    }
    set_num_threads(1);
    constexpr int64_t page_size = 4, pages = 6, columns = 3, heads = 2, width = 4;
    Problem p = mha(8, 2);
    p.cache = 1;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    const bool paged = GENERATE(false, true);
    p.page_size = paged ? page_size : 0;
    MhaCall call(p);
    ChangingMemory lengths({4, 7}), table({5, 1, 3, 0, 4, 2});
    const int64_t blocks = paged ? pages : B, rows = paged ? page_size : 10;
    Exact keys(DType::f32, {blocks, heads, rows, width}), values_(DType::f32, {blocks, heads, rows, width});
    call.args.cache_lengths = Append::integers(lengths, {B});
    call.args.key_cache = keys.view();
    call.args.value_cache = values_.view();
    if (paged) {
        call.args.page_table = Append::integers(table, {B, columns});
    }
    CHECK(std::string(call.fake.run(call.args).message).empty());
    change(lengths, [&] { call.fake.run(call.args); });
    if (paged) {
        change(table, [&] { call.fake.run(call.args); });
    }
    set_num_threads(0);
}

// Calls with keys in pages: the rules of the page table, and what the kernel is shown of it.
#include <limits>
#include <string>
#include <vector>

#include "runtime_calls.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int64_t page_size = 4, pages = 5, columns = 3;

// Two batch rows of at most 12 keys: 6 keys in pages 4 and 1, and one key in page 4, which both share.
struct PagedCall : SdpaCall {
    std::vector<float> key_pages = std::vector<float>(pages * H_kv * page_size * d),
                       value_pages = std::vector<float>(pages * H_kv * page_size * d_v);
    std::vector<int32_t> table = {4, 1, -7, 4, 99, std::numeric_limits<int32_t>::min()};

    PagedCall() {
        fake.table.problem.page_size = page_size;
        lengths = {6, 1};
        args.key = view(key_pages.data(), {pages, H_kv, page_size, d});
        args.value = view(value_pages.data(), {pages, H_kv, page_size, d_v});
        args.page_table = view(table.data(), {B, columns});
    }
    void accepted() {
        const polyhead_status status = fake.run(args);
        INFO(status.message);
        CHECK(status.code == POLYHEAD_OK);
        CHECK(fake.calls == 1);
    }
};

} // namespace

TEST_CASE("pages: a kernel gets all pages, and of the table the columns of the longest row", "[runtime]") {
    PagedCall call;
    int64_t shown = 2;
    call.fake.on_call = [&](FakeKernel &f) {
        CHECK(f.buffer(1).host == call.key_pages.data());
        CHECK(f.buffer(1).extents[1] == page_size);
        CHECK(f.buffer(1).extents[3] == pages);
        CHECK(f.buffer(2).extents[3] == pages);
        CHECK(f.buffer(4).host == call.table.data());
        CHECK(f.buffer(4).extents[0] == shown);
        CHECK(f.buffer(4).strides[0] == 1);
        CHECK(f.buffer(4).extents[1] == B);
        CHECK(f.buffer(4).strides[1] == columns);
    };
    SECTION("two pages") {
        call.accepted();
    }
    SECTION("one page, where no row has more keys") {
        call.lengths = {4, 0};
        shown = 1;
        call.accepted();
    }
    SECTION("one page, where no row has any") {
        call.lengths = {0, 0};
        shown = 1;
        call.accepted();
    }
    SECTION("all of them without lengths") {
        call.args.kv_lengths = polyhead_tensor{};
        call.table = {4, 1, 0, 3, 3, 2};
        shown = columns;
        call.accepted();
    }
    SECTION("pages of which the heads lie side by side, as in a tensor [pages,page_size,H_kv,d]") {
        call.args.key = from_bshd(view(call.key_pages.data(), {pages, page_size, H_kv, d}));
        call.args.value = from_bshd(view(call.value_pages.data(), {pages, page_size, H_kv, d_v}));
        call.accepted();
    }
}

TEST_CASE("pages: rules of the page table", "[runtime]") {
    PagedCall call;
    SECTION("it must be given") {
        call.args.page_table = polyhead_tensor{};
        call.refused(POLYHEAD_NULL_POINTER, "page_table: missing, expected a tensor of rank 2");
    }
    SECTION("a kernel without pages takes none") {
        call.fake.table.problem.page_size = 0;
        call.refused(POLYHEAD_WRONG_OPERATION, "page_table: given, expected none, because the kernel was built without pages");
    }
    SECTION("a row for each batch row") {
        call.args.page_table.shape[0] = 1;
        call.refused(POLYHEAD_WRONG_SHAPE, "page_table: extent 1 of dimension 0, expected 2 as in query");
    }
    SECTION("int32") {
        call.args.page_table.dtype = POLYHEAD_F32;
        call.refused(POLYHEAD_WRONG_DTYPE, "page_table: dtype f32, expected i32");
    }
    SECTION("two dimensions") {
        call.args.page_table.rank = 1;
        call.refused(POLYHEAD_WRONG_SHAPE, "page_table: rank 1, expected 2");
    }
    SECTION("pages of the size that was built in") {
        call.args.key.shape[2] = 2;
        call.refused(POLYHEAD_WRONG_SHAPE, "key: extent 2 of dimension 2, expected 4");
    }
    SECTION("as many pages of values as of keys") {
        call.args.value.shape[0] = 4;
        call.refused(POLYHEAD_WRONG_SHAPE, "value: extent 4 of dimension 0, expected 5 as in key");
    }
}

TEST_CASE("pages: what a page table may hold", "[runtime]") {
    PagedCall call;
    SECTION("a page behind the last one") {
        call.table[1] = pages;
        call.refused(POLYHEAD_BAD_VALUE, "page_table: value 5 at index 0, 1, expected 0 to 4 (pages of key)");
    }
    SECTION("a page before the first one") {
        call.table[3] = -1;
        call.refused(POLYHEAD_BAD_VALUE, "page_table: value -1 at index 1, 0, expected 0 to 4 (pages of key)");
    }
    SECTION("more keys than the table has room for") {
        call.lengths[1] = 13;
        call.refused(POLYHEAD_BAD_VALUE, "kv_lengths: value 13 at index 1 of dimension 0, expected 0 to 12 (seq_len_kv)");
    }
    SECTION("no pages at all") {
        call.args.key.shape[0] = call.args.value.shape[0] = 0;
        call.lengths = {0, 0};
        call.refused(POLYHEAD_WRONG_SHAPE, "key: extent 0 of dimension 0, expected at least 1 page, because page_table has pages");
    }
    SECTION("out may not lie in the table") {
        std::vector<float> memory(B * H * T_q * d_v);
        call.args.out = view(memory.data(), {B, H, T_q, d_v});
        call.args.page_table.data = memory.data(); // zeros: page 0
        call.refused(POLYHEAD_ALIASED, "out: shares memory with page_table, expected memory of its own");
    }
    SECTION("a table of no columns: there are no keys") {
        call.args.page_table.shape[1] = 0;
        call.lengths = {0, 0};
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        CHECK(call.fake.calls == 0);
        CHECK(call.out == std::vector<float>(call.out.size(), 0.0f));
    }
    SECTION("B = 0: nothing is looked at") {
        call.args.query.shape[0] = call.args.out.shape[0] = call.args.lse.shape[0] = call.args.kv_lengths.shape[0] = 0;
        call.args.page_table.shape[0] = 0;
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        CHECK(call.fake.calls == 0);
    }
}

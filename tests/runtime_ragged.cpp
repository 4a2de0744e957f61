// Calls with packed tokens: their rules, and the calls of which they consist.
#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "failing_system.h"
#include "runtime_calls.h"
#include "runtime_fake_device.h"
#include "runtime_loops.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int64_t total_q = 9, total_kv = 14, sequences = 4;

// What a kernel was called with: batch, first query, queries, first key, keys.
struct SeenCall {
    int64_t batch, first_q, queries, first_kv, keys;
    bool operator==(const SeenCall &o) const {
        return batch == o.batch && first_q == o.first_q && queries == o.queries && first_kv == o.first_kv && keys == o.keys;
    }
};

std::ostream &operator<<(std::ostream &stream, const SeenCall &c) {
    return stream << "{batch " << c.batch << ", " << c.queries << " queries from " << c.first_q << ", " << c.keys << " keys from "
                  << c.first_kv << "}";
}

// Four sequences of 4, 0, 2 and 3 queries, and of 5, 1, 2 and 6 keys.
struct PackedCall {
    std::vector<int32_t> begins_q = {0, 4, 4, 6, 9}, begins_kv = {0, 5, 6, 8, 14};
    std::vector<float> query = std::vector<float>(total_q * H * d), key = std::vector<float>(total_kv * H_kv * d),
                       value = std::vector<float>(total_kv * H_kv * d_v), out = std::vector<float>(total_q * H * d_v, untouched),
                       lse = std::vector<float>(H * total_q, untouched);
    FakeKernel fake{problem()};
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    std::vector<SeenCall> seen;

    static Problem problem() {
        Problem p = sdpa(H, H_kv, d, d_v);
        p.lse = 1;
        return p;
    }
    PackedCall() {
        set_num_threads(1); // the stand-in counts without a lock
        args.query = from_packed(view(query.data(), {total_q, H, d}));
        args.key = from_packed(view(key.data(), {total_kv, H_kv, d}));
        args.value = from_packed(view(value.data(), {total_kv, H_kv, d_v}));
        args.out = from_packed(view(out.data(), {total_q, H, d_v}));
        args.lse = view(lse.data(), {1, H, total_q});
        args.cu_seqlens_q = view(begins_q.data(), {sequences + 1});
        args.cu_seqlens_kv = view(begins_kv.data(), {sequences + 1});
        fake.on_call = [this](FakeKernel &f) {
            const SeenBuffer q = f.buffer(0), k = f.buffer(1);
            seen.push_back({q.extents[3], (static_cast<float *>(q.host) - query.data()) / (H * d), q.extents[1],
                            (static_cast<float *>(k.host) - key.data()) / (H_kv * d), k.extents[1]});
        };
    }
    PackedCall(const PackedCall &) = delete;
    PackedCall &operator=(const PackedCall &) = delete;
    ~PackedCall() { set_num_threads(0); }

    void runs(const std::vector<SeenCall> &expected) {
        const polyhead_status status = fake.run(args);
        INFO(status.message);
        CHECK(status.code == POLYHEAD_OK);
        CHECK(seen == expected);
    }
    void refused(polyhead_code code, const std::string &message) { check_refused(fake, args, code, message, {&out, &lse}); }
};

// A stand-in that many threads may call: each row of out becomes its number of queries, computed in parallel loops with scratch.
int count_queries(void *, void **argv) {
    void *const user_context = *static_cast<void **>(argv[0]);
    const auto &out = *static_cast<const runtime::KernelBuffer *>(argv[5]); // behind the context, three inputs and a number
    return parallel(user_context, out.dim[1].extent, [&](int q) {
        auto *scratch = static_cast<float *>(halide_malloc(user_context, 4096));
        if (!scratch) {
            return -1;
        }
        scratch[1023] = static_cast<float>(out.dim[1].extent);
        for (int h = 0; h < out.dim[2].extent; ++h) {
            float *row = reinterpret_cast<float *>(out.host) + q * out.dim[1].stride + h * out.dim[2].stride;
            std::fill_n(row, out.dim[0].extent, scratch[1023]);
        }
        halide_free(user_context, scratch);
        return 0;
    });
}

// Many sequences, of 1 to 9 queries.
struct ManySequences {
    static constexpr int64_t count = 40;
    std::vector<int32_t> begins = {0};
    std::vector<float> memory, out;
    FakeKernel fake{sdpa(H, H_kv, d, d_v)};
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);

    ManySequences() {
        for (int i = 0; i < count; ++i) {
            begins.push_back(begins.back() + i * 5 % 9 + 1);
        }
        const int64_t total = begins.back();
        memory.resize(static_cast<size_t>(total * H * d));
        out.resize(static_cast<size_t>(total * H * d_v));
        args.query = from_packed(view(memory.data(), {total, H, d}));
        args.key = from_packed(view(memory.data(), {total, H_kv, d}));
        args.value = from_packed(view(memory.data(), {total, H_kv, d_v}));
        args.out = from_packed(view(out.data(), {total, H, d_v}));
        args.cu_seqlens_q = args.cu_seqlens_kv = view(begins.data(), {count + 1});
        fake.variant.entry = [](void **argv) { return count_queries(nullptr, argv); };
        fake.variant.scratch.per_thread = 8 << 10;
    }
    ManySequences(const ManySequences &) = delete;
    ManySequences &operator=(const ManySequences &) = delete;
    ~ManySequences() { set_num_threads(0); }

    polyhead_status run() {
        out.assign(out.size(), untouched);
        return fake.run(args);
    }
    bool right() const {
        for (size_t b = 0; b < count; ++b) {
            const auto queries = static_cast<float>(begins[b + 1] - begins[b]);
            for (int64_t i = begins[b] * H * d_v; i < begins[b + 1] * H * d_v; ++i) {
                if (out[static_cast<size_t>(i)] != queries) {
                    return false;
                }
            }
        }
        return true;
    }
};

} // namespace

TEST_CASE("packed tokens: parts run on all threads, and help each other", "[runtime]") {
    ManySequences call;
    for (const int threads : {1, 2, 3, 16, 64}) {
        set_num_threads(threads);
        for (int i = 0; i < 20; ++i) {
            CHECK(call.run().code == POLYHEAD_OK);
            CHECK(call.right());
        }
    }
    std::vector<std::thread> callers;
    std::atomic<int> wrong{0};
    set_num_threads(4);
    for (int i = 0; i < 4; ++i) {
        callers.emplace_back([&] {
            ManySequences own;
            for (int j = 0; j < 20; ++j) {
                wrong += own.run().code != POLYHEAD_OK || !own.right();
            }
        });
    }
    for (std::thread &caller : callers) {
        caller.join();
    }
    CHECK(wrong == 0);
}

TEST_CASE("packed tokens: every allocation of a call fails once", "[runtime]") {
    ManySequences call;
    int refused = 0;
    const auto run = [&] { return call.run(); };
    refuse_each_allocation(3, 100, run, [&](const polyhead_status &status) {
        if (status.code == POLYHEAD_OK) {
            CHECK(call.right());
        } else {
            ++refused;
            CHECK(status.code == POLYHEAD_OUT_OF_MEMORY);
            CHECK(call.out == std::vector<float>(call.out.size(), untouched));
        }
    });
    CHECK(refused == 2); // the list of parts, and what all workers need in one piece
}

TEST_CASE("packed tokens: a part that fails", "[runtime]") {
    ManySequences call;
    call.fake.variant.entry = [](void **argv) {
        return static_cast<const runtime::KernelBuffer *>(argv[5])->dim[1].extent == 5 ? -7 : count_queries(nullptr, argv);
    };
    for (const int threads : {1, 3}) {
        set_num_threads(threads);
        CHECK(call.run().code == POLYHEAD_INTERNAL);
    }
}

TEST_CASE("packed tokens: a kernel gets one sequence after the other, the longest first", "[runtime]") {
    PackedCall call;
    SECTION("queries and keys; a sequence without queries is no call") {
        call.runs({{1, 0, 4, 0, 5}, {1, 6, 3, 8, 6}, {1, 4, 2, 6, 2}});
    }
    SECTION("neighbours of equal lengths are one call with a batch") {
        call.begins_q = {0, 3, 6, 9, 9};
        call.begins_kv = {0, 4, 8, 14, 14};
        call.runs({{2, 0, 3, 0, 4}, {1, 6, 3, 8, 6}});
    }
    SECTION("a sequence without keys has rows of 0, and lse of -inf") {
        call.begins_kv = {0, 0, 6, 8, 14};
        call.runs({{1, 6, 3, 8, 6}, {1, 4, 2, 6, 2}});
        for (size_t i = 0; i < call.out.size(); i++) {
            CHECK(call.out[i] == (i < size_t(4 * H * d_v) ? 0.0f : untouched));
        }
        for (int64_t h = 0; h < H; h++) {
            CHECK(call.lse[static_cast<size_t>(h * total_q + 3)] == -std::numeric_limits<float>::infinity());
            CHECK(call.lse[static_cast<size_t>(h * total_q + 4)] == untouched);
        }
    }
    SECTION("one token in all") {
        call.begins_q = {0, 0, 1, 1, 1};
        for (polyhead_tensor *tensor : {&call.args.query, &call.args.out, &call.args.lse}) {
            tensor->shape[2] = 1;
        }
        call.runs({{1, 0, 1, 5, 1}});
    }
    SECTION("no sequence, and no token") {
        call.begins_q = {0};
        call.begins_kv = {0};
        for (polyhead_tensor *tensor : {&call.args.query, &call.args.out, &call.args.lse, &call.args.key, &call.args.value}) {
            tensor->shape[2] = 0;
        }
        call.args.cu_seqlens_q.shape[0] = call.args.cu_seqlens_kv.shape[0] = 1;
        call.runs({});
    }
    SECTION("packed keys alone: queries are batch rows") {
        call.args.query = view(call.query.data(), {sequences, H, 2, d});
        call.args.out = view(call.out.data(), {sequences, H, 2, d_v});
        call.args.lse = view(call.lse.data(), {sequences, H, 2});
        call.args.cu_seqlens_q = polyhead_tensor{};
        const polyhead_status status = call.fake.run(call.args);
        INFO(status.message);
        CHECK(status.code == POLYHEAD_OK);
        CHECK(call.fake.calls == sequences);
    }
}

TEST_CASE("packed tokens: keys in batch rows with lengths", "[runtime]") {
    PackedCall call;
    std::vector<float> cache(sequences * H_kv * 8 * d);
    std::vector<int32_t> lengths = {8, 1, 2, 5};
    call.fake.table.problem.kv_lengths = 1;
    call.args.cu_seqlens_kv = polyhead_tensor{};
    call.args.key = view(cache.data(), {sequences, H_kv, 8, d});
    call.args.value = view(cache.data(), {sequences, H_kv, 8, d_v}, {H_kv * 8 * d, 8 * d, d, 1});
    call.args.kv_lengths = view(lengths.data(), {sequences});
    std::vector<int64_t> keys;
    call.fake.on_call = [&](FakeKernel &f) {
        const int64_t row = (static_cast<float *>(f.buffer(1).host) - cache.data()) / (H_kv * 8 * d);
        CHECK(f.buffer(3).host == &lengths[static_cast<size_t>(row)]);
        keys.push_back(f.buffer(1).extents[1]);
    };
    SECTION("a row is shown its own keys") {
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        CHECK(keys == std::vector<int64_t>{8, 5, 2});
    }
    SECTION("a length beyond the keys of a row") {
        lengths[3] = 9;
        call.refused(POLYHEAD_BAD_VALUE, "sequence 3: kv_lengths: value 9 at index 0 of dimension 0, expected 0 to 8 (seq_len_kv)");
    }
    SECTION("a length for each sequence") {
        call.args.kv_lengths.shape[0] = 3;
        call.refused(POLYHEAD_WRONG_SHAPE, "kv_lengths: extent 3 of dimension 0, expected 4 as in the sequences of cu_seqlens_q");
    }
    SECTION("keys for each sequence") {
        call.args.key.shape[0] = 3;
        call.refused(POLYHEAD_WRONG_SHAPE, "key: extent 3 of dimension 0, expected 4 as in the sequences of cu_seqlens_q");
    }
}

TEST_CASE("packed tokens: rules", "[runtime]") {
    PackedCall call;
    SECTION("begins at 0") {
        call.begins_q[0] = 1;
        call.refused(POLYHEAD_BAD_VALUE, "cu_seqlens_q: value 1 at index 0, expected 0");
    }
    SECTION("never falls") {
        call.begins_kv[2] = 4;
        call.refused(POLYHEAD_BAD_VALUE, "cu_seqlens_kv: value 4 at index 2, expected at least 5, the value before it");
    }
    SECTION("ends at the total") {
        call.begins_q[4] = 8;
        call.refused(POLYHEAD_BAD_VALUE, "cu_seqlens_q: value 8 at index 4, the last, expected 9, the extent of dimension 2 of query");
        call.begins_q[4] = 9;
        call.begins_kv[4] = std::numeric_limits<int32_t>::max();
        call.refused(POLYHEAD_BAD_VALUE,
                     "cu_seqlens_kv: value 2147483647 at index 4, the last, expected 14, the extent of dimension 2 of key");
    }
    SECTION("as many sequences of keys as of queries") {
        call.args.cu_seqlens_kv.shape[0] = 4;
        call.refused(POLYHEAD_WRONG_SHAPE, "cu_seqlens_kv: extent 4 of dimension 0, expected 5 as in cu_seqlens_q");
    }
    SECTION("int32") {
        call.args.cu_seqlens_q.dtype = POLYHEAD_F32;
        call.refused(POLYHEAD_WRONG_DTYPE, "cu_seqlens_q: dtype f32, expected i32");
    }
    SECTION("in host memory, also for calls on a device") {
        FakeDevice device;
        call.args.device = &device;
        call.args.cu_seqlens_q.device = &device;
        call.refused(POLYHEAD_WRONG_DEVICE, "cu_seqlens_q: lies on device " + std::string(device.name) + ", expected host memory");
    }
    SECTION("one element at least") {
        call.args.cu_seqlens_q.shape[0] = 0;
        call.refused(POLYHEAD_WRONG_SHAPE, "cu_seqlens_q: extent 0 of dimension 0, expected at least 1");
    }
}

TEST_CASE("packed tokens: rules of the other tensors, and of the kernel", "[runtime]") {
    PackedCall call;
    SECTION("packed tensors have a batch of 1") {
        call.args.query = view(call.query.data(), {3, H, 3, d});
        call.refused(POLYHEAD_WRONG_SHAPE, "query: extent 3 of dimension 0, expected 1 as in calls with packed tokens");
    }
    SECTION("an output has every token") {
        call.args.out.shape[2] = 1;
        call.refused(POLYHEAD_WRONG_SHAPE, "out: extent 1 of dimension 2, expected 9 as in query");
        call.args.out.shape[2] = total_q;
        call.args.lse.shape[2] = 8;
        call.refused(POLYHEAD_WRONG_SHAPE, "lse: extent 8 of dimension 2, expected 9 as in query");
    }
    SECTION("out may not be the keys of another sequence") {
        call.args.out.data = call.key.data() + 8 * H_kv * d;
        const polyhead_status status = call.fake.run(call.args);
        CHECK(status.code == POLYHEAD_ALIASED);
        CHECK(call.fake.calls == 0);
    }
    SECTION("a fixed length holds for each sequence") {
        call.fake.table.problem.seq_len_q = 4;
        call.refused(POLYHEAD_WRONG_SHAPE, "sequence 2: query: extent 2 of dimension 2, expected 4");
    }
    SECTION("no outputs over pairs") {
        call.fake.table.problem.scores = POLYHEAD_LOGITS;
        call.refused(POLYHEAD_UNSUPPORTED, "cu_seqlens_q: given, expected none, because the kernel has an output over pairs (scores)");
    }
    SECTION("pages have lengths") {
        call.fake.table.problem.page_size = 2;
        call.refused(POLYHEAD_WRONG_OPERATION,
                     "cu_seqlens_kv: given, expected none, because the kernel takes keys in pages, whose lengths are kv_lengths");
    }
    SECTION("a length that no variant serves") {
        call.fake.variant.max_seq_len_q = 3;
        call.refused(POLYHEAD_UNSUPPORTED,
                     "sequence 0: kernel fake: no variant for seq_len_q 4 on this CPU: fake_variant serves seq_len_q 0 to 3");
    }
}

TEST_CASE("packed tokens: only attention takes them", "[runtime]") {
    MhaCall call;
    const std::vector<int32_t> begins = {0, 3};
    call.args.cu_seqlens_q = view(begins.data(), {2});
    call.refused(POLYHEAD_WRONG_OPERATION, "cu_seqlens_q: given, expected none, because the kernel does not compute sdpa");
}

TEST_CASE("packed tokens: an expression that reads b is refused", "[runtime]") {
    PackedCall call;
    call.fake.table.problem.expression = "score = score * b";
    SECTION("it reads the key length alone") {
        call.fake.table.expression_facts = POLYHEAD_EXPRESSION_KEY_LENGTH;
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        return;
    }
    call.fake.table.expression_facts = POLYHEAD_EXPRESSION_BATCH_ROW;
    call.refused(POLYHEAD_UNSUPPORTED,
                 "cu_seqlens_q: given, expected none, because the kernel's expression uses b otherwise than as the index of a dimension b");
}

TEST_CASE("packed tokens: explain() and scratch_bytes()", "[runtime]") {
    PackedCall call;
    constexpr int64_t list = 512; // of 4 parts at most
    char text[1024];
    CHECK(polyhead_explain(&call.fake.table, &call.args, text, sizeof text).code == POLYHEAD_OK);
    CHECK(std::string(text) == "fake: sdpa, 4 sequences, 9 queries, 14 keys, 1 threads\n"
                               "  with lse\n"
                               "  in 3 parts, scratch " +
                                   std::to_string(list + held_scratch(0)) +
                                   " bytes\n"
                                   "  runs fake_variant for 3 sequences of 2 to 4 queries: target x86-64-linux, tiling q_tile=16\n");
    call.fake.variant.scratch.per_thread = 1000;
    polyhead_status status;
    CHECK(polyhead_scratch_bytes(&call.fake.table, &call.args, &status) == list + held_scratch(1000));
    set_num_threads(2);
    CHECK(polyhead_scratch_bytes(&call.fake.table, &call.args, &status) ==
          list + 2 * held_scratch(1000) + held_scratch(1000)); // two parts at the same time, each with a helper
    call.begins_q[0] = 1;
    CHECK(polyhead_scratch_bytes(&call.fake.table, &call.args, &status) == 0);
    CHECK(status.code == POLYHEAD_BAD_VALUE);
    CHECK(polyhead_explain(&call.fake.table, &call.args, text, sizeof text).code == POLYHEAD_BAD_VALUE);
    CHECK(std::string(text) == "refused: cu_seqlens_q: value 1 at index 0, expected 0\n");
}

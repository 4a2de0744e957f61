// Calls that are several calls: short packed sequences, all of them, against one call for each; and calls that do not fit at once.
#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <vector>

#include "runtime_calls.h"
#include "runtime_fake_device.h"
#include "support/environment.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// What a mask of packed tokens has all elements for.
enum class Over { nothing, pairs, queries, keys };

// An element of a buffer of rank 4.
template <typename T> T &element(void *argument, int d, int t, int h, int b) {
    const auto &buffer = *static_cast<const runtime::KernelBuffer *>(argument);
    return reinterpret_cast<T *>(buffer.host)[int64_t(d) * buffer.dim[0].stride + int64_t(t) * buffer.dim[1].stride +
                                              int64_t(h) * buffer.dim[2].stride + int64_t(b) * buffer.dim[3].stride];
}

// A stand-in with the mask as its only optional input: out is the sum of the values that a query sees, lse how many they are.
int add_up(bool masked, void **argv) {
    void *const mask = masked ? argv[4] : nullptr, *const out = argv[masked ? 6 : 5];
    const auto &lse = *static_cast<const runtime::KernelBuffer *>(argv[masked ? 7 : 6]);
    const auto &result = *static_cast<const runtime::KernelBuffer *>(out), &keys = *static_cast<const runtime::KernelBuffer *>(argv[3]);
    for (int b = 0; b < result.dim[3].extent; ++b) {
        for (int h = 0; h < result.dim[2].extent; ++h) {
            for (int q = 0; q < result.dim[1].extent; ++q) {
                float sum = 0, count = 0;
                for (int kv = 0; kv < keys.dim[1].extent; ++kv) {
                    const int q_of_mask = mask ? std::min(q, static_cast<runtime::KernelBuffer *>(mask)->dim[1].extent - 1) : 0,
                              kv_of_mask = mask ? std::min(kv, static_cast<runtime::KernelBuffer *>(mask)->dim[0].extent - 1) : 0;
                    const bool sees = !mask || element<uint8_t>(mask, kv_of_mask, q_of_mask, h, b) != 0;
                    sum += sees ? element<float>(argv[3], 0, kv, h, b) + element<float>(argv[1], 0, q, h, b) : 0;
                    count += sees;
                }
                element<float>(out, 0, q, h, b) = sum;
                reinterpret_cast<float *>(
                    lse.host)[int64_t(q) * lse.dim[0].stride + int64_t(h) * lse.dim[1].stride + int64_t(b) * lse.dim[2].stride] = count;
            }
        }
    }
    return 0;
}

constexpr int64_t most_tokens = 12, heads = 2;

// Sequences of one head dimension each: query, key and value [1,heads,tokens,1].
struct ShortSequences {
    explicit ShortSequences(Over over_) : over(over_), fake(problem(over_)) {
        fake.variant.entry =
            over == Over::nothing ? [](void **argv) { return add_up(false, argv); } : [](void **argv) { return add_up(true, argv); };
        for (size_t i = 0; i < query.size(); ++i) {
            query[i] = static_cast<float>(1 + i);
            value[i] = static_cast<float>(100 * (1 + i));
        }
        for (size_t i = 0; i < mask.size(); ++i) {
            mask[i] = i * 7 % 3 != 0;
        }
    }
    static Problem problem(Over over) {
        Problem p = sdpa(heads, heads, 1, 1);
        p.lse = 1;
        p.mask = over == Over::nothing ? POLYHEAD_NO_MASK : POLYHEAD_BOOLEAN_MASK;
        p.mask_broadcast = (over == Over::keys ? POLYHEAD_BROADCAST_Q : 0) | (over == Over::queries ? POLYHEAD_BROADCAST_KV : 0);
        return p;
    }

    // Tokens first_q .. first_q + queries - 1, and the same of keys, as a call of their own.
    polyhead_args part(int64_t first_q, int64_t queries, int64_t first_kv, int64_t keys, std::vector<float> *out, std::vector<float> *lse) {
        polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
        const auto tokens = [](float *data, int64_t first, int64_t count) {
            return MutableTensorView(data + first, DType::f32, {1, heads, count, 1}, {0, most_tokens, 1, 1});
        };
        args.query = tokens(query.data(), first_q, queries);
        args.key = tokens(query.data(), first_kv, keys);
        args.value = tokens(value.data(), first_kv, keys);
        args.out = tokens(out->data(), first_q, queries);
        args.lse = MutableTensorView(lse->data() + first_q, DType::f32, {1, heads, queries}, {0, most_tokens, 1});
        if (over != Over::nothing) {
            const bool q = over != Over::keys, kv = over != Over::queries;
            args.mask = TensorView(mask.data() + (q ? first_q * most_tokens : 0) + (kv ? first_kv : 0), DType::boolean,
                                   {1, 1, q ? queries : 1, kv ? keys : 1}, {0, 0, most_tokens, 1});
        }
        return args;
    }

    // "", or what differs between one call with all sequences and a call for each.
    std::string compare(const std::vector<int32_t> &begins_q, const std::vector<int32_t> &begins_kv) {
        const size_t count = begins_q.size() - 1;
        std::fill(alone.begin(), alone.end(), untouched);
        std::fill(alone_lse.begin(), alone_lse.end(), untouched);
        packed = alone;
        packed_lse = alone_lse;
        for (size_t i = 0; i < count; ++i) {
            const polyhead_status status = fake.run(
                part(begins_q[i], begins_q[i + 1] - begins_q[i], begins_kv[i], begins_kv[i + 1] - begins_kv[i], &alone, &alone_lse));
            if (status.code != POLYHEAD_OK) {
                return std::string("alone: ") + status.message;
            }
        }
        polyhead_args args = part(0, begins_q.back(), 0, begins_kv.back(), &packed, &packed_lse);
        args.cu_seqlens_q = view(begins_q.data(), {static_cast<int64_t>(count + 1)});
        args.cu_seqlens_kv = view(begins_kv.data(), {static_cast<int64_t>(count + 1)});
        const polyhead_status status = fake.run(args);
        return status.code != POLYHEAD_OK ? status.message : packed == alone && packed_lse == alone_lse ? "" : "other results";
    }

    const Over over;
    FakeKernel fake;
    std::vector<float> query = std::vector<float>(heads * most_tokens), value = query, alone = query, alone_lse = query, packed = query,
                       packed_lse = query;
    std::vector<uint8_t> mask = std::vector<uint8_t>(most_tokens * most_tokens);
};

// The borders of `count` sequences whose lengths, 0 to 3, are the digits of a number.
std::vector<int32_t> borders(size_t count, int number) {
    std::vector<int32_t> begins = {0};
    for (size_t i = 0; i < count; ++i, number /= 4) {
        begins.push_back(begins.back() + number % 4);
    }
    return begins;
}

} // namespace

TEST_CASE("packed tokens: every batch of up to four sequences of up to three tokens is a call for each", "[runtime]") {
    set_num_threads(1);
    const int step = sanitized() ? 13 : 1; // of four sequences
    int calls = 0, wrong = 0;
    for (const Over over : {Over::nothing, Over::pairs, Over::queries, Over::keys}) {
        ShortSequences sequences(over);
        for (size_t count = 1; count <= 4; ++count) {
            const int combinations = 1 << (2 * count);
            // Of four sequences each kind of mask sees a quarter of them.
            const int first = count == 4 ? static_cast<int>(over) : 0, by = count == 4 ? 4 * step : 1;
            for (int n = first; n < combinations * combinations; n += by) {
                const std::vector<int32_t> q = borders(count, n / combinations), kv = borders(count, n % combinations);
                const std::string difference = sequences.compare(q, kv);
                ++calls;
                if (!difference.empty() && ++wrong < 5) {
                    std::string text = "mask " + std::to_string(static_cast<int>(over)) + ", lengths";
                    for (size_t i = 0; i < count; ++i) {
                        text += " " + std::to_string(q[i + 1] - q[i]) + "x" + std::to_string(kv[i + 1] - kv[i]);
                    }
                    FAIL_CHECK(text + ": " + difference);
                }
            }
        }
    }
    CHECK(calls > 20000 / step);
    CHECK(wrong == 0);
    set_num_threads(0);
}

namespace {

// A call of 10 batch rows with 200 queries each, whose kernel keeps some bytes of memory between its stages.
struct LargeCall {
    static constexpr int64_t rows = 10, queries = 200, kv = 5;
    struct Seen {
        int64_t batch, first_row, queries, first_query;
        bool operator==(const Seen &o) const {
            return batch == o.batch && first_row == o.first_row && queries == o.queries && first_query == o.first_query;
        }
    };

    explicit LargeCall(const Problem &problem = sdpa(1, 1, 1, 1)) : fake(problem) {
        set_num_threads(1);
        args.query = view(query.data(), {rows, 1, queries, 1});
        args.key = args.value = view(key.data(), {rows, 1, kv, 1});
        args.out = view(out.data(), {rows, 1, queries, 1});
        fake.on_call = [this](FakeKernel &f) {
            const SeenBuffer seen_query = f.buffer(0);
            const int64_t at = static_cast<float *>(seen_query.host) - query.data();
            seen.push_back({seen_query.extents[3], at / queries, seen_query.extents[1], at % queries});
            const SeenBuffer seen_key = f.buffer(1);
            CHECK((static_cast<float *>(seen_key.host) - key.data()) / kv == at / queries);
        };
    }
    LargeCall(const LargeCall &) = delete;
    LargeCall &operator=(const LargeCall &) = delete;
    ~LargeCall() { set_num_threads(0); }

    // What the kernel keeps of a batch row: of each block of 10 queries, and beside.
    void keeps(int64_t of_queries, int64_t beside) { fake.variant.scratch = {0, {}, {{of_queries, 10, 0, 0}, {beside, 0, 0, 0}}}; }
    std::string run() { return fake.run(args).message; }

    FakeKernel fake;
    std::vector<float> query = std::vector<float>(rows * queries), key = std::vector<float>(rows * kv), out = query;
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    std::vector<Seen> seen;
};

constexpr int64_t mebi = int64_t(1) << 20;

} // namespace

TEST_CASE("large calls: batch rows that do not fit at once", "[runtime]") {
    LargeCall call;
    SECTION("they fit") {
        call.keeps(0, 204 * mebi);
        CHECK(call.run().empty());
        CHECK(call.seen == std::vector<LargeCall::Seen>{{10, 0, 200, 0}});
    }
    SECTION("three at a time, and one is left") {
        call.keeps(0, 600 * mebi);
        CHECK(call.run().empty());
        CHECK(call.seen == std::vector<LargeCall::Seen>{{3, 0, 200, 0}, {3, 3, 200, 0}, {3, 6, 200, 0}, {1, 9, 200, 0}});
    }
    SECTION("the largest piece counts, not the sum") {
        call.keeps(600 * mebi / 20, 500 * mebi);
        CHECK(call.run().empty());
        CHECK(call.seen.size() == 4);
    }
    SECTION("2^31 bytes are too many, one less is not") {
        call.keeps(0, (int64_t(1) << 31) / 5);
        CHECK(call.run().empty());
        CHECK(call.seen[0].batch == 5);
        call.seen.clear();
        call.keeps(0, int64_t(1) << 30);
        CHECK(call.run().empty());
        CHECK(call.seen[0].batch == 1);
        CHECK(call.seen.size() == 10);
    }
    SECTION("memory of the largest part is taken, not of the call") {
        call.keeps(0, 600 * mebi);
        polyhead_status status;
        const int64_t list = 512; // of four parts
        const int64_t scratch = held_scratch(3 * 600 * mebi) + list;
        CHECK(polyhead_scratch_bytes(&call.fake.table, &call.args, &status) == scratch);
        char text[1024];
        CHECK(polyhead_explain(&call.fake.table, &call.args, text, sizeof text).code == POLYHEAD_OK);
        CHECK(std::string(text) ==
              "fake: sdpa, batch 10, seq_len_q 200, seq_len_kv 5, 1 threads\n"
              "  in 4 parts, scratch " +
                  std::to_string(scratch) +
                  " bytes\n"
                  "  runs fake_variant for 10 batch rows of 200 to 200 queries: target x86-64-linux, tiling q_tile=16\n");
    }
    SECTION("a part that fails") {
        call.keeps(0, 600 * mebi);
        call.fake.result = -7;
        CHECK(call.fake.run(call.args).code == POLYHEAD_INTERNAL);
        CHECK(call.fake.calls == 1);
    }
    SECTION("an expression that uses b") {
        call.keeps(0, 600 * mebi);
        call.fake.table.problem.expression = "score = score * b";
        call.fake.table.expression_facts = POLYHEAD_EXPRESSION_BATCH_ROW;
        CHECK(call.run() ==
              "query: extent 10 of dimension 0, expected at most 3, the limit of memory in one piece where the expression uses "
              "b otherwise than as the index of a dimension b: split the batch");
        CHECK(call.fake.calls == 0);
    }
}

TEST_CASE("large calls: queries of a batch row that do not fit at once", "[runtime]") {
    Problem problem = sdpa(1, 1, 1, 1);
    const auto of_row = [](int64_t row) { // 20 blocks of 10 queries; of 13 blocks whole tiles of 64
        return std::vector<LargeCall::Seen>{{1, row, 128, 0}, {1, row, 72, 128}};
    };
    SECTION("without positions") {
        LargeCall call(problem);
        call.keeps(150 * mebi, 5);
        CHECK(call.run().empty());
        std::vector<LargeCall::Seen> expected;
        for (int64_t row = 0; row < LargeCall::rows; ++row) {
            for (const LargeCall::Seen &seen : of_row(row)) {
                expected.push_back(seen);
            }
        }
        CHECK(call.seen == expected);
    }
    SECTION("a kernel with fixed queries") {
        problem.seq_len_q = LargeCall::queries;
        LargeCall call(problem);
        call.keeps(150 * mebi, 5);
        CHECK(call.run() ==
              "query: kernel fake holds 3145728000 bytes of one batch row between its stages, expected less than 2^31: split the "
              "queries");
        CHECK(call.fake.calls == 0);
    }
    SECTION("a kernel that knows positions by itself") {
        problem.causal = POLYHEAD_TOP_LEFT;
        LargeCall call(problem);
        call.keeps(150 * mebi, 5);
        CHECK(call.run().find("split the queries") != std::string::npos);
    }
    SECTION("keys alone are too large") {
        LargeCall call(problem);
        call.keeps(0, int64_t(1) << 31);
        CHECK(call.run() ==
              "query: kernel fake holds 2147483648 bytes of one batch row between its stages, expected less than 2^31: split the "
              "keys, and merge the states");
    }
}

TEST_CASE("large calls: queries keep their positions by offsets", "[runtime]") {
    Problem problem = sdpa(1, 1, 1, 1);
    problem.causal = POLYHEAD_BOTTOM_RIGHT;
    problem.position_offsets = 1;
    LargeCall call(problem);
    std::vector<int32_t> offsets = {3, -4, 0, 0, 0, 0, 0, 0, 0, 0};
    call.args.position_offsets = view(offsets.data(), {LargeCall::rows});
    call.keeps(150 * mebi, 5);
    std::vector<int32_t> found;
    call.fake.on_call = [&](FakeKernel &f) { found.push_back(*static_cast<int32_t *>(f.buffer(3).host)); };
    SECTION("from the end") { // the first 128 of 200 queries end 72 before the last
        CHECK(call.run().empty());
        found.resize(4);
        CHECK(found == std::vector<int32_t>{3 - 72, 3, -4 - 72, -4});
    }
    SECTION("from the start") {
        call.args.alignment = POLYHEAD_TOP_LEFT;
        CHECK(call.run().empty());
        found.resize(4);
        CHECK(found == std::vector<int32_t>{3, 3 + 128, -4, -4 + 128});
    }
    SECTION("left out") {
        call.args.position_offsets = polyhead_tensor{};
        CHECK(call.run().empty());
        found.resize(2);
        CHECK(found == std::vector<int32_t>{-72, 0});
    }
}

TEST_CASE("large calls: layers and linear layers", "[runtime]") {
    SECTION("a layer of self-attention needs every token as a key") {
        MhaCall call;
        call.fake.variant.scratch.terms[0] = {int64_t(1) << 31, 0, 0, 0};
        call.refused(POLYHEAD_UNSUPPORTED,
                     "input: kernel fake holds 2147483648 bytes of one batch row between its stages, expected less than "
                     "2^31: project with linear kernels and attend with sdpa, some queries at a time");
        call.fake.variant.scratch.terms[0] = {int64_t(1) << 30, 0, 0, 0};
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        CHECK(call.fake.calls == 2); // two batch rows
    }
    SECTION("of cross-attention some queries have all keys") {
        MhaCall call(MhaCall::cross());
        call.problem.bias = 0;
        call.fake.variant.scratch.terms[0] = {int64_t(1) << 30, 1, 0, 0};
        std::vector<int32_t> queries, keys;
        call.fake.on_call = [&](FakeKernel &f) {
            queries.push_back(f.buffer(0).extents[1]);
            keys.push_back(f.buffer(1).extents[1]);
        };
        CHECK(std::string(call.fake.run(call.args).message).empty());
        CHECK(queries == std::vector<int32_t>{1, 1, 1, 1, 1, 1});
        CHECK(keys == std::vector<int32_t>(6, T_kv));
    }
    SECTION("rows of a linear layer") {
        FakeKernel fake(linear(8, 4));
        std::vector<float> input(9 * 8), out(9 * 4), memory(256);
        const auto aligned = (reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64;
        const polyhead_weights weights{reinterpret_cast<void *>(aligned),
                                       polyhead_weights_bytes(&fake.table),
                                       contract::weight_layout_id(fake.table.problem),
                                       POLYHEAD_WEIGHT_PANEL,
                                       POLYHEAD_F32,
                                       nullptr};
        polyhead_args args = polyhead_args_of(POLYHEAD_LINEAR);
        args.query = view(input.data(), {9, 8});
        args.out = view(out.data(), {9, 4});
        args.weights = &weights;
        fake.variant.scratch.terms[0] = {500 * mebi, 1, 0, 0};
        std::vector<int32_t> rows;
        fake.on_call = [&](FakeKernel &f) {
            CHECK(static_cast<float *>(f.buffer(0).host) - input.data() == 8 * (static_cast<float *>(f.buffer(2).host) - out.data()) / 4);
            rows.push_back(f.buffer(0).extents[1]);
        };
        CHECK(std::string(fake.run(args).message).empty());
        CHECK(rows == std::vector<int32_t>{4, 4, 1});
    }
}

TEST_CASE("large calls: packed tokens and devices", "[runtime]") {
    SECTION("neighbouring sequences of equal lengths") {
        ShortSequences sequences(Over::nothing);
        sequences.fake.variant.scratch.terms[0] = {900 * mebi, 0, 0, 0};
        std::atomic<int> calls{0};
        const Entry counting([&calls](void **argv) { return ++calls, add_up(false, argv); });
        sequences.fake.variant.entry = counting.function();
        CHECK(sequences.compare({0, 2, 4, 6, 8, 10}, {0, 1, 2, 3, 4, 5}).empty());
        CHECK(calls == 5 + 3); // alone; two, two and one
        sequences.fake.variant.scratch.terms[0] = {int64_t(1) << 31, 0, 0, 0};
        CHECK(sequences.compare({0, 2}, {0, 1}).find("alone: query: kernel fake holds") == 0);
    }
    SECTION("a device launches parts of the batch, and is told of no queries") {
        LargeCall call;
        FakeDevice device;
        call.args.device = &device;
        call.fake.variant.api = device.api;
        call.keeps(0, 600 * mebi);
        call.fake.on_call = nullptr;
        CHECK(call.run().empty());
        CHECK(call.fake.calls == 4);
        call.keeps(150 * mebi, 5);
        CHECK(call.run().find("query: kernel fake holds 3145728000 bytes") == 0);
        CHECK(call.fake.calls == 4);
    }
}

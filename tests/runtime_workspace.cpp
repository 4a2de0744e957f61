// Scratch memory of the caller, what is refused of it, and functions around kernels with an executor and scratch memory.
#include <cstdio>
#include <string>
#include <vector>

#include <polyhead/cache.h>

#include "executors.h"
#include "runtime_calls.h"
#include "scratch_memory.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("workspace: scratch memory that is refused", "[runtime]") {
    SdpaCall call;
    call.fake.variant.scratch = {1000, {}, {{10, 0, 0, 0}}};
    polyhead_status status;
    const int64_t bytes = polyhead_scratch_bytes(&call.fake.table, &call.args, &status);
    REQUIRE(bytes > 0);
    const ScratchMemory scratch(bytes + 256);
    call.args.scratch = scratch.get();
    call.args.scratch_bytes = static_cast<size_t>(bytes);
    SECTION("enough") {
        CHECK(std::string(call.fake.run(call.args).message).empty());
    }
    SECTION("one byte less") {
        --call.args.scratch_bytes;
        call.refused(POLYHEAD_BAD_VALUE, "scratch: " + std::to_string(bytes - 1) + " bytes, expected " + std::to_string(bytes));
    }
    SECTION("none") {
        call.args.scratch_bytes = 0;
        call.refused(POLYHEAD_BAD_VALUE, "scratch: 0 bytes, expected " + std::to_string(bytes));
    }
    SECTION("not aligned") {
        call.args.scratch = static_cast<char *>(scratch.get()) + 64;
        char text[32];
        std::snprintf(text, sizeof text, "%p", call.args.scratch);
        call.refused(POLYHEAD_WRONG_STRIDE, std::string("scratch: address ") + text + ", expected a multiple of 128");
    }
    SECTION("bytes of nothing") {
        call.args.scratch = nullptr;
        call.refused(POLYHEAD_NULL_POINTER, "scratch: null pointer, expected " + std::to_string(bytes) + " bytes");
    }
    SECTION("shared with tensors") {
        const struct {
            const char *name;
            polyhead_tensor polyhead_args::*tensor;
        } all[] = {{"query", &polyhead_args::query},           {"key", &polyhead_args::key}, {"value", &polyhead_args::value},
                   {"kv_lengths", &polyhead_args::kv_lengths}, {"out", &polyhead_args::out}, {"lse", &polyhead_args::lse}};
        for (const auto &one : all) {
            const polyhead_tensor kept = call.args.*one.tensor;
            (call.args.*one.tensor).data = static_cast<char *>(scratch.get()) + bytes - 4;
            CHECK(std::string(call.fake.run(call.args).message) ==
                  "scratch: shares memory with " + std::string(one.name) + ", expected memory of its own");
            (call.args.*one.tensor).data = static_cast<char *>(scratch.get()) + (bytes + 127) / 128 * 128; // just behind it
            if (sizeof(float) * static_cast<size_t>(B * H * T_q * d) > 256) {
                call.args.*one.tensor = kept;
            }
        }
        CHECK(call.fake.calls == 0);
    }
    SECTION("shared with weights") {
        MhaCall layer;
        layer.args.scratch = const_cast<void *>(layer.weights.data);
        layer.args.scratch_bytes = 64;
        if (reinterpret_cast<uintptr_t>(layer.weights.data) % 128 != 0) {
            layer.args.scratch = static_cast<char *>(layer.args.scratch) + 64;
        }
        layer.refused(POLYHEAD_ALIASED, "scratch: shares memory with weights, expected memory of its own");
    }
}

TEST_CASE("workspace: functions around kernels", "[runtime]") {
    constexpr int64_t batch = 8, heads = 4, tokens = 64, width = 64, page = 16;
    std::vector<float> key(batch * heads * tokens * width), cos(256 * width / 2, 0.6f), sin(256 * width / 2, 0.8f);
    for (size_t i = 0; i < key.size(); ++i) {
        key[i] = static_cast<float>(i % 1000);
    }
    std::vector<int32_t> lengths(batch, 3), table(batch * 5);
    for (size_t i = 0; i < table.size(); ++i) {
        table[i] = static_cast<int32_t>((i * 7) % table.size());
    }
    const Rotation rotation{view(cos.data(), {256, width / 2}), view(sin.data(), {256, width / 2}), {}};
    const auto pages = static_cast<int64_t>(table.size());
    const auto outputs = [&](const Workspace &workspace) {
        std::vector<std::vector<float>> all(5, std::vector<float>(static_cast<size_t>(pages * heads * page * width)));
        const Cache cache{view(all[0].data(), {pages, heads, page, width}),
                          view(all[1].data(), {pages, heads, page, width}),
                          view(table.data(), {batch, 5}),
                          {},
                          {}};
        NewKeys keys;
        keys.key = keys.value = view(key.data(), {batch, heads, tokens, width});
        keys.lengths = view(lengths.data(), {batch});
        keys.rotation = rotation;
        CHECK(std::string(append(cache, keys, workspace).message()).empty());
        CHECK(std::string(copy_page(cache, table[0], table[24], workspace).message()).empty());
        const TensorView input = view(key.data(), {batch, heads, tokens, width});
        CHECK(std::string(rotate(input, rotation, view(all[2].data(), {batch, heads, tokens, width}), workspace).message()).empty());
        std::vector<float> lse(batch * heads * tokens, 0.5f);
        const State parts[] = {{input, view(lse.data(), {batch, heads, tokens})}, {input, view(lse.data(), {batch, heads, tokens})}};
        CHECK(std::string(merge_states(parts, 2, view(all[3].data(), {batch, heads, tokens, width}), {}, {}, workspace).message()).empty());
        return all;
    };
    const auto expected = outputs({});
    for (const int threads : {1, 4}) {
        const TestExecutor executor(threads, on_threads);
        const ScratchMemory scratch(128);
        CHECK(outputs({executor.raw(), scratch.get(), scratch.bytes()}) == expected);
    }
    // An executor that does nothing, and one byte less than a bit for each page.
    const TestExecutor none(4, [](int, const auto &) {});
    std::vector<float> out(key.size());
    CHECK(std::string(rotate(view(key.data(), {batch, heads, tokens, width}), rotation, view(out.data(), {batch, heads, tokens, width}),
                             {none.raw(), nullptr, 0})
                          .message()) ==
          "executor: parallel_for returned before task 0 of 4 ran, expected after all; the outputs are complete");
    CHECK(out == std::vector<float>(expected[2].begin(), expected[2].begin() + static_cast<int64_t>(out.size())));
}

TEST_CASE("workspace: scratch memory of append", "[runtime]") {
    std::vector<float> rows(40 * 2 * 4 * 8), key(2 * 2 * 3 * 8);
    std::vector<int32_t> lengths(2, 0), table = {0, 1, 2, 3};
    const Cache cache{view(rows.data(), {40, 2, 4, 8}), view(rows.data(), {40, 2, 4, 8}), view(table.data(), {2, 2}), {}, {}};
    Cache key_alone = cache;
    key_alone.value = {};
    NewKeys keys;
    keys.key = view(key.data(), {2, 2, 3, 8});
    keys.lengths = view(lengths.data(), {2});
    CHECK(append_scratch_bytes(key_alone, keys) == 128);
    const ScratchMemory scratch(256);
    CHECK(append(key_alone, keys, {nullptr, scratch.get(), 128}).ok());
    CHECK(std::string(append(key_alone, keys, {nullptr, scratch.get(), 127}).message()) == "scratch: 127 bytes, expected 128");
    CHECK(std::string(append(key_alone, keys, {nullptr, rows.data(), 128}).message()).find("scratch: ") == 0);
    NewKeys within = keys;
    within.lengths = TensorView(view(static_cast<int32_t *>(scratch.get()), {2}));
    CHECK(std::string(append(key_alone, within, {nullptr, scratch.get(), 128}).message()) ==
          "scratch: shares memory with lengths, expected memory of its own");
    CHECK(append_scratch_bytes(cache, keys) == -1); // no value
}

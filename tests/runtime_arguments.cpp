// What a kernel is called with: order of arguments, extents and strides innermost first, scalars; and what its errors become.
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "../runtime/memory/memory.h"
#include "runtime_fake.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

using Ints = std::vector<int32_t>;

// An allocation of Halide's, made here as a kernel would.
void *kernel_malloc(size_t bytes) {
    return halide_malloc(nullptr, bytes);
}

} // namespace

// AddressSanitizer, where it is on, is to answer absurd sizes as malloc does.
extern "C" const char *__asan_default_options() {
    return "allocator_may_return_null=1";
}

TEST_CASE("runtime: arguments of sdpa", "[runtime]") {
    Problem p = sdpa(4, 2, 8, 6);
    p.kv_lengths = p.lse = 1;
    p.causal = POLYHEAD_TOP_LEFT;
    FakeKernel fake(p);
    std::vector<float> q(2 * 3 * 4 * 8), k(2 * 2 * 5 * 8), v(2 * 2 * 5 * 6), out(2 * 3 * 4 * 6), lse(2 * 4 * 3);
    std::vector<int32_t> lengths = {5, 2};
    SdpaArgs args;
    args.query = from_bshd(view(q.data(), {2, 3, 4, 8}));
    args.key = view(k.data(), {2, 2, 5, 8});
    args.value = view(v.data(), {2, 2, 5, 6});
    args.kv_lengths = view(lengths.data(), {2});
    args.out = from_bsd(view(out.data(), {2, 3, 24}), 4);
    args.lse = view(lse.data(), {2, 4, 3});
    float scale = 0;
    int32_t from_end = -1;
    fake.on_call = [&](FakeKernel &f) {
        CHECK(f.buffer(0).host == q.data());
        CHECK(f.buffer(0).extents == Ints{8, 3, 4, 2});
        CHECK(f.buffer(0).strides == Ints{1, 32, 8, 96});
        CHECK(f.buffer(1).host == k.data());
        CHECK(f.buffer(1).extents == Ints{8, 5, 2, 2});
        CHECK(f.buffer(1).strides == Ints{1, 8, 40, 80});
        CHECK(f.buffer(2).host == v.data());
        CHECK(f.buffer(2).extents == Ints{6, 5, 2, 2});
        CHECK(f.buffer(3).host == lengths.data());
        CHECK(f.buffer(3).extents == Ints{2});
        CHECK(f.buffer(3).type == runtime::ElementType{runtime::ElementType::signed_integer, 32, 1});
        scale = f.scalar<float>(4);
        from_end = f.scalar<int32_t>(5);
        CHECK(f.buffer(6).host == out.data());
        CHECK(f.buffer(6).extents == Ints{6, 3, 4, 2});
        CHECK(f.buffer(6).strides == Ints{1, 24, 6, 72});
        CHECK(f.buffer(7).host == lse.data());
        CHECK(f.buffer(7).extents == Ints{3, 4, 2});
        CHECK(f.buffer(7).type == runtime::ElementType{runtime::ElementType::real, 32, 1});
    };
    CHECK(fake.kernel().run(args).ok());
    CHECK(scale == 1.0f / std::sqrt(8.0f));
    CHECK(from_end == 0);
    args.softmax_scale = 0.25f;
    args.alignment = Alignment::bottom_right;
    CHECK(fake.kernel().run(args).ok());
    CHECK(scale == 0.25f);
    CHECK(from_end == 1);
    CHECK(fake.calls == 2);
}

TEST_CASE("runtime: arguments of a cross-attention layer with biases", "[runtime]") {
    Problem p = sdpa(2, 1, 20, 5); // 2 heads of 20: two panels each
    p.op = POLYHEAD_MHA;
    p.embed_dim = 24;
    p.kdim = 10;
    p.vdim = 12;
    p.cross = p.bias = 1;
    FakeKernel fake(p);
    const auto weight = [](const std::vector<float> &data, int64_t rows) { return view(data.data(), {rows, int64_t(data.size()) / rows}); };
    std::vector<float> wq(40 * 24), wk(20 * 10), wv(5 * 12), wo(24 * 10), bq(40), bk(20), bv(5), bo(24);
    WeightTensors tensors;
    tensors.query = weight(wq, 40);
    tensors.key = weight(wk, 20);
    tensors.value = weight(wv, 5);
    tensors.out_proj = weight(wo, 24);
    tensors.query_bias = view(bq.data(), {40});
    tensors.key_bias = view(bk.data(), {20});
    tensors.value_bias = view(bv.data(), {5});
    tensors.out_bias = view(bo.data(), {24});
    Weights weights;
    const Status packed = fake.kernel().pack(tensors, &weights);
    INFO(packed.message());
    REQUIRE(packed.ok());
    std::vector<float> x(3 * 24), key(7 * 10), value(7 * 12), out(3 * 24);
    MhaArgs args;
    args.input = view(x.data(), {1, 3, 24});
    args.key = view(key.data(), {1, 7, 10});
    args.value = view(value.data(), {1, 7, 12});
    args.weights = &weights;
    args.out = view(out.data(), {1, 3, 24});
    fake.on_call = [&](FakeKernel &f) {
        CHECK(f.buffer(0).extents == Ints{24, 3, 1});
        CHECK(f.buffer(1).extents == Ints{10, 7, 1});
        CHECK(f.buffer(2).extents == Ints{12, 7, 1});
        CHECK(f.buffer(3).host == weights.raw()->data);
        CHECK(f.buffer(3).extents == Ints{16, 24, 4});
        CHECK(f.buffer(3).strides == Ints{1, 16, 16 * 24});
        CHECK(f.buffer(4).extents == Ints{16, 10, 2});
        CHECK(f.buffer(5).extents == Ints{16, 12, 1});
        CHECK(f.buffer(6).extents == Ints{16, 10, 2});
        CHECK(f.buffer(7).extents == Ints{64});
        CHECK(f.buffer(8).extents == Ints{32});
        CHECK(f.buffer(9).extents == Ints{16});
        CHECK(f.buffer(10).extents == Ints{32});
        CHECK(f.scalar<float>(11) == 1.0f / std::sqrt(20.0f));
        CHECK(f.buffer(12).host == out.data());
        const char *end = static_cast<const char *>(f.buffer(10).host) + 32 * sizeof(float);
        CHECK(end == static_cast<const char *>(weights.raw()->data) + weights.bytes());
    };
    const Status ran = fake.kernel().run(args);
    INFO(ran.message());
    CHECK(ran.ok());
    CHECK(fake.calls == 1);
}

TEST_CASE("runtime: arguments of a linear layer", "[runtime]") {
    Problem p = linear(5, 17);
    p.bias = 1;
    FakeKernel fake(p);
    std::vector<float> w(17 * 5), b(17), x(3 * 5), out(3 * 17);
    WeightTensors tensors;
    tensors.out_proj = view(w.data(), {17, 5});
    tensors.out_bias = view(b.data(), {17});
    Weights weights;
    REQUIRE(fake.kernel().pack(tensors, &weights).ok());
    LinearArgs args;
    args.input = view(x.data(), {3, 5});
    args.weights = &weights;
    args.out = view(out.data(), {3, 17});
    fake.on_call = [&](FakeKernel &f) {
        CHECK(f.buffer(0).extents == Ints{5, 3});
        CHECK(f.buffer(1).extents == Ints{16, 5, 2});
        CHECK(f.buffer(2).extents == Ints{32});
        CHECK(f.buffer(3).extents == Ints{17, 3});
    };
    CHECK(fake.kernel().run(args).ok());
    CHECK(fake.calls == 1);
}

TEST_CASE("runtime: views", "[runtime]") {
    float data[1] = {};
    const TensorView contiguous = view(data, {2, 3, 4});
    CHECK(contiguous.stride[0] == 12);
    CHECK(contiguous.stride[1] == 4);
    CHECK(contiguous.stride[2] == 1);
    CHECK(view(data, {2, 3}, {8, 1}).stride[0] == 8);
    CHECK(view(data, {2, 3}, {8}).rank == 0); // a shape without its strides is no tensor
    CHECK(view(data, {INT64_MAX, INT64_MAX, 2}).rank == 3);
    CHECK(from_bsd(contiguous, 3).rank == 0);
    CHECK(from_bsd(contiguous, 0).rank == 0);
    CHECK(from_bshd(contiguous).rank == 0);
    const TensorView heads = from_bsd(contiguous, 2);
    CHECK(std::vector<int64_t>(heads.shape, heads.shape + 4) == std::vector<int64_t>{2, 2, 3, 2});
    CHECK(std::vector<int64_t>(heads.stride, heads.stride + 4) == std::vector<int64_t>{12, 2, 4, 1});
}

TEST_CASE("runtime: views of every element type, of memory that is read or written", "[runtime]") {
    const float numbers[6] = {};
    int32_t lengths[2] = {};
    const bool mask[6] = {};
    bf16 half[6] = {};
    static_assert(std::is_same_v<decltype(view(numbers, {6})), TensorView> &&
                      std::is_same_v<decltype(view(lengths, {2})), MutableTensorView>,
                  "const memory cannot be an output");
    static_assert(!std::is_convertible_v<TensorView, MutableTensorView> && std::is_convertible_v<MutableTensorView, TensorView>,
                  "what is written can be read, not the other way round");
    CHECK(view(numbers, {2, 3}).dtype == POLYHEAD_F32);
    CHECK(view(lengths, {2}).dtype == POLYHEAD_I32);
    CHECK(view(mask, {2, 3}).dtype == POLYHEAD_BOOL);
    CHECK(view(half, {2, 3}).dtype == POLYHEAD_BF16);
    CHECK(view(reinterpret_cast<const f16 *>(half), {2, 3}, {1, 2}).dtype == POLYHEAD_F16);
    const int64_t shape[] = {2, 3}, stride[] = {1, 2};
    const TensorView dense(numbers, DType::f32, 2, shape), given(numbers, DType::f32, 2, shape, stride);
    CHECK(dense.stride[0] == 3);
    CHECK(dense.stride[1] == 1);
    CHECK(given.stride[0] == 1);
    CHECK(given.stride[1] == 2);
    CHECK(TensorView(numbers, DType::f32, -1, shape).rank == -1); // run() says so
    CHECK(from_bshd(MutableTensorView(half, DType::bf16, {1, 2, 3, 1})).shape[1] == 3);
}

TEST_CASE("runtime: errors inside a kernel", "[runtime]") {
    FakeKernel fake(sdpa(1, 1, 4, 4));
    std::vector<float> data(4 * 4);
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    args.query = args.key = args.value = view(data.data(), {1, 1, 1, 4});
    args.out = view(data.data() + 8, {1, 1, 1, 4});
    SECTION("reported on another thread; the first text counts") {
        fake.on_call = [](FakeKernel &f) {
            std::thread([&] {
                halide_error(f.user_context, "the cause\n");
                halide_error(f.user_context, "a consequence");
            }).join();
        };
        fake.result = runtime::kernel_constraint_violated;
        const polyhead_status status = fake.run(args);
        CHECK(status.code == POLYHEAD_INTERNAL);
        CHECK(std::string(status.message) == "kernel fake: the cause");
    }
    SECTION("two kernels that fail together keep their own texts") {
        FakeKernel other(sdpa(1, 1, 4, 4));
        other.table.name = "other";
        polyhead_status of_other{};
        other.on_call = [](FakeKernel &f) { halide_error(f.user_context, "the cause of the other"); };
        fake.on_call = [&](FakeKernel &f) {
            halide_error(f.user_context, "the cause of this one");
            std::thread([&] { of_other = other.run(args); }).join();
        };
        fake.result = other.result = -1;
        CHECK(std::string(fake.run(args).message) == "kernel fake: the cause of this one");
        CHECK(std::string(of_other.message) == "kernel other: the cause of the other");
    }
    SECTION("an error outside of any call says nothing about the next one") {
        halide_error(nullptr, "of somebody else's pipeline");
        fake.result = -3;
        CHECK(std::string(fake.run(args).message) == "kernel fake: error -3 without a text");
    }
    SECTION("without a text") {
        fake.result = -3;
        CHECK(std::string(fake.run(args).message) == "kernel fake: error -3 without a text");
    }
    SECTION("out of memory") {
        fake.on_call = [](FakeKernel &f) {
            CHECK(kernel_malloc(SIZE_MAX) == nullptr);
            f.result = halide_error_out_of_memory(f.user_context);
        };
        CHECK(fake.run(args).code == POLYHEAD_OUT_OF_MEMORY);
    }
    SECTION("scratch that cannot be had is found before the kernel starts") {
        fake.variant.scratch.per_thread = int64_t(1) << 56;
        const polyhead_status status = fake.run(args);
        CHECK(status.code == POLYHEAD_OUT_OF_MEMORY);
        CHECK(fake.calls == 0);
    }
    SECTION("a tensor between stages too large for Halide") {
        fake.result = runtime::kernel_buffer_too_large;
        CHECK(fake.run(args).code == POLYHEAD_UNSUPPORTED);
    }
}

TEST_CASE("runtime: memory of kernels", "[runtime]") {
    for (const size_t bytes : {size_t(0), size_t(1), size_t(4096), size_t(3) << 20, size_t(200) << 20}) {
        void *block = kernel_malloc(bytes);
        REQUIRE(block != nullptr);
        CHECK(reinterpret_cast<uintptr_t>(block) % 128 == 0);
        if (bytes > 0) {
            static_cast<char *>(block)[0] = 1;
            static_cast<char *>(block)[bytes - 1] = 1;
        }
        halide_free(nullptr, block);
    }
    halide_free(nullptr, nullptr);
    // Blocks that exist at the same time are distinct, whatever was freed before and by whom.
    const auto churn = [] {
        std::vector<unsigned char *> live;
        for (unsigned round = 0; round < 2000; ++round) {
            const size_t bytes = 64 + (round * 7919u) % 60000 + (round % 97 == 0 ? (2u << 20) : 0);
            auto *block = static_cast<unsigned char *>(kernel_malloc(bytes));
            std::memset(block, static_cast<int>(live.size()), 64);
            live.push_back(block);
            if (live.size() == 40) {
                for (size_t i = 0; i < live.size(); ++i) {
                    if (live[i][0] != i || live[i][63] != i) {
                        throw std::string("a block was given twice");
                    }
                    halide_free(nullptr, live[i]);
                }
                live.clear();
            }
        }
    };
    bool failed[3] = {};
    std::vector<std::thread> threads;
    for (bool &flag : failed) {
        threads.emplace_back([&churn, &flag] {
            try {
                churn();
            } catch (const std::string &) {
                flag = true;
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (const bool flag : failed) {
        CHECK(!flag);
    }
}

// docs/guides/guarantees.md states the sum of the limits.
TEST_CASE("runtime: memory that is kept between calls has a limit", "[runtime]") {
    using namespace polyhead::runtime;
    CHECK(thread_groups * kept_by_group + kept_by_process == size_t(384) << 20);
    const auto use = [](size_t bytes, int blocks) {
        std::vector<void *> live;
        for (int i = 0; i < blocks; ++i) {
            live.push_back(kernel_malloc(bytes));
            REQUIRE(live.back() != nullptr);
        }
        for (void *block : live) {
            halide_free(nullptr, block);
        }
    };
    give_kept_memory_back();
    CHECK(kept_memory() == 0);
    use(900 << 10, 30);
    const size_t small = kept_memory();
    CHECK(small <= kept_by_group);
    use(size_t(100) << 20, 5); // none is touched
    const size_t both = kept_memory();
    CHECK(both <= kept_by_group + kept_by_process);
    if (small > 0) { // with AddressSanitizer nothing is kept
        CHECK(small > kept_by_group / 2);
        CHECK(both > kept_by_process / 2);
    }
    use(size_t(300) << 20, 1); // too large to be kept
    CHECK(kept_memory() == both);
    // Threads end, and what they gave back stays within the limits of their groups.
    for (int i = 0; i < 40; ++i) {
        std::thread([&] { use(900 << 10, 12); }).join();
        REQUIRE(kept_memory() <= thread_groups * kept_by_group + kept_by_process);
    }
    give_kept_memory_back();
    CHECK(kept_memory() == 0);
}

TEST_CASE("runtime: scratch bytes", "[runtime]") {
    polyhead_set_num_threads(3);
    std::vector<float> data(4096);
    Problem p = sdpa(4, 2, 8, 6);
    FakeKernel fake(p);
    // Two batch rows; two heads to a key/value head, so 6 rows; 9 keys.
    fake.variant.scratch = {1000, {7, 0, 4, 0}, {{10, 4, 4, 0}, {100, 0, 0, 0}, {10000, 2, 0, 0}, {100000, 0, 5, 0}}};
    SdpaArgs args;
    args.query = view(data.data(), {2, 4, 3, 8});
    args.key = view(data.data(), {2, 2, 9, 8});
    args.value = view(data.data(), {2, 2, 9, 6});
    args.out = view(data.data() + 2048, {2, 4, 3, 6});
    constexpr int64_t of_thread = 1000 + 3 * 7;
    CHECK(fake.kernel().scratch_bytes(args) == held_scratch(of_thread + 2 * (2 * 3 * 10 + 100 + 3 * 10000 + 2 * 100000), of_thread, 2));
    args.out.shape[0] = 1;
    CHECK(fake.kernel().scratch_bytes(args) == -1);
    // More than 64 bits can count is more than there is.
    args.out.shape[0] = 2;
    fake.variant.scratch = {int64_t(1) << 62, {}, {}};
    CHECK(fake.kernel().scratch_bytes(args) == INT64_MAX);
    CHECK(fake.kernel().run(args).code() == POLYHEAD_OUT_OF_MEMORY);
    CHECK(fake.calls == 0);
    polyhead_set_num_threads(0);
}

// Correct calls of two stand-in kernels, which tests of refusals spoil in one thing each.
#ifndef POLYHEAD_TESTS_RUNTIME_CALLS_H
#define POLYHEAD_TESTS_RUNTIME_CALLS_H

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "runtime_fake.h"
#include "support/catch.h"

namespace polyhead::test {

inline constexpr int64_t B = 2, H = 4, H_kv = 2, T_q = 3, T_kv = 5, d = 8, d_v = 6;
inline constexpr float untouched = 12345.0f;

// A call was refused with this sentence, before anything was written.
inline void check_refused(const polyhead_status &status, polyhead_code code, const std::string &message,
                          std::initializer_list<const std::vector<float> *> outputs) {
    CHECK(status.code == code);
    CHECK(std::string(status.message) == message);
    for (const std::vector<float> *output : outputs) {
        CHECK(*output == std::vector<float>(output->size(), untouched));
    }
}

// And before the kernel was called.
inline void check_refused(const FakeKernel &fake, const polyhead_args &args, polyhead_code code, const std::string &message,
                          std::initializer_list<const std::vector<float> *> outputs) {
    check_refused(fake.run(args), code, message, outputs);
    CHECK(fake.calls == 0);
}

// A correct call of grouped attention with all optional tensors; tests spoil one thing each.
struct SdpaCall {
    std::vector<float> query = std::vector<float>(B * H * T_q * d), key = std::vector<float>(B * H_kv * T_kv * d),
                       value = std::vector<float>(B * H_kv * T_kv * d_v), out = std::vector<float>(B * H * T_q * d_v, untouched),
                       lse = std::vector<float>(B * H * T_q, untouched);
    std::vector<int32_t> lengths = {5, 0};
    FakeKernel fake{problem()};
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);

    static Problem problem() {
        Problem p = sdpa(H, H_kv, d, d_v);
        p.kv_lengths = p.lse = 1;
        p.causal = POLYHEAD_BOTTOM_RIGHT;
        return p;
    }
    SdpaCall() {
        args.query = view(query.data(), {B, H, T_q, d});
        args.key = view(key.data(), {B, H_kv, T_kv, d});
        args.value = view(value.data(), {B, H_kv, T_kv, d_v});
        args.kv_lengths = view(lengths.data(), {B});
        args.out = view(out.data(), {B, H, T_q, d_v});
        args.lse = view(lse.data(), {B, H, T_q});
    }
    void refused(polyhead_code code, const std::string &message) { check_refused(fake, args, code, message, {&out, &lse}); }
};

// The same tensors as packed tokens, three of them in three sequences of which one is empty. The kernel takes nothing else.
struct ThreeTokens : SdpaCall {
    ThreeTokens() {
        fake.table.problem = sdpa(H, H_kv, d, d_v);
        args.query = view(query.data(), {1, H, 3, d});
        args.key = view(key.data(), {1, H_kv, 3, d});
        args.value = view(value.data(), {1, H_kv, 3, d_v});
        args.out = view(out.data(), {1, H, 3, d_v});
        args.kv_lengths = args.lse = polyhead_tensor{};
        args.cu_seqlens_q = args.cu_seqlens_kv = view(begins.data(), {4});
    }
    std::vector<int32_t> begins = {0, 1, 1, 3};
};

struct MhaCall {
    explicit MhaCall(Problem p = mha(8, 2)) : problem(p), fake(p) {
        const size_t bytes = polyhead_weights_bytes(&fake.table);
        memory.resize(bytes / sizeof(float) + 16);
        void *aligned = memory.data();
        size_t space = memory.size() * sizeof(float);
        std::align(64, bytes, aligned, space);
        weights = {aligned, bytes, contract::weight_layout_id(p), POLYHEAD_WEIGHT_PANEL, POLYHEAD_F32, nullptr};
        args.query = view(input.data(), {B, T_q, 8});
        if (p.cross) {
            args.key = view(key.data(), {B, T_kv, p.kdim});
            args.value = view(value.data(), {B, T_kv, p.vdim});
        }
        args.weights = &weights;
        args.out = view(out.data(), {B, T_q, 8});
    }
    static Problem cross() {
        Problem p = mha(8, 2);
        p.cross = 1;
        p.kdim = 10;
        p.vdim = 12;
        p.bias = 1;
        p.kv_lengths = 1;
        return p;
    }
    void refused(polyhead_code code, const std::string &message) { check_refused(fake, args, code, message, {&out}); }

    Problem problem;
    FakeKernel fake;
    std::vector<float> input = std::vector<float>(B * T_q * 8), key = std::vector<float>(B * T_kv * 12),
                       value = std::vector<float>(B * T_kv * 12), out = std::vector<float>(B * T_q * 8, untouched), memory;
    polyhead_weights weights{};
    polyhead_args args = polyhead_args_of(POLYHEAD_MHA);
};

} // namespace polyhead::test
#endif

// A correct call of a stand-in kernel that was built with every mask, modifier and output; tests spoil one thing each, or leave some out.
#ifndef POLYHEAD_TESTS_RUNTIME_FEATURES_H
#define POLYHEAD_TESTS_RUNTIME_FEATURES_H

#include <string>
#include <utility>
#include <vector>

#include "runtime_calls.h"

namespace polyhead::test {

inline constexpr int64_t P = 12, pairs = 3; // rows of the rotary tables, pairs that are rotated

inline TensorView view_bool(const std::vector<uint8_t> &data, std::initializer_list<int64_t> shape) {
    return TensorView(const_cast<uint8_t *>(data.data()), DType::boolean, shape);
}

struct FeatureCall {
    using Floats = std::vector<float>;
    Floats query = Floats(B * H * T_q * d), key = Floats(B * H_kv * T_kv * d), value = Floats(B * H_kv * T_kv * d_v),
           additive = Floats(B * H * T_q * T_kv), score_bias = Floats(H * T_q * T_kv), slopes = Floats(B * H), sinks = Floats(H),
           cosine = Floats(P * pairs), sine = Floats(P * pairs), gate = Floats(H), table = Floats(H * 7), threshold = Floats(1),
           out = Floats(B * H * T_q * d_v, untouched), lse = Floats(B * H * T_q, untouched), scores = Floats(B * H * T_q * T_kv, untouched),
           weights_mean = Floats(B * T_q * T_kv, untouched);
    std::vector<uint8_t> boolean = std::vector<uint8_t>(B * H * T_q * T_kv, 1), kept = std::vector<uint8_t>(B * T_kv, 1);
    std::vector<int32_t> lengths = {5, 0}, offsets = {2, 1}, positions_q = std::vector<int32_t>(B * T_q),
                         positions_kv = std::vector<int32_t>(B * T_kv);
    // table(h, free), threshold(), kept(b, kv)
    std::vector<polyhead_declaration> declarations = {{"table", POLYHEAD_F32, 2, {POLYHEAD_EXTENT_H, POLYHEAD_EXTENT_FREE}},
                                                      {"threshold", POLYHEAD_F32, 0, {}},
                                                      {"kept", POLYHEAD_BOOL, 2, {POLYHEAD_EXTENT_B, POLYHEAD_EXTENT_KV}}};
    std::vector<TensorView> expression_tensors;
    FakeKernel fake{problem()};
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);

    static Problem problem() {
        Problem p = sdpa(H, H_kv, d, d_v);
        p.window = p.position_offsets = p.kv_lengths = p.score_bias = p.softcap = p.alibi = p.sinks = p.head_gate = 1;
        p.mask = POLYHEAD_BOOLEAN_MASK;
        p.rope = POLYHEAD_ROPE_HALF_SPLIT;
        p.rotary_dim = 2 * pairs;
        p.lse = p.weights_mean = 1;
        p.scores = POLYHEAD_LOGITS;
        p.expression = "kept"; // no one parses it here
        return p;
    }
    FeatureCall() {
        fake.table.declarations = declarations.data();
        fake.table.num_declarations = static_cast<int32_t>(declarations.size());
        args.query = view(query.data(), {B, H, T_q, d});
        args.key = view(key.data(), {B, H_kv, T_kv, d});
        args.value = view(value.data(), {B, H_kv, T_kv, d_v});
        args.kv_lengths = view(lengths.data(), {B});
        args.position_offsets = view(offsets.data(), {B});
        args.has_window = 1;
        args.window_left = 2;
        args.window_right = -1;
        args.mask = view_bool(boolean, {B, H, T_q, T_kv});
        args.score_bias = view(score_bias.data(), {H, T_q, T_kv});
        args.softcap = 30;
        args.alibi_slopes = view(slopes.data(), {B, H});
        args.sinks = view(sinks.data(), {H});
        args.rope_cos = view(cosine.data(), {P, pairs});
        args.rope_sin = view(sine.data(), {P, pairs});
        args.positions_q = view(positions_q.data(), {B, T_q});
        args.positions_kv = view(positions_kv.data(), {B, T_kv});
        args.head_gate = view(gate.data(), {H});
        expression_tensors = {view(table.data(), {H, 7}), view(threshold.data(), {1}), view_bool(kept, {B, T_kv})};
        args.expression_tensors = expression_tensors.data();
        args.num_expression_tensors = static_cast<int32_t>(expression_tensors.size());
        args.out = view(out.data(), {B, H, T_q, d_v});
        args.lse = view(lse.data(), {B, H, T_q});
        args.scores = view(scores.data(), {B, H, T_q, T_kv});
        args.weights_mean = view(weights_mean.data(), {B, T_q, T_kv});
    }
    FeatureCall(const FeatureCall &) = delete;
    FeatureCall &operator=(const FeatureCall &) = delete;

    Problem &built() { return fake.table.problem; }
    void additive_mask() {
        built().mask = POLYHEAD_ADDITIVE_MASK;
        args.mask = view(additive.data(), {B, H, T_q, T_kv});
    }
    // Leaves out every tensor that a call may leave out; the mask and score_bias of this kernel then have one element over keys.
    void leave_out() {
        built().mask_broadcast = built().score_bias_broadcast = POLYHEAD_BROADCAST_KV;
        for (polyhead_tensor *t : {&args.kv_lengths, &args.position_offsets, &args.mask, &args.score_bias, &args.alibi_slopes, &args.sinks,
                                   &args.positions_q, &args.positions_kv, &args.head_gate}) {
            *t = polyhead_tensor{};
        }
    }
    void refused(polyhead_code code, const std::string &message) {
        const polyhead_status status = fake.run(args);
        CHECK(status.code == code);
        CHECK(std::string(status.message) == message);
        CHECK(fake.calls == 0);
        for (const Floats *output : {&out, &lse, &scores, &weights_mean}) {
            CHECK(*output == Floats(output->size(), untouched));
        }
    }
    void accepted() {
        const polyhead_status status = fake.run(args);
        INFO(status.message);
        CHECK(status.code == POLYHEAD_OK);
        CHECK(fake.calls == 1);
        fake.calls = 0;
    }
};

} // namespace polyhead::test
#endif

// Kernels of a set with masks, modifiers, outputs and expressions: which one serves a problem, and what the set says when none does.
#include "instruments/calls/problems.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

const Kernel *find(const Problem &kernel_problem, const Problem &wanted) {
    static const polyhead_variant variant = [] {
        polyhead_variant v{};
        v.name = "variant";
        v.abi = POLYHEAD_ABI_VERSION;
        return v;
    }();
    static Kernel kernel(polyhead_kernel{});
    kernel = Kernel(polyhead_kernel{POLYHEAD_SIZES, kernel_problem, "kernel", &variant, nullptr, 1, 0, 0, 0});
    const Kernel *const set[] = {&kernel};
    return find_kernel(set, 1, wanted);
}

bool serves(const Problem &kernel, const Problem &wanted) {
    return find(kernel, wanted) != nullptr;
}

Problem with(Problem p, int32_t Problem::*field, int32_t value) {
    p.*field = value;
    return p;
}

Problem with_expression(Problem p, const char *text) {
    p.expression = text;
    return p;
}

} // namespace

TEST_CASE("registry: what a call may leave out does not decide, what it cannot does", "[runtime]") {
    const Problem plain = sdpa_problem(4, 16);
    for (int32_t Problem::*field : {&Problem::kv_lengths, &Problem::window, &Problem::position_offsets, &Problem::mask,
                                    &Problem::score_bias, &Problem::alibi, &Problem::sinks, &Problem::head_gate}) {
        const Problem richer = with(plain, field, 1);
        CHECK(serves(richer, richer));
        CHECK(serves(richer, plain));
        CHECK(!serves(plain, richer));
    }
    for (int32_t Problem::*field : {&Problem::causal, &Problem::lse, &Problem::softcap, &Problem::rope, &Problem::scores,
                                    &Problem::weights_mean, &Problem::value_in_key, &Problem::page_size}) {
        const Problem richer = with(plain, field, 1);
        CHECK(serves(richer, richer));
        CHECK(!serves(richer, plain));
        CHECK(!serves(plain, richer));
    }
    const Problem boolean = with(plain, &Problem::mask, POLYHEAD_BOOLEAN_MASK),
                  additive = with(plain, &Problem::mask, POLYHEAD_ADDITIVE_MASK);
    CHECK(!serves(boolean, additive));
    CHECK(!serves(additive, boolean));
    const Problem rope = with(plain, &Problem::rope, POLYHEAD_ROPE_HALF_SPLIT);
    CHECK(serves(rope, with(rope, &Problem::rotary_dim, 16))); // which is what 0 means
    CHECK(!serves(rope, with(rope, &Problem::rotary_dim, 8)));
    CHECK(!serves(with(plain, &Problem::scores, POLYHEAD_WEIGHTS), with(plain, &Problem::scores, POLYHEAD_LOGITS)));
}

TEST_CASE("registry: a kernel with free heads serves every number of them in its group size", "[runtime]") {
    Problem free = sdpa_problem(0, 16);
    free.group_size = 4;
    CHECK(serves(free, free));
    CHECK(serves(free, sdpa_problem(8, 16, 2)));
    CHECK(serves(free, sdpa_problem(128, 16, 32)));
    CHECK(!serves(free, sdpa_problem(8, 16, 4)));
    CHECK(!serves(free, sdpa_problem(8, 16)));
    CHECK(!serves(free, sdpa_problem(8, 24, 2)));
    CHECK(!serves(sdpa_problem(8, 16, 2), free));
    Problem unsized = free;
    unsized.size = 0;
    const Kernel kernel(polyhead_kernel{POLYHEAD_SIZES, free, "free", nullptr, nullptr, 0, 0, 0, 0});
    const Kernel *const set[] = {&kernel};
    CHECK(find_kernel(set, 1, unsized) == nullptr);
    CHECK(explain(set, 1, unsized) == "problem: polyhead_problem of 0 bytes, expected " + std::to_string(sizeof(Problem)) +
                                          ": begin it with polyhead_problem_of() of polyhead " + polyhead_version() + "\n");
}

TEST_CASE("registry: a kernel with free groups serves every number of heads", "[runtime]") {
    Problem free = sdpa_problem(0, 16), of_four = free;
    free.free_group_size = 1;
    of_four.group_size = 4;
    CHECK(serves(free, free));
    CHECK(serves(free, sdpa_problem(8, 16, 2)));
    CHECK(serves(free, sdpa_problem(7, 16, 1)));
    CHECK(serves(free, of_four));
    CHECK(!serves(free, sdpa_problem(8, 24, 2)));
    CHECK(!serves(of_four, free));
    CHECK(!serves(sdpa_problem(8, 16, 2), free));
}

TEST_CASE("registry: a mask of one row fits a kernel that takes one per query", "[runtime]") {
    const Problem mask = with(sdpa_problem(4, 16), &Problem::mask, POLYHEAD_BOOLEAN_MASK);
    const auto broadcast = [&](int32_t bits) { return with(mask, &Problem::mask_broadcast, bits); };
    const int q = POLYHEAD_BROADCAST_Q, kv = POLYHEAD_BROADCAST_KV;
    for (int kernel = 0; kernel < 4; kernel++) {
        for (int wanted = 0; wanted < 4; wanted++) {
            const bool expected = (kernel & kv) == (wanted & kv) && ((kernel & q) == 0 || (wanted & q) != 0);
            CHECK(serves(broadcast(kernel), broadcast(wanted)) == expected);
        }
        CHECK(serves(broadcast(kernel), sdpa_problem(4, 16)));
    }
}

TEST_CASE("registry: expressions are the same but for comments and blanks", "[runtime]") {
    const Problem plain = sdpa_problem(4, 16), soft = with_expression(plain, "tensor t: f32\nscore = score - t # soften\n");
    CHECK(serves(soft, with_expression(plain, "tensor t:f32; score=score-t")));
    CHECK(!serves(soft, with_expression(plain, "tensor t: f32; score = score + t")));
    CHECK(!serves(soft, plain));
    CHECK(!serves(plain, soft));
    CHECK(serves(plain, with_expression(plain, "")));
}

TEST_CASE("registry: the set says how the nearest kernel differs, and the line that makes the wanted one", "[runtime]") {
    const Problem plain = sdpa_problem(4, 16);
    Problem wanted = with_expression(plain, "score = score * 2 # twice\nmask = kv <= p");
    wanted.mask = POLYHEAD_ADDITIVE_MASK;
    wanted.mask_broadcast = POLYHEAD_BROADCAST_Q;
    wanted.rope = POLYHEAD_ROPE_INTERLEAVED;
    wanted.scores = POLYHEAD_WEIGHTS;
    wanted.window = wanted.weights_mean = 1;
    const Kernel kernel(polyhead_kernel{POLYHEAD_SIZES, plain, "plain", nullptr, nullptr, 0, 0, 0, 0});
    const Kernel *const set[] = {&kernel};
    CHECK(explain(set, 1, wanted) ==
          "No kernel of the set computes this problem; the nearest, plain, differs: window 0, wanted 1; mask none, wanted additive; "
          "rope none, wanted interleaved; rotary_dim 0, wanted 16; scores none, wanted weights; "
          "weights_mean 0, wanted 1; expression none, wanted 'score=score*2;mask=kv<=p'.\nAdd one with:\n"
          "  polyhead generate NAME --op sdpa --num-heads 4 --head-dim 16 --window --mask additive --mask-broadcast q --rope interleaved "
          "--scores weights --weights-mean --dtype f32 --expression 'score=score*2;mask=kv<=p'\n");
}

// Choice of random problems.
#include "random_problem.h"

#include "instruments/calls/problems.h"

namespace polyhead::test {

namespace {

// num_heads and a divisor of it.
void choose_heads(Problem &p, Random &random, const std::vector<int32_t> &choices) {
    p.num_heads = random.pick(choices);
    std::vector<int32_t> divisors;
    for (int32_t n = 1; n <= p.num_heads; n++) {
        if (p.num_heads % n == 0) {
            divisors.push_back(n);
        }
    }
    p.num_kv_heads = random.chance(50) ? p.num_heads : random.pick(divisors);
}

void choose_masks(Problem &p, Random &random) {
    p.causal = random.pick(std::vector<int32_t>{POLYHEAD_NOT_CAUSAL, POLYHEAD_NOT_CAUSAL, POLYHEAD_BOTTOM_RIGHT, POLYHEAD_TOP_LEFT});
    p.kv_lengths = random.chance(55);
    p.lse = random.chance(45);
}

Problem random_sdpa(Random &random) {
    const std::vector<int32_t> dims = {1,  2,  3,  7,  8,  15, 16, 17, 24,  31,  32,  33,  40,  48,
                                       63, 64, 64, 65, 72, 80, 96, 99, 127, 128, 129, 160, 200, 256};
    Problem p = sdpa_problem(1, random.pick(dims));
    p.head_dim_v = random.chance(60) ? p.head_dim : random.pick(dims);
    choose_heads(p, random, {1, 2, 3, 4, 5, 6, 8, 12, 16});
    const int64_t rare = random.below(20);
    if (rare == 0) { // many small heads
        p.head_dim = static_cast<int32_t>(random.between(1, 8));
        p.head_dim_v = static_cast<int32_t>(random.between(1, 8));
        choose_heads(p, random, {64, 96, 127, 128});
    } else if (rare == 1) { // the largest head
        p.head_dim = random.chance(50) ? 576 : 512;
        p.head_dim_v = random.chance(50) ? 512 : 575;
        choose_heads(p, random, {1, 2});
    }
    choose_masks(p, random);
    if (random.chance(15)) {
        p.seq_len_q = random.pick(std::vector<int32_t>{1, 3, 33, 128, 197});
    }
    if (random.chance(15)) {
        p.seq_len_kv = random.pick(std::vector<int32_t>{1, 31, 127, 300, 513});
    }
    // EXCLUDED: values in narrower keys: value_in_key (c_problem.h)
    p.value_in_key = p.head_dim_v <= p.head_dim && random.chance(15);
    // EXCLUDED: pages with a fixed number of keys: plan/problem.cpp refuses them
    if (p.seq_len_kv == 0 && random.chance(15)) {
        p.page_size = random.pick(std::vector<int32_t>{1, 2, 16, 32, 64, 256});
    }
    if (random.chance(15)) {
        p.int8_cache = 1;
        const int32_t channels = random.pick(std::vector<int32_t>{0, 0, 32, 64});
        p.scale_channels = channels > 0 && p.head_dim % channels == 0 && p.head_dim_v % channels == 0 ? channels : 0;
    }
    if (random.chance(10)) { // heads are free at run time
        p.group_size = p.num_heads / p.num_kv_heads;
        p.num_heads = p.num_kv_heads = 0;
    }
    return p;
}

Problem random_mha(Random &random) {
    const std::vector<int32_t> dims = {1, 5, 8, 16, 24, 32, 33, 48, 64};
    Problem p = mha_problem(1, 1, 0, random.pick(dims));
    choose_heads(p, random, {1, 2, 3, 4, 6, 8});
    p.head_dim_v = random.chance(70) ? p.head_dim : random.pick(dims);
    p.embed_dim = random.chance(70) ? p.num_heads * p.head_dim : static_cast<int32_t>(random.between(1, 300));
    p.kdim = p.vdim = p.embed_dim;
    p.bias = random.chance(60);
    choose_masks(p, random);
    p.cross = random.chance(40);
    if (p.cross != 0 && random.chance(60)) {
        p.kdim = static_cast<int32_t>(random.between(1, 300));
        p.vdim = static_cast<int32_t>(random.between(1, 300));
    }
    if (random.chance(15)) {
        p.seq_len_q = random.pick(std::vector<int32_t>{1, 33, 128, 197});
        p.seq_len_kv = p.cross != 0 ? (random.chance(50) ? 77 : 0) : p.seq_len_q;
    }
    if (p.cross == 0 && random.chance(40)) {
        p.cache = 1;
        p.kv_lengths = p.seq_len_kv = 0;
        p.page_size = random.chance(40) ? random.pick(std::vector<int32_t>{1, 2, 16, 32, 64, 256}) : 0;
    }
    return p;
}

} // namespace

Problem random_problem(Random &random) {
    const int64_t kind = random.below(20);
    if (kind < 11) {
        return random_sdpa(random);
    }
    if (kind < 18) {
        return random_mha(random);
    }
    Problem p = linear_problem(static_cast<int>(random.between(1, 800)), static_cast<int>(random.between(1, 900)));
    p.bias = random.chance(50);
    p.seq_len_q = random.chance(25) ? static_cast<int32_t>(random.between(1, 300)) : 0;
    return p;
}

} // namespace polyhead::test

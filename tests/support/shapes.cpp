// Choice of run-time shapes.
#include "shapes.h"

#include <algorithm>
#include <cmath>

#include "environment.h"
#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "instruments/reference/visibility.h"

namespace polyhead::test {

namespace {

const std::vector<int64_t> awkward_lengths = {1, 7, 31, 33, 64, 127, 128, 129, 300, 500, 577, 700};
constexpr double element_limit = 3e6, flop_limit = 3e8;

double cost_of_reference(const Problem &p, const Shape &s) {
    const double batch = static_cast<double>(s.batch), q = static_cast<double>(s.seq_len_q), kv = static_cast<double>(s.seq_len_kv);
    if (is_linear(p)) {
        return std::max(q * (p.embed_dim + p.out_features) / element_limit, 2 * q * p.embed_dim * p.out_features / (4 * flop_limit));
    }
    const double dims = p.head_dim + p.head_dim_v, pairs = batch * q * kv;
    // The reference only samples rows; of gradients it samples heads, but makes out and lse of all.
    const double attention = 2 * batch * p.num_heads * q * kv * dims / (is_backward(p) ? flop_limit / 3 : 10 * flop_limit);
    double elements = batch * dims * (p.num_heads * q + p.num_kv_heads * kv), projections = 0;
    elements += (p.scores != POLYHEAD_NO_SCORES ? p.num_heads * pairs : 0) + (p.weights_mean != 0 ? pairs : 0);
    elements += p.num_heads * pairs * ((p.mask != 0 ? 0.25 : 0) + (p.score_bias != 0 ? 0.25 : 0) + (has_expression(p) ? 0.5 : 0));
    if (is_mha(p)) {
        elements += batch * (q * 2 * p.embed_dim + kv * (p.kdim + p.vdim));
        projections = 2 * batch * kv * p.num_kv_heads * (1.0 * p.kdim * p.head_dim + 1.0 * p.vdim * p.head_dim_v) / flop_limit;
    }
    return std::max({attention, elements / element_limit, projections});
}

// Rough cost of a shape relative to what one check may cost; 1 = at the limit.
double cost(const Problem &p, const Shape &s) {
    return std::max(cost_of_reference(p, s), multiply_adds(p, s) / test_budget());
}

// Makes the lengths agree with the problem: fixed ones, and one length for self-attention.
void obey(const Problem &p, Shape &s) {
    s.seq_len_q = p.seq_len_q != 0 ? p.seq_len_q : s.seq_len_q;
    s.seq_len_kv = p.seq_len_kv != 0 ? p.seq_len_kv : s.seq_len_kv;
    if (p.cache != 0) {
        s.seq_len_kv = std::max(s.seq_len_kv, s.seq_len_q);
    } else if (is_mha(p) && p.cross == 0) {
        s.seq_len_kv = s.seq_len_q = p.seq_len_q != 0 ? p.seq_len_q : p.seq_len_kv != 0 ? p.seq_len_kv : s.seq_len_q;
    }
    if (is_linear(p)) {
        s.batch = 1;
        s.seq_len_kv = 0;
    }
}

// EXCLUDED: shapes that cost more than the limit: the time of the reference, POLYHEAD_TEST_BUDGET
void make_affordable(const Problem &p, Shape &s, double limit) {
    obey(p, s);
    for (int step = 0; cost(p, s) > limit && step < 40; step++) {
        if (s.batch > 1) {
            s.batch--;
        } else if (s.seq_len_q >= s.seq_len_kv) {
            s.seq_len_q = s.seq_len_q * 3 / 4 + 1;
        } else {
            s.seq_len_kv = s.seq_len_kv * 3 / 4 + 1;
        }
        obey(p, s);
    }
}

int32_t random_length(int64_t seq_len_kv, Random &random) {
    switch (random.below(5)) {
    case 0:
        return static_cast<int32_t>(seq_len_kv);
    case 1:
        // EXCLUDED: lengths beyond the keys: 0..T_kv (c_api.h); check_refusals.cpp has them
        return static_cast<int32_t>(std::min<int64_t>(seq_len_kv, random.below(3)));
    default:
        return static_cast<int32_t>(random.between(0, seq_len_kv));
    }
}

// Everything but batch and lengths of the sequences.
void decorate(const Problem &p, Shape &s, Random &random) {
    const std::vector<Layout> layouts = {Layout::bhsd, Layout::bshd, Layout::bhsd_padded, Layout::bshd_padded};
    s.query = random.pick(layouts);
    s.key = random.pick(layouts);
    s.value = random.pick(layouts);
    s.out = random.pick(layouts);
    s.place = random.pick(std::vector<Place>{Place::inside, Place::at_end, Place::at_begin});
    s.seed = random.bits() >> 32;
    if (is_linear(p)) {
        return;
    }
    if (p.kv_lengths != 0 && random.chance(85)) {
        for (int64_t b = 0; b < s.batch; b++) {
            s.lengths.push_back(random_length(s.seq_len_kv, random));
        }
    }
    for (int64_t b = 0; p.cache != 0 && b < s.batch; b++) {
        s.lengths.push_back(random_length(s.seq_len_kv - s.seq_len_q, random));
    }
    const bool shared = (is_sdpa(p) || p.cross != 0) && random.chance(12);
    if (shared) {
        s.key = s.value = Layout::shared;
    }
    s.poison = !shared && random.chance(60);
    if (knows_positions(p)) {
        s.alignment = random.pick(std::vector<Alignment>{Alignment::of_problem, Alignment::bottom_right, Alignment::top_left});
    }
    if (rows_differ(p) && !shared && s.seq_len_kv > 0 && random.chance(25)) {
        s.poison_key = random.below(s.seq_len_kv);
    }
    if (is_backward(p) && rows_differ(p) && s.seq_len_q > 0 && random.chance(25)) {
        s.poison_query = random.below(s.seq_len_q);
    }
    Random extras(s.seed);
    s.extras = random_extras(p, s.seq_len_q, s.seq_len_kv, extras);
    if (random.chance(25)) {
        s.softmax_scale = random.pick(std::vector<float>{0.05f, 0.3f, 1.0f});
    }
    s.values = random.pick(std::vector<Values>{Values::normal, Values::normal, Values::peaked, Values::extreme_logits, Values::huge_values,
                                               Values::values_near_one});
    if (s.values == Values::extreme_logits && (!is_sdpa(p) || p.rope != 0 || p.alibi != 0 || has_expression(p))) {
        // EXCLUDED: extreme logits behind projections, rotations, slopes and expressions: these would blur the exact distances of the
        // logits that the tolerance needs (docs/internals/algorithm.md, section 8)
        s.values = Values::normal;
    }
}

int64_t random_seq_len(Random &random) {
    if (random.chance(5)) {
        return 0;
    }
    switch (random.below(4)) {
    case 0:
        return random.pick(awkward_lengths);
    case 1:
        return random.between(0, 20);
    case 2:
        return random.between(1, 200);
    default:
        return random.between(1, 700);
    }
}

} // namespace

double multiply_adds(const Problem &p, const Shape &s) {
    const double rows = static_cast<double>(s.batch * s.seq_len_q), keys = static_cast<double>(s.batch * s.seq_len_kv);
    if (is_linear(p)) {
        return rows * p.embed_dim * p.out_features;
    }
    const double products = is_backward(p) ? 3.0 * p.head_dim + 2.0 * p.head_dim_v : p.head_dim + p.head_dim_v;
    double sum = rows * static_cast<double>(s.seq_len_kv) * p.num_heads * products;
    if (is_mha(p)) {
        sum += rows * p.embed_dim * p.num_heads * (p.head_dim + p.head_dim_v);
        sum += keys * p.num_kv_heads * (1.0 * p.kdim * p.head_dim + 1.0 * p.vdim * p.head_dim_v);
    }
    return sum;
}

Shape random_shape(const Problem &problem, Random &random) {
    Shape s;
    s.batch = random.pick(std::vector<int64_t>{1, 1, 2, 3, 7});
    s.seq_len_q = random_seq_len(random);
    s.seq_len_kv = random.chance(40) ? s.seq_len_q : random_seq_len(random);
    make_affordable(problem, s, random.chance(20) ? 3.0 : 1.0);
    decorate(problem, s, random);
    return s;
}

std::vector<Shape> awkward_shapes(const Problem &problem, uint64_t seed, int count) {
    static const int64_t pairs[][3] = {{1, 1, 1},     {2, 33, 129}, {1, 577, 577}, {7, 7, 31},    {1, 1, 700},  {1, 129, 64},
                                       {1, 300, 500}, {1, 64, 0},   {3, 128, 127}, {1, 700, 300}, {2, 31, 33},  {1, 500, 1},
                                       {1, 0, 64},    {0, 5, 5},    {1, 4, 577},   {2, 16, 128},  {1, 127, 128}};
    Random random(seed);
    std::vector<Shape> shapes;
    for (const auto &pair : pairs) {
        if (static_cast<int>(shapes.size()) == count) {
            return shapes;
        }
        Shape s;
        s.batch = pair[0];
        s.seq_len_q = pair[1];
        s.seq_len_kv = pair[2];
        make_affordable(problem, s, 4.0);
        decorate(problem, s, random);
        shapes.push_back(s);
    }
    while (static_cast<int>(shapes.size()) < count) {
        shapes.push_back(random_shape(problem, random));
    }
    return shapes;
}

Shape plain_shape(const Problem &problem, int64_t batch, int64_t seq_len_q, int64_t seq_len_kv, uint64_t seed) {
    Shape s;
    s.batch = batch;
    s.seq_len_q = seq_len_q;
    s.seq_len_kv = seq_len_kv;
    s.seed = seed;
    make_affordable(problem, s, 4.0);
    s.seq_len_kv = in_whole_pages(problem, s.seq_len_kv);
    return s;
}

std::vector<int32_t> lengths_within(const Shape &shape, std::vector<int32_t> wanted) {
    wanted.resize(static_cast<size_t>(shape.batch));
    for (int32_t &length : wanted) {
        length = static_cast<int32_t>(std::min<int64_t>(length, shape.seq_len_kv));
    }
    return wanted;
}

Shape crowded_shape() {
    Shape s;
    s.batch = 3;
    s.seq_len_q = 11;
    s.seq_len_kv = 20;
    s.lengths = {20, 5, 0};
    s.query = s.value = s.out = Layout::bshd_padded;
    s.key = Layout::bhsd_padded;
    s.place = Place::at_end;
    s.poison = true;
    return s;
}

Shape same_bits_shape(const Problem &problem, uint64_t seed) {
    const bool emulated = std::isfinite(test_budget());
    const int64_t room = emulated ? 70 : 300; // for padding after the longest row
    Random random(seed);
    Shape s;
    s.batch = emulated ? 4 : 7;
    s.seq_len_q = random.pick(emulated ? std::vector<int64_t>{1, 5, 18} : std::vector<int64_t>{1, 5, 33, 70});
    const bool padded = problem.kv_lengths != 0 || problem.cache != 0;
    s.seq_len_kv = padded ? random.between(room + 1, 2 * room - 40) : random.between(1, room + 100);
    s.seq_len_kv += problem.cache != 0 ? s.seq_len_q : 0;
    obey(problem, s);
    // EXCLUDED: many batch rows of long fixed lengths: the time of the reference, POLYHEAD_TEST_BUDGET
    while (s.batch > 2 && cost(problem, s) > 6.0) {
        s.batch--;
    }
    s.seed = seed;
    s.poison = true;
    Random extras(seed);
    s.extras = random_extras(problem, s.seq_len_q, s.seq_len_kv, extras);
    if (padded) {
        const int64_t keys = s.seq_len_kv - (problem.cache != 0 ? s.seq_len_q : 0);
        const int64_t longest = std::max<int64_t>(std::min<int64_t>(keys, 1), keys - room);
        for (int64_t b = 0; b < s.batch; b++) {
            s.lengths.push_back(static_cast<int32_t>(b == s.batch / 2 ? longest : random.between(0, longest)));
        }
    }
    return s;
}

} // namespace polyhead::test

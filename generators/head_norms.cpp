// Norms of query, key and value.
#include "head_norms.h"

#include <algorithm>

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;
using Halide::RDom;

namespace {

// One of query, key and value: what is normalised, and how.
struct Heads {
    std::string name;
    KeySource::Element load; // an entry as a float
    int32_t kind;            // polyhead_norm
    int width;
    Expr number, tokens;
    bool together, weighted; // all heads of a token are one; the norm has a weight, and where it is centred a bias
};

// The entry of vector v that lies in a lane, and whether there is one.
struct Entry {
    Expr at, exists;
};

Entry entry_of(const HeadNorm &n, int width) {
    const Expr at = n.lane + n.lanes * n.entries.x;
    return width % n.lanes == 0 ? Entry{at, Halide::Internal::const_true()} : Entry{Halide::min(at, width - 1), at < width};
}

// to(lane, t, h, b) = the sum over the entries of a lane, then over all lanes.
Func sum_of(HeadNorm *n, const std::string &name, Func *lanes, int width, const Expr &term) {
    Func sum(name);
    *lanes = Func(name + "_of_lanes");
    const Entry entry = entry_of(*n, width);
    (*lanes)(n->lane, n->t, n->h, n->b) = 0.0f;
    (*lanes)(n->lane, n->t, n->h, n->b) += width % n->lanes == 0 ? term : Halide::select(entry.exists, term, 0.0f);
    sum(n->t, n->h, n->b) = 0.0f;
    sum(n->t, n->h, n->b) += (*lanes)(n->all_lanes, n->t, n->h, n->b);
    return sum;
}

HeadNorm norm_of(const Heads &heads, int most_lanes, const AttentionInputs &in) {
    HeadNorm n;
    while (n.lanes * 2 <= std::min(most_lanes, heads.width)) {
        n.lanes *= 2;
    }
    n.width = heads.width;
    n.together = heads.together;
    n.centred = heads.kind == POLYHEAD_LAYER_NORM;
    n.tokens = heads.tokens;
    n.heads = heads.number * in.batch;
    const int vectors = (heads.width + n.lanes - 1) / n.lanes;
    n.entries = RDom({{0, vectors}, {0, heads.together ? heads.number : Expr(1)}}, heads.name + "_entries");
    n.all_lanes = RDom(0, n.lanes, heads.name + "_lanes");
    const Expr head = heads.together ? Expr(n.entries.y) : Expr(n.h), of = heads.width * (heads.together ? heads.number : Expr(1));
    const Expr x = heads.load(entry_of(n, heads.width).at, n.t, head, n.b), count = Halide::cast<float>(of);
    if (n.centred) {
        n.sum = sum_of(&n, heads.name + "_sum", &n.lane_sums, heads.width, x);
        n.mean = Func(heads.name + "_mean");
        n.mean(n.t, n.h, n.b) = n.sum(n.t, n.h, n.b) / count;
    }
    const Expr difference = n.centred ? x - n.mean(n.t, n.h, n.b) : x;
    n.squares = sum_of(&n, heads.name + "_squares", &n.lane_squares, heads.width, difference * difference);
    n.factor = Func(heads.name + "_factor");
    n.factor(n.t, n.h, n.b) = 1.0f / Halide::sqrt(n.squares(n.t, n.h, n.b) / count + in.number("norm_epsilon"));
    if (heads.weighted) { // small Funcs: a weight of the caller may have stride 0, and would not be loaded in vectors
        const Expr index = heads.together ? n.h * heads.width + n.d : Expr(n.d);
        const Expr given = in.element((heads.name + "_norm_weight").c_str(), {index});
        n.weight = Func(heads.name + "_weight");
        n.weight(n.d, n.h) = heads.kind == POLYHEAD_RMS_NORM_PLUS_ONE ? 1.0f + given : given;
        if (n.centred) {
            n.bias = Func(heads.name + "_bias");
            n.bias(n.d, n.h) = in.element((heads.name + "_norm_bias").c_str(), {index});
        }
    }
    return n;
}

// Entries of normalised heads, as floats.
KeySource::Element normalised(const HeadNorm &n, const Heads &heads) {
    return [=](const Expr &d, const Expr &t, const Expr &h, const Expr &b) {
        const Expr of = heads.together ? Expr(0) : h; // whose factor
        Expr x = heads.load(d, t, h, b);
        x = (n.centred ? x - n.mean(t, of, b) : x) * n.factor(t, of, b);
        x = n.weight.defined() ? x * n.weight(d, heads.together ? h : Expr(0)) : x;
        return n.bias.defined() ? x + n.bias(d, heads.together ? h : Expr(0)) : x;
    };
}

} // namespace

std::vector<Func> HeadNorm::funcs() const {
    std::vector<Func> all;
    for (const Func &f : {weight, bias, lane_sums, sum, mean, lane_squares, squares, factor}) {
        if (f.defined()) {
            all.push_back(f);
        }
    }
    return all;
}

void normalise_heads(const Problem &p, int most_lanes, const Expr &key_rows, AttentionInputs *in, std::vector<HeadNorm> *norms) {
    const AttentionInputs given = *in;
    const auto read = [&](HeadNorm::Of of, const Heads &heads, auto *reader) {
        if (heads.kind != POLYHEAD_NO_NORM) {
            norms->push_back(norm_of(heads, most_lanes, given));
            norms->back().of = of;
            *reader = normalised(norms->back(), heads);
        }
    };
    const bool together = p.norm_of_projection != 0;
    const Storage floats = storage_of(POLYHEAD_F32, false);
    if (p.query_norm != POLYHEAD_NO_NORM) {
        read(HeadNorm::Of::query,
             {"query", [given](auto... at) { return given.query(at...); }, p.query_norm, p.head_dim, in->num_heads, in->seq_len_q, together,
              true},
             &in->stored_query);
        in->query_storage = floats;
    }
    if (p.key_norm != POLYHEAD_NO_NORM || p.value_norm != 0) {
        KeySource::Element key = [keys = given.keys](auto... at) { return keys.key(at...); },
                           value = [keys = given.keys](auto... at) { return keys.value(at...); };
        read(HeadNorm::Of::key, {"key", key, p.key_norm, p.head_dim, in->num_kv_heads, key_rows, together, true}, &key);
        read(HeadNorm::Of::value,
             {"value", value, p.value_norm != 0 ? POLYHEAD_RMS_NORM : POLYHEAD_NO_NORM, p.head_dim_v, in->num_kv_heads, key_rows, false,
              false},
             &value);
        in->keys = KeySource(floats, key, value, given.keys.rows());
    }
}

} // namespace polyhead::gen

// Which run-time shapes a kernel is timed over.
#include "shapes.h"

namespace bench {
namespace {

polyhead::Problem sdpa(int32_t heads, int32_t head_dim, int32_t causal) {
    polyhead::Problem p = {};
    p.op = POLYHEAD_SDPA;
    p.num_heads = p.num_kv_heads = heads;
    p.head_dim = p.head_dim_v = head_dim;
    p.causal = causal;
    return p;
}

polyhead::Problem mha(int32_t embed_dim, int32_t heads) {
    polyhead::Problem p = {};
    p.op = POLYHEAD_MHA;
    p.embed_dim = embed_dim;
    p.num_heads = p.num_kv_heads = heads;
    p.head_dim = p.head_dim_v = embed_dim / heads;
    p.bias = 1;
    return p;
}

polyhead::Problem linear(int32_t in_features, int32_t out_features) {
    polyhead::Problem p = {};
    p.op = POLYHEAD_LINEAR;
    p.embed_dim = in_features;
    p.out_features = out_features;
    return p;
}

std::vector<Shape> free_shapes(const polyhead::Problem &p) {
    if (p.op == POLYHEAD_LINEAR)
        return {{1, 512, 0}, {1, 197, 0}};
    if (p.op == POLYHEAD_MHA)
        return p.cross ? std::vector<Shape>{{1, 512, 512}, {2, 128, 300}} : std::vector<Shape>{{1, 512, 512}, {8, 128, 128}};
    std::vector<Shape> shapes;
    for (const SpeedLine &line : speed_lines())
        if (serves(line, p, false))
            shapes.push_back(line.shape);
    shapes.push_back({2, 197, 197}); // tails everywhere
    shapes.push_back({1, 1, 2048});  // one decoding step
    if (shapes.size() == 2)
        shapes.insert(shapes.begin(), {1, 512, 512});
    return shapes;
}

} // namespace

std::string to_string(const polyhead::Problem &problem, const Shape &shape) {
    if (problem.op == POLYHEAD_LINEAR)
        return "M" + std::to_string(shape.seq_len_q);
    std::string text = "B" + std::to_string(shape.batch) + "/T" + std::to_string(shape.seq_len_q);
    return shape.seq_len_q == shape.seq_len_kv ? text : text + "x" + std::to_string(shape.seq_len_kv);
}

std::vector<Shape> shapes_of(const polyhead::Problem &problem) {
    std::vector<Shape> shapes;
    const bool self = problem.op == POLYHEAD_MHA && !problem.cross;
    for (Shape shape : free_shapes(problem)) {
        if (problem.seq_len_q)
            shape.seq_len_q = problem.seq_len_q;
        if (problem.op != POLYHEAD_LINEAR && problem.seq_len_kv)
            shape.seq_len_kv = problem.seq_len_kv;
        if (self)
            shape.seq_len_q = shape.seq_len_kv = problem.seq_len_q ? problem.seq_len_q : shape.seq_len_kv;
        bool seen = false;
        for (const Shape &other : shapes)
            seen |= other.batch == shape.batch && other.seq_len_q == shape.seq_len_q && other.seq_len_kv == shape.seq_len_kv;
        if (!seen)
            shapes.push_back(shape);
    }
    return shapes;
}

const std::vector<SpeedLine> &speed_lines() {
    static const std::vector<SpeedLine> lines = {
        {"SDPA B1 H12 T512 d64", sdpa(12, 64, POLYHEAD_NOT_CAUSAL), {1, 512, 512}, 80},
        {"SDPA B1 H12 T2048 d64", sdpa(12, 64, POLYHEAD_NOT_CAUSAL), {1, 2048, 2048}, 81},
        {"SDPA B1 H16 T1024 d128", sdpa(16, 128, POLYHEAD_NOT_CAUSAL), {1, 1024, 1024}, 84},
        {"SDPA causal B1 H8 T4096 d64", sdpa(8, 64, POLYHEAD_BOTTOM_RIGHT), {1, 4096, 4096}, 72},
        {"linear 512x768->2304", linear(768, 2304), {1, 512, 0}, 93},
        {"layer B1 T512 D768 H12", mha(768, 12), {1, 512, 512}, 85},
    };
    return lines;
}

bool serves(const SpeedLine &line, const polyhead::Problem &p, bool fixed) {
    const polyhead::Problem &w = line.problem;
    if (p.op != w.op || p.dtype != w.dtype || p.lse || p.cross)
        return false;
    if ((p.causal != 0) != (w.causal != 0))
        return false;
    if (p.op == POLYHEAD_LINEAR
            ? p.embed_dim != w.embed_dim || p.out_features != w.out_features
            : p.num_heads != w.num_heads || p.num_kv_heads != w.num_kv_heads || p.head_dim != w.head_dim || p.head_dim_v != w.head_dim_v)
        return false;
    if (p.op == POLYHEAD_MHA && (p.embed_dim != w.embed_dim || p.bias != w.bias))
        return false;
    const bool needs_kv = p.op != POLYHEAD_LINEAR;
    if (!fixed)
        return p.seq_len_q == 0 && (!needs_kv || p.seq_len_kv == 0);
    return p.seq_len_q == line.shape.seq_len_q && (p.op != POLYHEAD_SDPA || p.seq_len_kv == line.shape.seq_len_kv);
}

} // namespace bench

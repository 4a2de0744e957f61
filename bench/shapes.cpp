// Which run-time shapes a kernel is timed over.
#include "shapes.h"

#include "../instruments/calls/problems.h"

namespace bench {

using polyhead::test::generate_line;
using polyhead::test::linear_problem;
using polyhead::test::mha_problem;
using polyhead::test::sdpa_problem;

namespace {

polyhead::Problem causal(polyhead::Problem problem) {
    problem.causal = POLYHEAD_BOTTOM_RIGHT;
    return problem;
}

polyhead::Problem biased(polyhead::Problem problem) {
    problem.bias = 1;
    return problem;
}

polyhead::Problem bf16(polyhead::Problem problem) {
    problem.dtype = POLYHEAD_BF16;
    return problem;
}

std::vector<Lengths> free_shapes(const polyhead::Problem &p) {
    if (p.op == POLYHEAD_LINEAR)
        return {{1, 512, 0}, {1, 197, 0}};
    if (p.op == POLYHEAD_MHA)
        return p.cross ? std::vector<Lengths>{{1, 512, 512}, {2, 128, 300}} : std::vector<Lengths>{{1, 512, 512}, {8, 128, 128}};
    std::vector<Lengths> shapes;
    for (const SpeedLine &line : speed_lines())
        if (serves(line, p))
            shapes.push_back(line.shape);
    shapes.push_back({2, 197, 197}); // tails everywhere
    shapes.push_back({1, 1, 2048});  // one decoding step
    if (shapes.size() == 2)
        shapes.insert(shapes.begin(), {1, 512, 512});
    return shapes;
}

} // namespace

std::string to_string(const polyhead::Problem &problem, const Lengths &shape) {
    if (problem.op == POLYHEAD_LINEAR)
        return "M" + std::to_string(shape.seq_len_q);
    std::string text = "B" + std::to_string(shape.batch) + "/T" + std::to_string(shape.seq_len_q);
    return shape.seq_len_q == shape.seq_len_kv ? text : text + "x" + std::to_string(shape.seq_len_kv);
}

std::vector<Lengths> shapes_of(const polyhead::Problem &problem) {
    std::vector<Lengths> shapes;
    const bool self = problem.op == POLYHEAD_MHA && !problem.cross;
    for (Lengths shape : free_shapes(problem)) {
        if (problem.seq_len_q)
            shape.seq_len_q = problem.seq_len_q;
        if (problem.op != POLYHEAD_LINEAR && problem.seq_len_kv)
            shape.seq_len_kv = problem.seq_len_kv;
        if (self)
            shape.seq_len_q = shape.seq_len_kv = problem.seq_len_q ? problem.seq_len_q : shape.seq_len_kv;
        bool seen = false;
        for (const Lengths &other : shapes)
            seen |= other.batch == shape.batch && other.seq_len_q == shape.seq_len_q && other.seq_len_kv == shape.seq_len_kv;
        if (!seen)
            shapes.push_back(shape);
    }
    return shapes;
}

const std::vector<SpeedLine> &speed_lines() {
    static const std::vector<SpeedLine> lines = {
        {"SDPA B1 H12 T128 d64", sdpa_problem(12, 64), {1, 128, 128}, 80, 76, 0},
        {"SDPA B8 H12 T128 d64", sdpa_problem(12, 64), {8, 128, 128}, 0, 0, 0.93},
        {"SDPA B1 H12 T512 d64", sdpa_problem(12, 64), {1, 512, 512}, 82, 80, 0},
        {"SDPA B1 H12 T2048 d64", sdpa_problem(12, 64), {1, 2048, 2048}, 85, 80, 0},
        {"SDPA B1 H16 T1024 d128", sdpa_problem(16, 128), {1, 1024, 1024}, 86, 83, 0},
        {"SDPA causal B1 H8 T4096 d64", causal(sdpa_problem(8, 64)), {1, 4096, 4096}, 83, 76, 0},
        {"linear 512x768->2304", biased(linear_problem(768, 2304)), {1, 512, 0}, 93, 91, 0},
        {"layer B1 T512 D768 H12", biased(mha_problem(768, 12)), {1, 512, 512}, 90, 86, 0},
        {"layer B1 T197 D768 H12", biased(mha_problem(768, 12)), {1, 197, 197}, 85, 84, 0},
        {"bf16 SDPA B1 H12 T1024 d64", bf16(sdpa_problem(12, 64)), {1, 1024, 1024}, 68, 0, 0},
        {"bf16 SDPA B1 H16 T1024 d128", bf16(sdpa_problem(16, 128)), {1, 1024, 1024}, 73, 0, 0},
        {"bf16 causal B1 H8 T4096 d64", bf16(causal(sdpa_problem(8, 64))), {1, 4096, 4096}, 60, 0, 0},
        {"bf16 linear 512x768->2304", bf16(biased(linear_problem(768, 2304))), {1, 512, 0}, 88, 0, 0},
        {"bf16 layer B1 T512 D768 H12", bf16(biased(mha_problem(768, 12))), {1, 512, 512}, 80, 0, 0},
    };
    return lines;
}

bool serves(const SpeedLine &line, const polyhead::Problem &p) {
    polyhead::Problem wanted = line.problem;
    if (p.op == POLYHEAD_LINEAR)
        wanted.bias = p.bias;
    else
        wanted.kv_lengths = p.kv_lengths;
    return generate_line(wanted) == generate_line(p);
}

} // namespace bench

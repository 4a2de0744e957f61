// The algorithm without any schedule, on tiny shapes, against the reference: what is computed is right before how is looked at.
#include <Halide.h>

#include "instruments/calls/compiled_kernel.h"

#include "instruments/calls/problems.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/feature_matrix.h"
#include "support/shapes.h"
#include "support/sweep.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

std::vector<Problem> tiny_problems() {
    std::vector<Problem> problems;
    Problem p = sdpa_problem(2, 3);
    problems.push_back(p);
    p = sdpa_problem(4, 5, 2, 2);
    p.kv_lengths = p.lse = 1;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    problems.push_back(p);
    p = sdpa_problem(1, 1);
    p.causal = POLYHEAD_TOP_LEFT;
    p.lse = 1;
    problems.push_back(p);
    p = sdpa_problem(4, 8, 2, 4); // dims that head lanes serve
    p.kv_lengths = p.lse = 1;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    problems.push_back(p);
    problems.push_back(sdpa_problem(2, 16));
    p = mha_problem(6, 2);
    p.bias = p.kv_lengths = 1;
    problems.push_back(p);
    p = mha_problem(8, 2, 1, 3, 2);
    p.cross = p.lse = 1;
    p.kdim = 5;
    p.vdim = 7;
    problems.push_back(p);
    p = linear_problem(9, 20);
    p.bias = 1;
    problems.push_back(p);
    // Every setting of every feature of masks, modifiers and outputs; the quick tier takes its turn through them.
    for (int row : rotating_numbers(0, 16, 2)) {
        p = feature_problem(feature_rows()[static_cast<size_t>(row)]);
        p.seq_len_q = p.seq_len_kv = 0;
        problems.push_back(p);
    }
    return problems;
}

std::vector<Shape> tiny_shapes(const Problem &p) {
    static const int64_t lengths[][3] = {{1, 1, 1}, {2, 3, 5}, {1, 7, 4}, {1, 2, 0}};
    std::vector<Shape> shapes;
    for (const auto &sizes : lengths) {
        Shape s = plain_shape(p, sizes[0], sizes[1], sizes[2], 5);
        if (p.kv_lengths != 0) {
            s.lengths.assign(static_cast<size_t>(s.batch), static_cast<int32_t>(s.seq_len_kv / 2));
            s.lengths[0] = static_cast<int32_t>(s.seq_len_kv);
            s.poison = true;
        }
        shapes.push_back(s);
    }
    return shapes;
}

// Number of problems that the frame serves; layers, and head dims that no vector divides, head lanes leave to query lanes.
int check_frame(const std::string &frame) {
    int served = 0;
    for (const Problem &p : tiny_problems()) {
        if (is_linear(p) != (frame == "linear")) {
            continue;
        }
        INFO(generate_line(p) << " --tiling 'frame=" << frame << " unscheduled=1'");
        const CompiledKernel compiled(p, {"host", "frame=" + frame + " unscheduled=1", "unscheduled"});
        if (frame == "head_lanes" && compiled.error().find("serves this problem") != std::string::npos) {
            continue;
        }
        REQUIRE(compiled.error() == "");
        served++;
        const KernelSubject subject(compiled.kernel(), 3);
        for (const Shape &shape : tiny_shapes(p)) {
            if (serves(compiled.kernel(), shape.seq_len_q)) {
                CHECK(check_answer(subject.subject(), shape) == "");
            }
        }
    }
    return served;
}

} // namespace

TEST_CASE("algorithm: unscheduled, query lanes agree with the reference") {
    CHECK(check_frame("query_lanes") >= 7);
    CHECK(check_frame("linear") == 1);
}

TEST_CASE("algorithm: unscheduled, head lanes agree with the reference") {
    CHECK(check_frame("head_lanes") >= 2);
}

TEST_CASE("algorithm: unscheduled, the textbook's attention agrees with the reference") {
    CHECK(check_frame("plain") >= 7);
}

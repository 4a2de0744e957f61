// User expressions inside kernels compiled by the test: conditions that Halide could solve for a query or a key, in every frame of this
// CPU.
#include "instruments/calls/compiled_kernel.h"

#include "examples/common/plain_attention.h"
#include "instruments/calls/problems.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

struct Case {
    const char *text;
    examples::Meaning meaning; // position and index of a query are the same: as many queries as keys
};

using At = int64_t;

examples::Meaning scores(const std::function<double(At, At, At, At, double)> &score) {
    return {score, [](At, At, At, At) { return true; }};
}
examples::Meaning masks(const std::function<bool(At, At, At, At)> &mask) {
    return {[](At, At, At, At, double s) { return s; }, mask};
}

const Case cases[] = {
    {"mask = kv + q >= 8", masks([](At, At, At q, At kv) { return kv + q >= 8; })},
    {"mask = q > 5", masks([](At, At, At q, At) { return q > 5; })},
    {"mask = kv <= q + h and h <= q + 1", masks([](At, At h, At q, At kv) { return kv <= q + h && h <= q + 1; })},
    {"mask = abs(kv - p) < 20 and (kv < 3 or kv % 7 != 0)",
     masks([](At, At, At q, At kv) { return std::abs(kv - q) < 20 && (kv < 3 || kv % 7 != 0); })},
    {"mask = kv / 16 == p / 16 or kv < 2", masks([](At, At, At q, At kv) { return kv / 16 == q / 16 || kv < 2; })},
    {"score = select(kv + q >= 8, score, 1)", scores([](At, At, At q, At kv, double s) { return kv + q >= 8 ? s : 1; })},
    {"score = select(q > 5 and b == 1, 2 * score, -score) + max(q - kv, 0) * -0.01",
     scores([](At b, At, At q, At kv, double s) { return (q > 5 && b == 1 ? 2 * s : -s) - double(std::max<At>(q - kv, 0)) * 0.01; })},
};

} // namespace

TEST_CASE("expressions: conditions on queries and keys, inside kernels") {
    for (const Case &c : cases) {
        INFO(c.text);
        Problem problem = sdpa_problem(3, 16);
        problem.expression = c.text;
        const CompiledKernel kernel(problem);
        REQUIRE(kernel.error() == "");
        for (const int64_t seq_len : {70, 5}) { // query lanes, head lanes
            examples::Attention a(2, 3, seq_len, 16);
            const Status status = kernel.kernel().run(a.args());
            INFO(status.message());
            CHECK(examples::compare(a, status, c.meaning) == 0);
        }
    }
}

TEST_CASE("expressions: a compiled kernel owns its text and declarations") {
    Problem problem = sdpa_problem(1, 8);
    std::string text = "tensor tau: f32; tensor t: i32[b, 3]; score = score - tau + t[b, kv % 3]";
    problem.expression = text.c_str();
    const CompiledKernel kernel(problem);
    text.assign(text.size(), 'x');
    REQUIRE(kernel.error() == "");
    CHECK(std::string(kernel.kernel().problem.expression).find("tensor tau: f32;") == 0);
    REQUIRE(kernel.kernel().num_declarations == 2);
    CHECK(std::string(kernel.kernel().declarations[1].name) == "t");
    CHECK(kernel.kernel().declarations[1].extents[0] == POLYHEAD_EXTENT_B);
    problem.expression = "score = sore";
    const CompiledKernel refused(problem);
    CHECK(refused.error().find("expression:1:9: unknown name 'sore'") == 0);
    CHECK(refused.kernel().num_variants == 0);
}

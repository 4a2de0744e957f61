// Equal calls give equal bits whatever floating-point state the caller and the threads of the pool are in, and the caller's stays.
#include <cfenv>
#include <cstring>
#include <vector>

#include "floating_point_states.h"
#include "runtime_loops.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// Rounding shows in the quotients, flushing in the denormals.
int sensitive(void *user_context, float *out) {
    return parallel(user_context, LoopCall::elements, [=](int i) {
        volatile float small = 1e-39f, third = 3.0f, sum = 0.0f;
        for (int j = 1; j < 20; ++j) {
            sum = sum + static_cast<float>(i + j) / third;
        }
        volatile float product = small * static_cast<float>(i);
        out[i] = i % 2 ? sum : product * 1e30f;
        return 0;
    });
}

} // namespace

TEST_CASE("floating point: equal bits in every state of the caller", "[runtime]") {
    LoopCall call(sensitive);
    REQUIRE(call.run().code == POLYHEAD_OK);
    const std::vector<float> expected = call.out;
    CHECK(expected[2] != 0.0f);
    for (const int threads : {1, 2, 4}) {
        for (const bool pool_first : {true, false}) { // threads inherit the state of the one that makes them
            set_num_threads(threads);
            if (pool_first) {
                REQUIRE(call.run().code == POLYHEAD_OK);
            }
            for_each_state([&](unsigned state) {
                CAPTURE(threads, pool_first, state);
                polyhead_status status{};
                unsigned left = 0;
                {
                    const ArithmeticState set(state);
                    for (int i = 0; i < 3; ++i) {
                        status = call.run();
                    }
                    left = set.found();
                }
                CHECK(status.code == POLYHEAD_OK);
                CHECK(left == state);
                CHECK(std::memcmp(call.out.data(), expected.data(), expected.size() * sizeof(float)) == 0);
            });
        }
    }
    set_num_threads(0);
}

TEST_CASE("floating point: the scale that a call leaves out does not depend on the caller's rounding", "[runtime]") {
    FakeKernel fake(sdpa(1, 1, 6, 6));
    std::vector<float> data(24);
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    args.query = args.key = args.value = view(data.data(), {1, 1, 1, 6});
    args.out = view(data.data() + 12, {1, 1, 1, 6});
    std::vector<float> seen;
    fake.on_call = [&](FakeKernel &f) { seen.push_back(f.scalar<float>(3)); };
    for_each_state([&](unsigned state) {
        const ArithmeticState set(state);
        fake.run(args);
    });
    REQUIRE(!seen.empty());
    CHECK(seen == std::vector<float>(seen.size(), seen.front()));
}

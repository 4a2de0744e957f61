// Every request to the system that a call makes is refused once: the right status, out untouched, nothing lost.
#include <malloc.h>
#include <string>
#include <vector>

#include "failing_system.h"
#include "runtime_loops.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("failures: every allocation of a call", "[runtime]") {
    LoopCall call(nested_loops);
    call.fake.variant.scratch.per_thread = 32 << 10;
    int refused = 0;
    const auto run = [&] { return call.run(); };
    refuse_each_allocation(4, 100, run, [&](const polyhead_status &status) {
        // Without a pool the call is done by its own thread, so that one allocation is not missed.
        if (status.code == POLYHEAD_OK) {
            CHECK(right(call));
        } else {
            ++refused;
            CHECK(status.code == POLYHEAD_OUT_OF_MEMORY);
            CHECK(std::string(status.message).find("scratch memory could not be allocated") != std::string::npos);
            CHECK(call.out == std::vector<float>(call.out.size(), -1.0f));
        }
    });
    CHECK(refused == 1); // what all of its threads need is one piece
    CHECK(call.fake.calls > 0);
}

TEST_CASE("failures: memory that vanishes between the check and the kernel", "[runtime]") {
    // The kernel gets what was held for it, though the system has nothing any more.
    LoopCall call([](void *user_context, float *out) {
        const Failing memory(Resource::memory, 1, true);
        return nested_loops(user_context, out);
    });
    call.fake.variant.scratch.per_thread = 32 << 10;
    for (const int threads : {1, 2, 4}) {
        afresh(threads, [&] {
            CHECK(call.run().code == POLYHEAD_OK);
            CHECK(right(call));
        });
    }
}

TEST_CASE("failures: threads that cannot be made", "[runtime]") {
    LoopCall call(nested_loops);
    for (const int threads : {2, 4, 16}) {
        for (int n = 1; n < threads; ++n) {
            for (const bool every : {false, true}) {
                CAPTURE(threads, n, every);
                set_num_threads(1);
                set_num_threads(threads);
                const Failing creation(Resource::thread, n, every);
                CHECK(call.run().code == POLYHEAD_OK);
                CHECK(right(call));
                CHECK(creation.happened());
            }
        }
    }
    set_num_threads(0);
}

TEST_CASE("failures: files that cannot be read", "[runtime]") {
    for (int n = 1; n < 8; ++n) {
        const Failing files(Resource::file, n);
        set_num_threads(0);
        CHECK(num_threads() >= 1);
    }
    set_num_threads(0);
}

TEST_CASE("failures: every allocation of pack, and of an answer without keys", "[runtime]") {
    FakeKernel packer(linear(8, 8));
    const std::vector<float> weight(64, 1.0f);
    WeightTensors tensors{};
    tensors.out_proj = view(weight.data(), {8, 8});
    Weights packed;
    {
        const Failing memory(Resource::memory, 1);
        CHECK(packer.kernel().pack(tensors, &packed).code() == POLYHEAD_OUT_OF_MEMORY);
        CHECK(packed.raw()->data == nullptr);
    }
    CHECK(packer.kernel().pack(tensors, &packed).ok());

    Problem p = sdpa(2, 2, 4, 4);
    p.lse = 1;
    FakeKernel fake(p);
    std::vector<float> query(2 * 3 * 4), out(query.size()), lse(6);
    const auto run = [&] {
        out.assign(out.size(), -1.0f);
        lse.assign(lse.size(), -1.0f);
        polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
        args.query = view(query.data(), {1, 2, 3, 4});
        args.key = args.value = view(query.data(), {1, 2, 0, 4});
        args.out = view(out.data(), {1, 2, 3, 4});
        args.lse = view(lse.data(), {1, 2, 3});
        return fake.run(args);
    };
    refuse_each_allocation(1, 20, run, [&](const polyhead_status &status) {
        const bool ok = status.code == POLYHEAD_OK;
        CHECK((ok || status.code == POLYHEAD_OUT_OF_MEMORY));
        CHECK(out == std::vector<float>(out.size(), ok ? 0.0f : -1.0f));
        CHECK((lse == std::vector<float>(lse.size(), -1.0f)) == !ok);
    });
}

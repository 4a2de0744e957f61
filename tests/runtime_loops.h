// A stand-in for a kernel that works in parallel loops, as generated code does: out(i) = sum over j of i * j, in loops inside of loops.
#ifndef POLYHEAD_TESTS_RUNTIME_LOOPS_H
#define POLYHEAD_TESTS_RUNTIME_LOOPS_H

#include <atomic>
#include <functional>
#include <vector>

#include "../runtime/kernel_interface.h"
#include "runtime_fake.h"

namespace polyhead::test {

// A parallel loop over a C++ function of the iterations from `first` on, which returns 0 or an error.
inline int parallel(void *user_context, int size, const std::function<int(int)> &body, int first = 0) {
    return halide_do_par_for(
        user_context, [](void *, int i, uint8_t *closure) { return (*reinterpret_cast<std::function<int(int)> *>(closure))(i); }, first,
        size, reinterpret_cast<uint8_t *>(const_cast<std::function<int(int)> *>(&body)));
}

// One call of a kernel of 64 elements whose work is given; each thread that calls needs an own one.
struct LoopCall {
    static constexpr int elements = 64;

    explicit LoopCall(std::function<int(void *user_context, float *out)> work) : fake(sdpa(1, 1, elements, elements)) {
        out.assign(elements, -1.0f);
        args.query = args.key = args.value = view(input.data(), {1, 1, 1, elements});
        args.out = view(out.data(), {1, 1, 1, elements});
        fake.on_call = [work = std::move(work)](FakeKernel &f) { f.result = work(f.user_context, static_cast<float *>(f.buffer(4).host)); };
    }
    polyhead_status run() {
        out.assign(elements, -1.0f);
        return fake.run(args);
    }

    std::vector<float> input = std::vector<float>(elements), out;
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    FakeKernel fake;
};

// Loops of 64, and in each iteration one of 8, which asks for scratch.
inline int nested_loops(void *user_context, float *out) {
    return parallel(user_context, LoopCall::elements, [=](int i) {
        std::atomic<int> sum{0};
        const int result = parallel(user_context, 8, [&, i](int j) {
            auto *scratch = static_cast<int *>(halide_malloc(user_context, 4096));
            if (!scratch) {
                return -1;
            }
            scratch[0] = scratch[1023] = i * j;
            sum += scratch[1023];
            halide_free(user_context, scratch);
            return 0;
        });
        out[i] = static_cast<float>(sum);
        return result;
    });
}

inline bool right(const LoopCall &call) {
    for (int i = 0; i < LoopCall::elements; ++i) {
        if (call.out[static_cast<size_t>(i)] != static_cast<float>(28 * i)) {
            return false;
        }
    }
    return true;
}

} // namespace polyhead::test
#endif

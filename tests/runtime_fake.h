// A stand-in for a generated kernel: its one variant records what it was called with, and can fail on purpose.
#ifndef POLYHEAD_TESTS_RUNTIME_FAKE_H
#define POLYHEAD_TESTS_RUNTIME_FAKE_H

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

#include "../contract/weight_layout.h"
#include "../runtime/kernel_interface.h"
#include "../runtime/memory/scratch.h"
#include "support/entry.h"

namespace polyhead::test {

// A buffer as the kernel saw it, innermost dimension first.
struct SeenBuffer {
    void *host;
    runtime::ElementType type;
    std::vector<int32_t> extents, strides;
};

class FakeKernel {
public:
    explicit FakeKernel(const Problem &problem) {
        variant.name = "fake_variant";
        variant.target = "x86-64-linux";
        variant.tiling = "q_tile=16";
        variant.entry = entry_.function();
        variant.weight_layout = contract::weight_layout_id(problem);
        variant.abi = POLYHEAD_ABI_VERSION;
        table.name = "fake";
        table.problem = problem;
        table.variants = &variant;
        table.num_variants = 1;
    }
    FakeKernel(const FakeKernel &) = delete;
    FakeKernel &operator=(const FakeKernel &) = delete;

    Kernel kernel() const { return Kernel(table); }
    polyhead_status run(const polyhead_args &args) const { return polyhead_run(&table, &args); }

    SeenBuffer buffer(int index) const {
        const auto *b = static_cast<const runtime::KernelBuffer *>(argv[index]);
        SeenBuffer seen{b->host, b->type, {}, {}};
        for (int i = 0; i < b->dimensions; ++i) {
            seen.extents.push_back(b->dim[i].extent);
            seen.strides.push_back(b->dim[i].stride);
        }
        return seen;
    }
    template <typename T> T scalar(int index) const {
        T value;
        std::memcpy(&value, argv[index], sizeof value);
        return value;
    }

    polyhead_variant variant{};
    polyhead_kernel table{POLYHEAD_SIZES, {}, nullptr, nullptr, nullptr, 0, 0, 0, 0};
    std::atomic<int> calls{0}; // parts of a call run on several threads
    int result = 0;
    void *user_context = nullptr; // valid inside on_call only, as the arguments behind it
    void **argv = nullptr;
    std::function<void(FakeKernel &)> on_call; // may look at buffer() and scalar()

private:
    Entry entry_{[this](void **arguments) { return call(arguments); }};

    int call(void **arguments) {
        ++calls;
        if (on_call) {
            user_context = *static_cast<void **>(arguments[0]);
            argv = arguments + 1;
            on_call(*this);
            argv = nullptr;
        }
        return result;
    }
};

// Removes the limit at the end of a test, however it ends.
struct FeatureLimit {
    explicit FeatureLimit(uint64_t mask) { polyhead_limit_cpu_features(mask); }
    ~FeatureLimit() { polyhead_limit_cpu_features(~UINT64_C(0)); }
};

// What a call holds for its workers: of the caller's thread, and of each other one, with what their blocks need.
inline int64_t held_scratch(int64_t of_caller, int64_t of_helper = 0, int helpers = 0) {
    constexpr auto unit = static_cast<int64_t>(runtime::Scratch::alignment);
    const auto held = [](int64_t bytes) { return (bytes + static_cast<int64_t>(runtime::Scratch::overhead) + unit - 1) / unit * unit; };
    return held(of_caller) + helpers * held(of_helper);
}

inline Problem sdpa(int heads, int kv_heads, int d, int d_v) {
    Problem p = polyhead_problem_of(POLYHEAD_SDPA);
    p.num_heads = heads;
    p.num_kv_heads = kv_heads;
    p.head_dim = d;
    p.head_dim_v = d_v;
    return p;
}

inline Problem mha(int embed_dim, int heads) {
    Problem p = sdpa(heads, heads, embed_dim / heads, embed_dim / heads);
    p.op = POLYHEAD_MHA;
    p.embed_dim = p.kdim = p.vdim = embed_dim;
    return p;
}

inline Problem linear(int in_features, int out_features) {
    Problem p = polyhead_problem_of(POLYHEAD_LINEAR);
    p.embed_dim = in_features;
    p.out_features = out_features;
    return p;
}

} // namespace polyhead::test
#endif

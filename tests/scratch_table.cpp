// What scratch_bytes() says of a call, held against what the kernel then asks of halide_malloc, for every variant of the table.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "kernel_table.h"

#include "instruments/calls/problems.h"
#include "instruments/emulators/amx/amx_emulator.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/environment.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// While it is false, the functions below are those of the runtime and no more.
std::atomic<bool> counting{false};

// Bytes that were asked for and not yet given back. The linker leads every call of the runtime's halide_malloc and
// halide_free here.
class Held {
public:
    void add(void *block, size_t bytes) {
        const std::lock_guard<std::mutex> lock(mutex_);
        blocks_[block] = bytes;
        bytes_ += bytes;
        peak_ = std::max(peak_, bytes_);
    }
    void remove(void *block) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = blocks_.find(block);
        if (found != blocks_.end()) {
            bytes_ -= found->second;
            blocks_.erase(found);
        }
    }
    void start() {
        const std::lock_guard<std::mutex> lock(mutex_);
        blocks_.clear();
        bytes_ = peak_ = 0;
    }
    int64_t peak() const { return static_cast<int64_t>(peak_); }
    int64_t left() const { return static_cast<int64_t>(bytes_); }

private:
    std::mutex mutex_;
    std::unordered_map<void *, size_t> blocks_;
    size_t bytes_ = 0, peak_ = 0;
};

Held &held() {
    static Held *const of_program = new Held; // threads of the pool outlive main
    return *of_program;
}

} // namespace

extern "C" {
void *__real_polyhead_halide_malloc(void *context, size_t bytes);
void __real_polyhead_halide_free(void *context, void *block);

void *__wrap_polyhead_halide_malloc(void *context, size_t bytes) {
    void *block = __real_polyhead_halide_malloc(context, bytes);
    if (counting) {
        held().add(block, bytes);
    }
    return block;
}

void __wrap_polyhead_halide_free(void *context, void *block) {
    if (counting) {
        held().remove(block);
    }
    __real_polyhead_halide_free(context, block);
}
}

namespace {

// Lengths of queries and keys that begin and end blocks of every frame; the last merges several groups of chunks.
struct Lengths {
    int64_t batch, seq_len_q, seq_len_kv;
};
constexpr Lengths all_lengths[] = {{1, 1, 1}, {2, 1, 700}, {1, 5, 33}, {3, 16, 129}, {1, 33, 257}, {2, 100, 64}, {1, 17, 4500}};

// The call that was just checked: the reported bytes are never less than the peak, and near it on one thread, which always has a task.
void check_call(const polyhead_kernel &kernel, const KernelSubject &subject, const Shape &shape, int threads) {
    const Inputs inputs(call_problem(kernel), shape);
    const polyhead_args args = subject.prepared(inputs.args());
    polyhead_set_num_threads(threads);
    polyhead_status status{};
    const int64_t said = polyhead_scratch_bytes(&kernel, &args, &status);
    INFO(kernel.name << " " << kernel.variants[0].tiling << "\n"
                     << describe(call_problem(kernel), shape) << ", " << threads << " threads: " << status.message);
    REQUIRE(status.code == POLYHEAD_OK);
    held().start();
    counting = true;
    REQUIRE(polyhead_run(&kernel, &args).code == POLYHEAD_OK);
    counting = false;
    const int64_t peak = held().peak();
    CHECK(held().left() == 0);
    CHECK(said >= peak);
    // Blocks lie on a stack; scores as an output and tasks of attention are not there at once; a task of scores may have few queries.
    constexpr int64_t per_thread = 256 * 1024;
    const Problem &p = kernel.problem;
    const bool outputs_scores = p.scores != POLYHEAD_NO_SCORES || p.weights_mean != 0 || p.grad_score_bias != 0;
    // Keys and values of 16 bits that become floats first are counted whole; with a window only those are made that a row may see.
    const int64_t heads = call_problem(kernel).num_kv_heads;
    const int64_t staged =
        p.window != 0 && is_16_bit(p.dtype) ? shape.batch * shape.seq_len_kv * heads * (p.head_dim + p.head_dim_v) * 4 : 0;
    if (threads == 1 && shape.seq_len_kv > 1) { // a row may not see the only key
        CHECK(said <= peak + (outputs_scores ? peak : peak / 2) + per_thread + staged);
    }
}

} // namespace

TEST_CASE("scratch: what a call takes is what it says, every variant of the table") {
    const AmxEmulator emulator;
    for (const Kernel *kernel : kernel_table) {
        for (const polyhead_kernel &forced : forced_variants(*kernel)) {
            const KernelSubject subject(forced, 7);
            for (const Lengths &lengths : all_lengths) {
                const Shape shape = plain_shape(call_problem(forced), lengths.batch, lengths.seq_len_q, lengths.seq_len_kv, 5);
                const bool dear = multiply_adds(call_problem(forced), shape) > (test_all() ? 1e10 : 1e9);
                if (serves(forced, shape.seq_len_q) && !dear) {
                    check_call(forced, subject, shape, 1);
                    check_call(forced, subject, shape, 3);
                }
            }
        }
    }
    polyhead_set_num_threads(0);
}

// Calls with packed tokens (cu_seqlens_q, cu_seqlens_kv): sequences of different lengths without padding.
#ifndef POLYHEAD_RUNTIME_RAGGED_H
#define POLYHEAD_RUNTIME_RAGGED_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_api.h>

#include "neutral_rows.h"
#include "part_of_call.h"
#include "validate.h"

namespace polyhead::runtime {

class Text;
class ThreadPool;

// A checked call as parts, each of which is an ordinary call: a sequence, or neighbouring sequences of equal lengths. So every kernel takes
// packed tokens, each sequence gets the variant for its own length, and its result has the bits of a call with this sequence alone.
class RaggedCall {
public:
    RaggedCall(const polyhead_kernel &kernel, const polyhead_args &args, const CallShape &shape) noexcept
        : kernel_(kernel), args_(args), shape_(shape) {}
    ~RaggedCall();
    RaggedCall(const RaggedCall &) = delete;
    RaggedCall &operator=(const RaggedCall &) = delete;

    // Makes the parts, checks each of them and chooses its variant.
    bool prepare(polyhead_status *status) noexcept;
    // All memory is held before the first part starts. Threads take whole parts, the longest first; when no part is left, they help with
    // those that still run.
    polyhead_status run() noexcept;

    // The most bytes that the call takes at any time, with so many threads.
    int64_t scratch_bytes(int threads) const noexcept;
    void describe(int threads, Text *text) const noexcept;

private:
    struct Planned {
        Part part;
        CallShape shape;
        const polyhead_variant *variant; // null: there are no keys
    };
    struct Needs {
        int64_t of_worker = 0, of_helper = 0, without_keys = 0, keys = 0; // the most of any part
        bool possible = true;
    };
    class Workers;

    void divide() noexcept;
    bool plan(Planned *planned, polyhead_status *status) noexcept;
    void add_needs(const Planned &planned, const polyhead_args &part) noexcept;
    int workers(int threads) const noexcept;
    polyhead_status run_here(const Planned &planned, void *memory, size_t bytes, ThreadPool *pool) noexcept;
    polyhead_status run_on_threads() noexcept;
    polyhead_status run_on_device() noexcept;

    const polyhead_kernel &kernel_;
    const polyhead_args &args_;
    const CallShape shape_;
    Planned *parts_ = nullptr;
    int64_t count_ = 0;
    Needs most_;
    NeutralRows neutral_;
};

} // namespace polyhead::runtime
#endif

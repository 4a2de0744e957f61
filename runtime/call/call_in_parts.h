// Calls that are several ordinary calls: of packed tokens (cu_seqlens_q, cu_seqlens_kv), and of more batch rows or queries than a kernel
// can compute at once.
#ifndef POLYHEAD_RUNTIME_CALL_IN_PARTS_H
#define POLYHEAD_RUNTIME_CALL_IN_PARTS_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_api.h>

#include "../rules/validate.h"
#include "kernel_table.h"
#include "neutral_rows.h"
#include "part_of_call.h"
#include "scratch_bytes.h"

namespace polyhead::runtime {

class Text;
class ThreadPool;

// Why a kernel cannot compute a batch row, of which it would hold fit.bytes in one piece.
bool refuse_unfit(const KernelTable &kernel, const Fit &fit, polyhead_status *status) noexcept;
// A part counts its batch rows from 0, which an expression may not bear. `limit` says why there are parts.
bool check_divisible(const KernelTable &kernel, int64_t rows, int64_t most, const char *limit, polyhead_status *status) noexcept;

// A checked call as parts, each of which is an ordinary call. Of packed tokens: a sequence, or neighbouring sequences of equal lengths. So
// every kernel takes packed tokens, each sequence gets the variant for its own length, and its result has the bits of a call with this
// sequence alone. Of a large call: some of its batch rows, or some queries of one; all with the variant of the whole call.
class CallInParts {
public:
    CallInParts(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape) noexcept
        : kernel_(kernel), args_(args), shape_(shape) {}
    ~CallInParts();
    CallInParts(const CallInParts &) = delete;
    CallInParts &operator=(const CallInParts &) = delete;

    // Makes the parts where they are needed. Of packed tokens (variant: null) each is checked and gets its variant.
    bool prepare(const polyhead_variant *variant, polyhead_status *status) noexcept;
    bool needed() const noexcept { return needed_; }
    // All memory is held before the first part starts. Of packed tokens threads take whole parts, the longest first; when no part is left,
    // they help with those that still run. Large parts run one after another.
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

    bool prepare_sequences(polyhead_status *status) noexcept;
    bool prepare_rows(const polyhead_variant &variant, const Fit &fit, polyhead_status *status) noexcept;
    bool hold_parts(int64_t most, polyhead_status *status) noexcept;
    void divide_sequences() noexcept;
    void add_rows(const polyhead_variant &variant, const Part &part, int64_t queries) noexcept;
    bool plan(Planned *planned, polyhead_status *status) noexcept;
    bool cut_to(const Fit &fit, Planned *planned, polyhead_status *status) noexcept;
    void add_needs(const Planned &planned, const polyhead_args &part) noexcept;
    int workers(int threads) const noexcept;
    polyhead_status run_here(const Planned &planned, void *memory, size_t bytes, ThreadPool *pool) noexcept;
    polyhead_status run_on_threads() noexcept;
    polyhead_status run_on_device() noexcept;

    const KernelTable &kernel_;
    const polyhead_args &args_;
    const CallShape shape_;
    Planned *parts_ = nullptr;
    int64_t count_ = 0;
    bool needed_ = false;
    Needs most_;
    NeutralRows neutral_;
};

} // namespace polyhead::runtime
#endif

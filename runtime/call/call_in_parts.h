// Calls that are several ordinary calls: of packed tokens (cu_seqlens_q, cu_seqlens_kv), and of more batch rows or queries than a kernel
// can compute at once.
#ifndef POLYHEAD_RUNTIME_CALL_IN_PARTS_H
#define POLYHEAD_RUNTIME_CALL_IN_PARTS_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_api.h>

#include "../rules/validate.h"
#include "cpu_call.h"
#include "kernel_table.h"
#include "neutral_rows.h"
#include "part_of_call.h"
#include "resources.h"
#include "scratch_bytes.h"

namespace polyhead::runtime {

class Text;

// Why a kernel cannot compute a batch row, of which it would hold fit.bytes in one piece.
bool refuse_unfit(const KernelTable &kernel, const Fit &fit, polyhead_status *status) noexcept;
// A part counts its batch rows from 0, which an expression may not bear. `limit` says why there are parts.
bool check_divisible(const KernelTable &kernel, int64_t rows, int64_t most, const char *limit, polyhead_status *status) noexcept;

// A checked call as parts, each of which is an ordinary call. Of packed tokens: a sequence, or neighbouring sequences of equal lengths. So
// every kernel takes packed tokens, each sequence gets the variant for its own length, and its result has the bits of a call with this
// sequence alone. Of a large call: some of its batch rows, or some queries of one; all with the variant of the whole call.
class CallInParts {
public:
    CallInParts(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape, const Resources &resources) noexcept
        : kernel_(kernel), args_(args), shape_(shape), resources_(resources) {}
    CallInParts(const CallInParts &) = delete;
    CallInParts &operator=(const CallInParts &) = delete;

    // Makes the parts where they are needed. Of packed tokens (variant: null) each is checked and gets its variant.
    bool prepare(const polyhead_variant *variant, polyhead_status *status) noexcept;
    bool needed() const noexcept { return needed_; }
    // All memory is held before the first part starts. Of packed tokens workers take whole parts, the longest first; when no part is left,
    // threads of the pool help with those that still run. Tasks of an executor cannot: so parts that are more than a task's share of the
    // work come first, one after another, each by all workers. Large parts of a batch run one after another.
    polyhead_status run() noexcept;

    // Bytes that run() takes at once, with so many workers. INT64_MAX: more than there is.
    int64_t bytes(int workers) const noexcept;
    void describe(int64_t scratch_bytes, Text *text) const noexcept;

private:
    struct Planned {
        Part part;
        CallShape shape;
        const polyhead_variant *variant; // null: there are no keys
    };
    struct Needs { // the most of any part
        CpuBytes cpu;
        int64_t without_keys = 0, keys = 0;
    };
    class Parts;

    bool prepare_sequences(polyhead_status *status) noexcept;
    bool prepare_rows(const polyhead_variant &variant, const Fit &fit, polyhead_status *status) noexcept;
    bool hold_parts(int64_t most, polyhead_status *status) noexcept;
    void divide_sequences() noexcept;
    void add_rows(const polyhead_variant &variant, const Part &part, int64_t queries) noexcept;
    bool plan(Planned *planned, polyhead_status *status) noexcept;
    bool cut_to(const Fit &fit, Planned *planned, polyhead_status *status) noexcept;
    void add_needs(const Planned &planned, const polyhead_args &part) noexcept;
    int at_once(int workers) const noexcept;
    int64_t bytes_of_part() const noexcept;
    polyhead_status run_parts() noexcept;
    polyhead_status run_here(const Planned &planned, Workers *workers, const CpuMemory &memory) noexcept;
    polyhead_status run_on_device(const CpuMemory &memory) noexcept;

    const KernelTable &kernel_;
    const polyhead_args &args_;
    const CallShape shape_;
    const Resources resources_;
    CallBlock list_;
    Planned *parts_ = nullptr;
    int64_t count_ = 0;
    bool needed_ = false;
    Needs most_;
    NeutralRows neutral_;
};

} // namespace polyhead::runtime
#endif

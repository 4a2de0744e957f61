// Makes rows of neutral elements for tensors over keys that a call leaves out.
#include "neutral_rows.h"

#include <cstring>

#include "../memory/scratch.h"
#include "../rules/tensor_rules.h"
#include "../status.h"
#include "call_tensors.h"

namespace polyhead::runtime {
namespace {

bool needs_row(const polyhead_problem &problem, const TensorRow &row, const polyhead_args &args) noexcept {
    return takes(problem, row) && over_keys(row, problem) && absent(args.*row.tensor);
}

// Aligned as what follows must be, and kernels may read some bytes behind a row.
int64_t bytes_of_row(const polyhead_problem &problem, const TensorRow &row, int64_t keys) noexcept {
    constexpr int64_t unit = Scratch::alignment, read_past = 8;
    return (keys * dtype_bytes(row.dtype(problem)) + read_past + unit - 1) / unit * unit;
}

} // namespace

int64_t neutral_row_bytes(const polyhead_problem &problem, const polyhead_args &args, int64_t keys) noexcept {
    int64_t bytes = 0;
    for (const TensorRow &row : broadcast_rows) {
        bytes += needs_row(problem, row, args) ? bytes_of_row(problem, row, keys) : 0;
    }
    return bytes;
}

bool NeutralRows::make(const polyhead_problem &problem, const polyhead_args &args, int64_t keys, CallMemory *memory,
                       polyhead_status *status) noexcept {
    char *at = nullptr;
    for (const TensorRow &row : broadcast_rows) {
        if (!needs_row(problem, row, args)) {
            continue;
        }
        // Bytes that are 1 are true, bytes that are 0 are the float 0.
        const uint8_t byte = row.neutral == Neutral::all_true;
        const auto bytes = static_cast<size_t>(bytes_of_row(problem, row, keys));
        if (void *const there = args.device ? args.device->neutral_row(byte, bytes) : nullptr) {
            rows_[count_++] = {&row, row.dtype(problem), there, args.device};
            continue;
        }
        const int64_t all = neutral_row_bytes(problem, args, keys);
        at = at ? at : block_.take(memory, all);
        if (!at) {
            return refuse(status, POLYHEAD_OUT_OF_MEMORY, "%s: left out, and %lld bytes for its default values could not be allocated",
                          row.name, static_cast<long long>(all));
        }
        std::memset(at, byte, bytes);
        rows_[count_++] = {&row, row.dtype(problem), at, nullptr};
        at += bytes;
    }
    return true;
}

void NeutralRows::put_into(polyhead_args *args, int64_t keys) const noexcept {
    for (int i = 0; i < count_; ++i) {
        args->*rows_[i].of->tensor = polyhead_tensor{rows_[i].memory, rows_[i].dtype, 1, {keys}, {1}, rows_[i].device, 0};
    }
}

} // namespace polyhead::runtime

// Makes rows of neutral elements for tensors over keys that a call leaves out.
#include "neutral_rows.h"

#include <cstring>

#include "../halide_runtime.h"
#include "../rules/tensor_rules.h"
#include "../status.h"
#include "call_tensors.h"

namespace polyhead::runtime {
namespace {

bool needs_row(const polyhead_problem &problem, const TensorRow &row, const polyhead_args &args) noexcept {
    return takes(problem, row) && over_keys(row, problem) && absent(args.*row.tensor);
}

} // namespace

int64_t neutral_row_bytes(const polyhead_problem &problem, const polyhead_args &args, int64_t keys) noexcept {
    int64_t bytes = 0;
    for (const TensorRow &row : broadcast_rows) {
        bytes += needs_row(problem, row, args) ? keys * dtype_bytes(row.dtype(problem)) : 0;
    }
    return bytes;
}

NeutralRows::~NeutralRows() {
    for (int i = 0; i < count_; ++i) {
        halide_free(nullptr, rows_[i].memory);
    }
}

bool NeutralRows::make(const polyhead_problem &problem, const polyhead_args &args, int64_t keys, polyhead_status *status) noexcept {
    for (const TensorRow &row : broadcast_rows) {
        if (!needs_row(problem, row, args)) {
            continue;
        }
        const size_t bytes = static_cast<size_t>(keys * dtype_bytes(row.dtype(problem)));
        void *memory = halide_malloc(nullptr, bytes);
        if (!memory) {
            return refuse(status, POLYHEAD_OUT_OF_MEMORY, "%s: left out, and %zu bytes for its default values could not be allocated",
                          row.name, bytes);
        }
        // Bytes that are 1 are true, bytes that are 0 are the float 0.
        std::memset(memory, row.neutral == Neutral::all_true, bytes);
        rows_[count_++] = {&row, row.dtype(problem), memory};
    }
    return true;
}

void NeutralRows::put_into(polyhead_args *args, int64_t keys) const noexcept {
    for (int i = 0; i < count_; ++i) {
        args->*rows_[i].of->tensor = polyhead_tensor{rows_[i].memory, rows_[i].dtype, 1, {keys}, {1}, nullptr, 0};
    }
}

} // namespace polyhead::runtime

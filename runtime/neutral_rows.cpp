// Makes rows of neutral elements for tensors over keys that a call leaves out.
#include "neutral_rows.h"

#include <HalideRuntime.h>
#include <cstring>

#include "call_tensors.h"
#include "status.h"
#include "tensor_rules.h"

namespace polyhead::runtime {
namespace {

bool needs_row(const polyhead_problem &problem, const OptionalTensor &row, const polyhead_args &args) noexcept {
    return takes(problem, row) && over_keys(row, problem) && absent(args.*row.tensor);
}

} // namespace

int64_t neutral_row_bytes(const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape) noexcept {
    int64_t bytes = 0;
    for (const OptionalTensor &row : optional_inputs) {
        bytes += needs_row(problem, row, args) ? shape.needed_keys * dtype_bytes(row.dtype) : 0;
    }
    return bytes;
}

NeutralRows::~NeutralRows() {
    for (int i = 0; i < count_; ++i) {
        halide_free(nullptr, rows_[i]);
    }
}

const polyhead_args *NeutralRows::complete(const polyhead_kernel &kernel, const polyhead_args *args, const CallShape &shape,
                                           polyhead_status *status) noexcept {
    for (const OptionalTensor &row : optional_inputs) {
        if (!needs_row(kernel.problem, row, *args)) {
            continue;
        }
        const size_t bytes = static_cast<size_t>(shape.needed_keys * dtype_bytes(row.dtype));
        void *memory = halide_malloc(nullptr, bytes);
        if (!memory) {
            refuse(status, POLYHEAD_OUT_OF_MEMORY, "%s: left out, and %zu bytes for its default values could not be allocated", row.name,
                   bytes);
            return nullptr;
        }
        // Bytes that are 1 are true, bytes that are 0 are the float 0.
        std::memset(memory, row.neutral == Neutral::all_true, bytes);
        if (count_ == 0) {
            args_ = *args;
            args = &args_;
        }
        rows_[count_++] = memory;
        args_.*row.tensor = polyhead_tensor{memory, row.dtype, 1, {shape.needed_keys}, {1}, nullptr, 0};
    }
    return args;
}

} // namespace polyhead::runtime

// What a layer writes: the result of its last linear layer, and the heads that its gradients read.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "schedule_kernel.h"

namespace polyhead::gen {

// The linear layer's result is the kernel's out, or is copied there.
void write_linear(KernelStages *stages, const Halide::Func &out, int columns, bool batched, const std::optional<ThreadBlocking> &threads,
                  const Storage &storage);
// Rows of all batch rows together, copied to out.
void write_joined(KernelStages *stages, const Halide::Func &out, int columns, const JoinedRows &joined,
                  const std::optional<ThreadBlocking> &threads, const Storage &storage);
// results: by name; context: (d, h, t, b); heads: how both are kept.
void keep_heads(KernelStages *stages, const Problem &problem, const std::map<std::string, Halide::Func> &results,
                const Halide::Func &context, const Storage &heads, const Storage &storage);

} // namespace polyhead::gen

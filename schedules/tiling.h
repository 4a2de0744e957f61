// Tiling: every number of frame and schedule, each a generator parameter and a column of the tuning record. 0 = the default.
#pragma once

#include <string>

#include <optional>

#include "../generators/linear.h"
#include "../generators/problem.h"
#include "machine.h"

namespace polyhead::gen {

// X(name, meaning): the one list of knobs.
#define POLYHEAD_TILING_KNOBS(X)                                                                                                           \
    X(q_tile, "query lanes: queries of a tile")                                                                                            \
    X(kv_tile, "keys of a chunk")                                                                                                          \
    X(key_panel, "query lanes: keys whose scores share registers")                                                                         \
    X(value_panel, "query lanes: value columns whose sums share registers")                                                                \
    X(merge_group, "query lanes: chunks kept before they are merged")                                                                      \
    X(split_len, "head lanes: keys of one split")                                                                                          \
    X(row_tile, "head lanes: query rows that share one pass over the keys")                                                                \
    X(key_unroll, "head lanes: keys whose dot products share registers")                                                                   \
    X(linear_rows, "linear: rows of a register tile")                                                                                      \
    X(linear_panels, "linear: weight panels of a register tile")                                                                           \
    X(linear_block, "linear: rows of a task")                                                                                              \
    X(reduction_block, "linear: inputs summed on their own before they meet the rest; fewer is more accurate, and slower")                 \
    X(thread_rows, "GPU: query rows of a thread")                                                                                          \
    X(row_lanes, "GPU: threads that share a query row, each with its part of head_dim")                                                    \
    X(masked_kv_tile, "GPU thread rows: keys of a chunk that some rows see only in part; divides kv_tile")                                 \
    X(row_groups, "GPU: threads over the query rows of a block")                                                                           \
    X(load_width, "GPU: elements of query, key and value in one load; their addresses and strides are multiples of it")                    \
    X(linear_columns, "GPU linear: columns of a thread")                                                                                   \
    X(unscheduled, "1: no schedule at all, the algorithm as written (tests)")

struct Tiling {
#define POLYHEAD_FIELD(name, meaning) int name = 0;
    POLYHEAD_TILING_KNOBS(POLYHEAD_FIELD)
#undef POLYHEAD_FIELD

    // "q_tile=32 kv_tile=128 ...", knobs that are not 0.
    std::string to_string() const;
    // Sets one knob; returns a sentence when there is no such knob or the value is not a whole number >= 0.
    std::string set(const std::string &knob, const std::string &value);
    // Sets all of "knob=value knob=value ...".
    std::string set_all(const std::string &text);
};

// Fills the knobs that are 0 for this frame, problem and machine.
Tiling default_tiling(const std::string &frame, const Problem &problem, const Machine &machine, Tiling overrides);
// Why the frame cannot be built with this tiling, or empty.
std::string tiling_refusal(const std::string &frame, const Problem &problem, const Tiling &tiling, const Machine &machine);
// How a GPU's threads share a linear layer; nothing on a CPU.
std::optional<ThreadBlocking> thread_blocking(const Tiling &tiling, const Machine &machine);
// Registers allow the frame "thread rows" for these head dims.
bool thread_rows_fit(const Problem &problem, const Machine &machine);

} // namespace polyhead::gen

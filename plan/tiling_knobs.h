// The table of knobs: what each means, and for every frame that reads it its range, what it must divide, and the values that a tuner tries.
#pragma once

#include <string>
#include <vector>

#include "../machines/machine.h"
#include "problem.h"

namespace polyhead::gen {

struct Tiling;

// Who reads a knob: a frame, or the linear layers of a frame on a CPU or a GPU.
enum class KnobUser {
    query_lanes,
    head_lanes,
    key_lanes,
    thread_rows,
    block_tiles,
    split_rows,
    split_tiles,
    warp_tiles,
    linear_gradients,
    linear_cpu,
    linear_gpu,
    everyone
};

// Numbers of machine and problem that a knob is measured against.
enum class Quantity { one, lanes, warp, product_depth, weight_panel, widest_load, head_dim_v, all_keys, tiles, products, unlimited };

// A knob must be a multiple of something, or divide it: a quantity, or another knob.
struct Divisibility {
    bool is_multiple;
    Quantity of;
    int Tiling::*knob; // not null: instead of the quantity
};

// How one user reads a knob. 0 always means the default.
struct KnobUse {
    KnobUser user;
    int least, most;
    std::vector<Divisibility> rules = {};
    std::vector<int> values = {}; // that a tuner tries; none: it leaves the default
    Quantity unit = Quantity::one, up_to = Quantity::unlimited;
    bool also_divisors = false; // of up_to

    KnobUse multiple_of(Quantity of) const { return with({true, of, nullptr}); }
    KnobUse multiple_of(int Tiling::*knob) const { return with({true, Quantity::one, knob}); }
    KnobUse divides(Quantity of) const { return with({false, of, nullptr}); }
    KnobUse divides(int Tiling::*knob) const { return with({false, Quantity::one, knob}); }
    // Values in units, and none above a quantity.
    KnobUse tried(std::vector<int> list, Quantity in = Quantity::one, Quantity most_tried = Quantity::unlimited) const {
        KnobUse use = *this;
        use.values = std::move(list);
        use.unit = in;
        use.up_to = most_tried;
        return use;
    }
    KnobUse and_divisors() const {
        KnobUse use = *this;
        use.also_divisors = true;
        return use;
    }

private:
    KnobUse with(const Divisibility &rule) const {
        KnobUse use = *this;
        use.rules.push_back(rule);
        return use;
    }
};

inline KnobUse in(KnobUser user, int least, int most) {
    return {user, least, most};
}

// X(name, meaning, uses...): the one table. Fields, generator parameters, text forms, refusals, the tuner's space, help and the table of
// docs/guides/tuning.md are made from it. What several knobs take together (registers, bytes, code) is bounded by the frames
// (plan/frames/).
// clang-format off
#define POLYHEAD_TILING_KNOBS(X)                                                                                                           \
    X(q_tile, "queries of a tile",                                                                                                         \
      in(KnobUser::query_lanes, 1, 256).multiple_of(Quantity::lanes).tried({1, 2, 3, 4}, Quantity::lanes),                                 \
      in(KnobUser::key_lanes, 1, 512).multiple_of(&Tiling::score_rows).tried({32, 48, 64, 96, 128}))                                       \
    X(kv_tile, "keys of a chunk",                                                                                                          \
      in(KnobUser::query_lanes, 1, 2048).multiple_of(&Tiling::key_panel)                                                                   \
          .tried({16, 24, 32, 48, 60, 64, 80, 96, 120, 128, 144, 160, 192, 240, 256, 320, 384, 480, 512}, Quantity::one, Quantity::all_keys), \
      in(KnobUser::key_lanes, 1, 2048).multiple_of(&Tiling::key_panel).tried({32, 48, 64, 96, 128, 192, 256, 384, 512}),                   \
      in(KnobUser::thread_rows, 1, 32).tried({1, 2, 3, 4, 6, 8, 12, 16}),                                                                  \
      in(KnobUser::block_tiles, 1, 1024).tried({2, 4, 8, 16, 32, 64}),                                                                     \
      in(KnobUser::warp_tiles, 16, 256).multiple_of(Quantity::product_depth).tried({16, 32, 48, 64, 96, 128}))                             \
    X(key_panel, "keys whose scores share registers",                                                                                      \
      in(KnobUser::query_lanes, 1, 64).tried({2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24}),                                                  \
      in(KnobUser::key_lanes, 1, 128).multiple_of(Quantity::lanes).tried({1, 2, 3, 4}, Quantity::lanes))                                   \
    X(value_panel, "value columns whose sums share registers",                                                                             \
      in(KnobUser::query_lanes, 1, 64).tried({4, 5, 6, 7, 8, 10, 12, 14, 16}, Quantity::one, Quantity::head_dim_v).and_divisors())         \
    X(pair, "bf16 elements of one instruction: 2 where the machine has dot products of pairs",                                             \
      in(KnobUser::query_lanes, 1, 2), in(KnobUser::key_lanes, 1, 2))                                                                      \
    X(split_len, "keys of one split",                                                                                                      \
      in(KnobUser::head_lanes, 1, 4096).multiple_of(Quantity::lanes).multiple_of(&Tiling::key_unroll)                                      \
          .tried({32, 64, 128, 192, 256, 384, 512, 1024, 2048}),                                                                           \
      in(KnobUser::split_rows, 1, 4096).multiple_of(&Tiling::kv_tile).tried({64, 128, 256, 512, 1024}),                                    \
      in(KnobUser::split_tiles, 1, 4096).multiple_of(&Tiling::kv_tile).tried({64, 128, 256, 512, 1024}))                                   \
    X(row_tile, "query rows that share one pass over the keys",                                                                            \
      in(KnobUser::head_lanes, 1, 32).tried({1, 2, 3, 4, 5, 6, 8, 12, 16}))                                                                \
    X(key_unroll, "keys whose dot products share registers",                                                                               \
      in(KnobUser::head_lanes, 1, 32).tried({1, 2, 4, 8, 16}))                                                                             \
    X(score_rows, "queries whose scores share registers",                                                                                  \
      in(KnobUser::key_lanes, 1, 32).tried({4, 6, 8, 12}))                                                                                 \
    X(grad_rows, "rows of gradients whose sums share registers",                                                                           \
      in(KnobUser::key_lanes, 1, 32).tried({4, 6, 8, 12}))                                                                                 \
    X(grad_columns, "columns of gradients whose sums share registers",                                                                     \
      in(KnobUser::key_lanes, 1, 128).multiple_of(Quantity::lanes).tried({1, 2, 3, 4, 5}, Quantity::lanes))                                \
    X(key_splits, "tasks that take the parts of a head in turns; their gradients of query are added",                                      \
      in(KnobUser::key_lanes, 1, 64))                                                                                                      \
    X(linear_rows, "rows of a register tile; on a CPU 0: what fits",                                                                       \
      in(KnobUser::linear_cpu, 1, 32).tried({0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14}),                                                      \
      in(KnobUser::linear_gpu, 1, 16).tried({2, 4, 8}))                                                                                    \
    X(linear_panels, "weight panels of a register tile, on a GPU of a block; on a CPU 0: what fits",                                       \
      in(KnobUser::linear_cpu, 1, 16).tried({0, 1, 2, 3, 4, 5, 6}),                                                                        \
      in(KnobUser::linear_gpu, 1, 64).tried({1, 2, 4, 8}))                                                                                 \
    X(linear_block, "rows of a task, on a GPU of a block",                                                                                 \
      in(KnobUser::linear_cpu, 1, 65536).tried({16, 32, 48, 64, 96, 128, 192, 256, 384, 512}),                                             \
      in(KnobUser::linear_gpu, 1, 1024).multiple_of(&Tiling::linear_rows).tried({16, 32, 64, 128}))                                        \
    X(reduction_block, "inputs summed on their own before they meet the rest; fewer is more accurate, and slower",                         \
      in(KnobUser::linear_cpu, 8, 1 << 20),                                                                                                \
      in(KnobUser::linear_gpu, 8, 1 << 20))                                                                                                \
    X(row_block, "rows that are summed on their own in the gradient of a weight",                                                           \
      in(KnobUser::linear_gradients, 8, 65536).tried({128, 256, 512, 1024}))                                                               \
    X(thread_rows, "query rows of a thread; in warp_tiles tiles of 16 rows of a warp",                                                                                               \
      in(KnobUser::thread_rows, 1, 16).tried({1, 2, 4, 8}),                                                                                \
      in(KnobUser::block_tiles, 1, 16).tried({1, 2, 4, 8}),                                                                                \
      in(KnobUser::warp_tiles, 1, 4).tried({1, 2}))                                                                                        \
    X(row_lanes, "threads that share a query row, each with its part of head_dim",                                                         \
      in(KnobUser::thread_rows, 1, 32).divides(Quantity::warp).tried({1, 2, 4, 8, 16}, Quantity::one, Quantity::warp),                     \
      in(KnobUser::block_tiles, 1, 32))                                                                                                    \
    X(masked_kv_tile, "keys of a chunk that some rows see only in part",                                                                   \
      in(KnobUser::thread_rows, 1, 32).divides(&Tiling::kv_tile).tried({1, 2, 3, 4, 8}))                                                   \
    X(row_groups, "threads over the query rows of a block; in split_rows over the keys of a split, in warp_tiles warps",                                        \
      in(KnobUser::thread_rows, 1, 1024).tried({2, 4, 8, 16, 32, 64, 128}),                                                                \
      in(KnobUser::block_tiles, 1, 256).tried({2, 4, 8, 16, 32, 64, 128}),                                                                 \
      in(KnobUser::warp_tiles, 1, 16).tried({2, 4, 8, 12}))                                                                                    \
    X(load_width, "elements of query, key and value in one load; their addresses and strides are multiples of it",                         \
      in(KnobUser::thread_rows, 1, 4).divides(Quantity::widest_load).tried({1, 4}),                                                        \
      in(KnobUser::warp_tiles, 4, 8))                                                                                                      \
    X(kv_chunks, "chunks of key and value in shared memory; with 1 the next keys arrive while values are used, and the values later; 3 in group_tiles", \
      in(KnobUser::warp_tiles, 1, 3).tried({1, 2, 3}))                                                                                        \
    X(linear_columns, "columns of a thread",                                                                                               \
      in(KnobUser::linear_gpu, 1, 16).divides(Quantity::weight_panel).tried({4, 8, 16}))                                                   \
    X(warp_products, "1: linear layers of f16 or bf16, or of f32 with precision tf32x3, are multiplied by warps, in a variant of its own", \
      in(KnobUser::linear_gpu, 0, 1).tried({0, 1}, Quantity::one, Quantity::products))                                                     \
    X(amx, "1: bf16 is multiplied by the tiles of AMX, in a variant of its own",                                                           \
      in(KnobUser::query_lanes, 0, 1).tried({0, 1}, Quantity::one, Quantity::tiles),                                                       \
      in(KnobUser::linear_cpu, 0, 1).tried({0, 1}, Quantity::one, Quantity::tiles))                                                        \
    X(unscheduled, "1: no schedule at all, the algorithm as written (tests)",                                                              \
      in(KnobUser::everyone, 0, 1))
// clang-format on

struct Knob {
    const char *name, *meaning;
    int Tiling::*value;
    std::vector<KnobUse> uses;
};
const std::vector<Knob> &knobs();

} // namespace polyhead::gen

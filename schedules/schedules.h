// The schedules: how a machine runs the stages of each algorithm.
#pragma once

#include <vector>

#include <Halide.h>

#include "../machines/machine.h"
#include "../plan/score_output_tile.h"

namespace polyhead::gen {

struct AttentionOut;
struct HeadLanesStages;
struct HeadGradient;
struct HeadNorm;
struct HeadProjection;
struct HeadRows;
struct KeyLanesStages;
struct LinearGradientsStages;
struct LinearOut;
struct LinearStages;
struct LinearWarpsStages;
struct PairSums;
struct QueryLanesStages;
struct RowMarks;
struct RowsStages;
struct ScoreOutputStages;
struct TransposedSquares;
struct WarpTilesStages;
struct WidenedTensor;
struct Tiling;

// ---- CPUs

// Once per call, in vectors along a row.
void schedule_widened(WidenedTensor &widened, const Machine &machine);
void schedule_query_lanes(QueryLanesStages &stages, const AttentionOut &out, const Machine &machine);
void schedule_head_lanes(HeadLanesStages &stages, const AttentionOut &out, const Machine &machine);
void schedule_key_lanes(KeyLanesStages &stages, const Machine &machine);
void schedule_pair_sums(PairSums &sums, const Machine &machine);
// A square: all steps are unrolled, so that it stays in registers. row_words: elements of a row that are loaded at once.
void schedule_square(TransposedSquares &squares, const Halide::LoopLevel &square, int row_words);
// A Func at root: vectors along its first dimension, tasks along the last ones.
void schedule_along_rows(Halide::Func func, const Machine &machine);
// Rows (n, row, ..., b) that are copied or added up: vectors along a row, tasks of some rows.
void schedule_rows_of_tasks(Halide::Func func, const Machine &machine);
// In the loops over tokens of the Funcs that are written: rows that are kept, and the result.
void schedule_head_gradient(HeadGradient &gradient, Halide::Func result, const Halide::Var &token, const Machine &machine);
// lse, which is made of what was merged.
void schedule_head_lanes_lse(const HeadLanesStages &stages, const AttentionOut &out, Halide::Func lse);
// A linear layer: the result as rows of `columns` numbers, or as heads of whole panels.
void schedule_linear(LinearStages &stages, const LinearOut &out, const Tiling &tiling, const Machine &machine);
void schedule_linear_gradients(LinearGradientsStages &stages, const Tiling &tiling, const Machine &machine);
void schedule_row_marks(RowMarks &marks, const Machine &machine);
void schedule_projection(HeadProjection &projection, const Tiling &tiling, const Machine &machine);
// Rows of out that were computed in another order.
void schedule_copied_out(Halide::Func out, int columns, const Machine &machine);
void schedule_head_rows(HeadRows &rows, const Machine &machine);
void schedule_head_norm(HeadNorm &norm, const Machine &machine);
// In the loop over tokens of rows of heads, the only place where it is read.
void schedule_head_norm_at(HeadNorm &norm, Halide::Func rows, const Halide::RVar &tokens, const Machine &machine);
void schedule_score_output(ScoreOutputStages &stages, const Tiling &tiling, const Machine &machine);

// ---- GPUs

// Thread rows and block tiles. load_width: elements of key and value that one load may take; their addresses are multiples of that.
void schedule_rows(RowsStages &stages, const AttentionOut &out, int load_width);
void schedule_warp_tiles(WarpTilesStages &stages, const AttentionOut &out);
// Of stages written in the coordinates of threads.
void schedule_linear_gpu(LinearStages &stages, const LinearOut &out, const Machine &machine);
void schedule_projection_gpu(HeadProjection &projection, const Machine &machine);
// Of a layer whose products are made by warps: out, and its dimension of the batch where there is one.
void schedule_linear_warps(LinearWarpsStages &stages, Halide::Func out, const std::vector<Halide::Var> &outer);
void schedule_head_rows_gpu(HeadRows &rows);
void schedule_head_norm_gpu(HeadNorm &norm);
void schedule_score_output_gpu(ScoreOutputStages &stages);
// A Func without reductions at root: `inner` along threads, the two or three others along blocks.
void schedule_copy_gpu(Halide::Func func, const Halide::Var &inner, const std::vector<Halide::Var> &outer);

} // namespace polyhead::gen

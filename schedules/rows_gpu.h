// GPU schedules of the frames "thread rows" and "block tiles".
#pragma once

#include "../generators/frames/rows.h"
#include "../generators/frames/attention_out.h"

namespace polyhead::gen {

void schedule_rows(RowsStages &stages, const AttentionOut &out);

} // namespace polyhead::gen

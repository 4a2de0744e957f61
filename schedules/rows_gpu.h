// GPU schedules of the frames "thread rows" and "block tiles".
#pragma once

#include "../generators/frames/rows.h"

namespace polyhead::gen {

// load_width: elements of key and value that one load may take; their addresses are multiples of that.
void schedule_rows(RowsStages &stages, const AttentionOut &out, int load_width);

} // namespace polyhead::gen

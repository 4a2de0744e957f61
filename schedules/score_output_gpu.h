// GPU schedule of scores as an output.
#pragma once

#include "../generators/score_output.h"

namespace polyhead::gen {

void schedule_score_output_gpu(ScoreOutputStages &stages);

} // namespace polyhead::gen

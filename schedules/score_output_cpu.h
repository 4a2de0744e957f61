// CPU schedule of scores as an output.
#pragma once

#include "../generators/score_output.h"
#include "machine.h"

namespace polyhead::gen {

void schedule_score_output(ScoreOutputStages &stages, const Machine &machine);

} // namespace polyhead::gen

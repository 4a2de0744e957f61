// Loops of a device that end with their counts.
#pragma once

#include <Halide.h>

namespace polyhead::gen {

// Has every loop over counted chunks (generators/frames/warp_tiles.h) end where its condition does not hold any more:
// RDom::where(x < count), of which the count is the value of a Func. Halide 21 ends some of these loops there. It runs others, with all
// stages in them, as often as no count can be larger: it forgets a count where a stage of the loop chooses by the value of another one.
void end_counted_loops(Halide::Pipeline pipeline);

} // namespace polyhead::gen

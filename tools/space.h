// What the generator gives to a tuner: the space of tilings of a request, and why a point is left out.
#pragma once

#include <string>

#include "request.h"

namespace polyhead::tools {

// JSON: the problem and its counts, and for each target its class, frames, knobs with their values, and the variants of now.
std::string space_text(const Request &request, std::string *error);
// Why "knob=value ..." of this frame is not tried on the first target of the request, or empty.
std::string point_refusal(const Request &request, const std::string &frame, const std::string &tiling);
// JSON: which entries of a text of tuning records are usable, and a sentence for each of the others.
std::string records_text(const std::string &json, const std::string &name);

} // namespace polyhead::tools

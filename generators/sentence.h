// A sentence for the user stays one line, whatever of the user's it repeats.
#pragma once

#include <algorithm>
#include <string>

namespace polyhead::gen {

// What would leave the line or move a terminal's cursor becomes a blank.
inline std::string on_one_line(std::string text) {
    std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
    return text;
}

} // namespace polyhead::gen

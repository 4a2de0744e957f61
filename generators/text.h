// Texts: whole or an exception, and on one line where a user reads them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace polyhead::gen {

// A sentence for the user stays one line, whatever of the user's it repeats: what would leave the line or move a terminal's cursor becomes
// a blank.
inline std::string on_one_line(std::string text) {
    std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
    return text;
}

// String streams that throw std::bad_alloc: those of the standard library continue, without the text that there was no memory for.
class TextWriter : public std::ostringstream {
public:
    TextWriter() { exceptions(std::ios::badbit); }
};
class TextReader : public std::istringstream {
public:
    explicit TextReader(const std::string &text) : std::istringstream(text) { exceptions(std::ios::badbit); }
};

// All of a file; false when it cannot be read.
inline bool read_file(const std::string &path, std::string *text) {
    std::ifstream file(path, std::ios::binary);
    if (!file || std::filesystem::is_directory(path)) {
        return false;
    }
    try {
        text->assign(std::istreambuf_iterator<char>(file), {});
    } catch (const std::ios_base::failure &) {
        return false;
    }
    return true;
}

} // namespace polyhead::gen

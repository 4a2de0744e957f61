// Texts: whole or an exception, and on one line where a user reads them.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <locale>
#include <sstream>
#include <string>
#include <vector>

namespace polyhead::gen {

// A sentence for the user stays one line, whatever of the user's it repeats: what would leave the line or move a terminal's cursor becomes
// a blank.
inline std::string on_one_line(std::string text) {
    std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
    return text;
}

// FNV-1a of 64 bits, continued from `value`: for names and against damage, not against an attack.
constexpr uint64_t hash_basis = UINT64_C(14695981039346656037);
inline uint64_t text_hash(const std::string &text, uint64_t value = hash_basis) {
    for (const char c : text) {
        value = (value ^ static_cast<unsigned char>(c)) * UINT64_C(1099511628211);
    }
    return value;
}

// 16 digits.
inline std::string hexadecimal(uint64_t value) {
    std::string digits(16, '0');
    for (size_t i = digits.size(); i-- > 0; value /= 16) {
        digits[i] = "0123456789abcdef"[value % 16];
    }
    return digits;
}

// String streams whose numbers are the same in every locale: a program may have set one that groups digits or has a decimal comma. They
// throw std::bad_alloc: those of the standard library continue, without the text that there was no memory for.
class TextWriter : public std::ostringstream {
public:
    TextWriter() {
        imbue(std::locale::classic());
        exceptions(std::ios::badbit);
    }
};
class TextReader : public std::istringstream {
public:
    explicit TextReader(const std::string &text) : std::istringstream(text) {
        imbue(std::locale::classic());
        exceptions(std::ios::badbit);
    }
};

// The text is a finite decimal number and nothing else.
inline bool read_number(const std::string &text, double *value) {
    const char *const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, *value);
    return end == last && error == std::errc() && std::isfinite(*value);
}

// A number with up to 10 digits, or with this number of decimals.
inline std::string number_text(double value, int decimals = -1) {
    TextWriter writer;
    writer.precision(decimals < 0 ? 10 : decimals);
    writer.setf(decimals < 0 ? std::ios::fmtflags() : std::ios::fixed, std::ios::floatfield);
    writer << value;
    return writer.str();
}

// Letters and digits of ASCII; those of <cctype> depend on the locale.
inline bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
inline bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Without the byte order mark that some editors write first.
inline void skip_byte_order_mark(std::string *text) {
    if (text->compare(0, 3, "\xEF\xBB\xBF") == 0) {
        text->erase(0, 3);
    }
}

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

// The parts of a text between separators that are not empty.
inline std::vector<std::string> split(const std::string &text, char separator) {
    std::vector<std::string> parts;
    TextReader stream(text);
    for (std::string part; std::getline(stream, part, separator);) {
        if (!part.empty()) {
            parts.push_back(part);
        }
    }
    return parts;
}

} // namespace polyhead::gen

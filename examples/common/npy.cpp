// Reads a NumPy .npy file: magic, header length, a Python dict literal, then the values.
#include "npy.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

namespace examples {
namespace {

// The text after `'key':` in the header dict, without leading blanks, or "".
std::string after_key(const std::string &header, const std::string &key) {
    size_t at = header.find("'" + key + "'");
    if (at == std::string::npos)
        return "";
    at = header.find(':', at);
    if (at == std::string::npos)
        return "";
    at = header.find_first_not_of(' ', at + 1);
    return at == std::string::npos ? "" : header.substr(at);
}

// "(8, 41), ..." -> {8, 41}; false when it is not a tuple of small non-negative integers.
bool parse_shape(const std::string &text, std::vector<int64_t> *shape) {
    shape->clear();
    if (text.empty() || text[0] != '(')
        return false;
    int64_t value = 0;
    bool digits = false;
    for (size_t i = 1; i < text.size(); i++) {
        char c = text[i];
        if (c >= '0' && c <= '9') {
            if (value > (int64_t(1) << 40))
                return false;
            value = value * 10 + (c - '0');
            digits = true;
        } else if (c == ',' || c == ')') {
            if (digits)
                shape->push_back(value);
            value = 0;
            digits = false;
            if (c == ')')
                return shape->size() <= 8;
        } else if (c != ' ') {
            return false;
        }
    }
    return false;
}

} // namespace

std::string read_npy(const std::string &path, const std::string &expected, std::vector<int64_t> *shape, std::vector<unsigned char> *bytes) {
    std::ifstream stream(path, std::ios::binary);
    if (!stream)
        return "cannot open " + path + ".";
    std::vector<unsigned char> file((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    const std::string foreign = path + " is not a .npy file of version 1 to 3.";
    if (file.size() < 12 || std::memcmp(file.data(), "\x93NUMPY", 6) != 0 || file[6] < 1 || file[6] > 3)
        return foreign;
    size_t length_bytes = file[6] == 1 ? 2 : 4, start = 8 + length_bytes, header_bytes = 0;
    for (size_t i = length_bytes; i-- > 0;)
        header_bytes = header_bytes << 8 | file[8 + i];
    if (header_bytes > file.size() - start)
        return path + " is truncated inside its header.";
    std::string header(file.begin() + start, file.begin() + start + header_bytes);

    if (after_key(header, "descr").compare(0, expected.size() + 2, "'" + expected + "'") != 0)
        return path + " does not hold values of type " + expected + ".";
    if (after_key(header, "fortran_order").compare(0, 5, "False") != 0)
        return path + " is not in C order.";
    if (!parse_shape(after_key(header, "shape"), shape))
        return path + " has no readable shape.";
    size_t size = static_cast<size_t>(expected[2] - '0');
    for (int64_t extent : *shape)
        if (__builtin_mul_overflow(size, static_cast<size_t>(extent), &size))
            return path + " has an impossible shape.";
    if (size != file.size() - start - header_bytes)
        return path + " holds " + std::to_string(file.size() - start - header_bytes) + " bytes of values, its shape needs " +
               std::to_string(size) + ".";
    bytes->assign(file.begin() + start + header_bytes, file.end());
    return "";
}

} // namespace examples

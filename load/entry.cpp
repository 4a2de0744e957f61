// Writes and reads entries.
#include "entry.h"

#include "../plan/text.h"

namespace polyhead::load {
namespace {

using gen::hexadecimal;
using gen::text_hash;

constexpr char magic[] = "polyhead object 1\n";

} // namespace

std::string entry_name(const std::string &key) {
    constexpr uint64_t other = 0x9e3779b97f4a7c15; // a second hash, so that two keys hardly ever share a name
    return hexadecimal(text_hash(key)) + hexadecimal(text_hash(key, other));
}

std::string entry_text(const std::string &key, const std::string &bytes) {
    std::string text = magic + hexadecimal(key.size()) + hexadecimal(bytes.size()) + key + bytes;
    return text + hexadecimal(text_hash(text));
}

std::optional<std::string> entry_bytes(std::string_view text, const std::string &key) {
    constexpr size_t of_magic = sizeof magic - 1, of_number = 16;
    const size_t begin = of_magic + 2 * of_number + key.size();
    if (text.size() < begin + of_number || text.compare(0, of_magic, magic) != 0 ||
        text.compare(of_magic, of_number, hexadecimal(key.size())) != 0 || text.compare(of_magic + 2 * of_number, key.size(), key) != 0) {
        return std::nullopt;
    }
    const std::string content(text.substr(0, text.size() - of_number));
    std::string bytes = content.substr(begin);
    const bool whole = text.compare(of_magic + of_number, of_number, hexadecimal(bytes.size())) == 0 &&
                       text.compare(content.size(), of_number, hexadecimal(text_hash(content))) == 0;
    return whole ? std::optional(std::move(bytes)) : std::nullopt;
}

} // namespace polyhead::load

// One entry of the disk cache or of a bundle: a line that says what it is, the lengths of key and bytes, both, and a checksum.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace polyhead::load {

// A hash of the key, 32 characters: where an entry is looked for.
std::string entry_name(const std::string &key);

std::string entry_text(const std::string &key, const std::string &bytes);

// The bytes of an entry, unless it is damaged or of another key with the same name.
std::optional<std::string> entry_bytes(std::string_view text, const std::string &key);

} // namespace polyhead::load

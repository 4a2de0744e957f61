// Compiled objects on the disk, from one process to the next.
#pragma once

#include <optional>
#include <string>

namespace polyhead::load {

// The folder: $POLYHEAD_CACHE, or polyhead in $XDG_CACHE_HOME or in ~/.cache. Nothing where $POLYHEAD_CACHE is "off", or where there is no
// such folder that belongs to this user alone: another's could hold another's code.
std::optional<std::string> cache_folder();

// Entries of a folder together: $POLYHEAD_CACHE_MEGABYTES, or 1,000.
int64_t cache_limit_bytes();

// What was stored under this key, unless it is not there, damaged, or of another key with the same name.
std::optional<std::string> find_cached(const std::string &folder, const std::string &key);

// Stores the bytes whole or not at all; entries that were not used for the longest time go where the folder would become larger than its
// limit. Processes take turns. What cannot be stored is not: a disk may be full.
void store_cached(const std::string &folder, const std::string &key, const std::string &bytes);

} // namespace polyhead::load

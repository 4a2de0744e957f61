// Makes and removes the folder.
#include "temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <stdlib.h>

namespace polyhead::load {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    std::string pattern = (parent / "polyhead.XXXXXX").string();
    if (!error && ::mkdtemp(pattern.data())) {
        path_ = pattern;
        return;
    }
    const char *const asked = std::getenv("TMPDIR");
    const std::string found = asked ? asked : parent.string();
    error_ = "TMPDIR: found '" + found + "', expected a folder in which files can be made: " + std::strerror(error ? error.value() : errno);
}

TemporaryFolder::~TemporaryFolder() {
    if (!path_.empty()) {
        std::error_code error;
        fs::remove_all(path_, error);
    }
}

} // namespace polyhead::load

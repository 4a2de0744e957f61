// A folder for files that are gone at the end.
#pragma once

#include <string>

namespace polyhead::load {

// A folder under TMPDIR, which is removed at the end with everything in it.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder &) = delete;
    TemporaryFolder &operator=(const TemporaryFolder &) = delete;

    const std::string &error() const { return error_; } // a sentence where there is no folder
    const std::string &path() const { return path_; }

private:
    std::string path_, error_;
};

} // namespace polyhead::load

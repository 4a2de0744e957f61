// Files that a tool writes for its user: a whole set or nothing, under failures, signals, kill -9 and several writers.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace polyhead::tools {

// Writes a text and waits until the disk has it. Returns one sentence or nothing.
std::string write_text(const std::filesystem::path &path, const std::string &text);

// A folder beside the results, in which they are made, so that the final renames stay on one file system. A lock shows that it is in use
// and ends with its process. The next run for the same name finishes or removes the work of a killed one. A process has one at a time.
class WorkFolder {
public:
    WorkFolder(const std::filesystem::path &directory, const std::string &name);
    // Removes the folder, and the directory where that was made for nothing.
    ~WorkFolder();
    WorkFolder(const WorkFolder &) = delete;
    WorkFolder &operator=(const WorkFolder &) = delete;

    const std::filesystem::path &path() const { return path_; }
    // Why there is no folder: one sentence, or nothing.
    const std::string &error() const { return error_; }

    // Moves finished files of the folder into the directory, where they replace files with the same names: all of them, or none and a
    // sentence. The last file is one without which the others are not used: it does not exist while they change. A process that is killed
    // in between leaves the new files in the folder, and the next run puts them in place.
    std::string deliver(const std::vector<std::filesystem::path> &files);

private:
    std::filesystem::path directory_, path_;
    std::string name_, error_;
    int lock_ = -1;

    std::string make();
    std::string take_over() const;
    std::string stage(const std::vector<std::filesystem::path> &files) const;
    std::string put();
};

// Removes the folder of this process as the destructor does; for the end of a process that cannot unwind, and for signal handlers.
void remove_work_folder() noexcept;

} // namespace polyhead::tools

// Work folders with locks, and sets of files that change together.
#include "output_files.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace polyhead::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char *lock_name = "lock"; // the file in a work folder that is locked
// A set has the folders new/ (its files, numbered in the order in which they are moved) and old/ (the files that they replace). Its name is
// its state. staged: not complete. ready: complete on disk; a process that finds it moves new/. undone: a move failed; old/ is moved back.
constexpr const char *staged_name = "staged", *ready_name = "ready", *undone_name = "undone";
constexpr size_t number_length = 4; // "012." before a name

// What remove_work_folder() needs, in memory that is there before.
struct Current {
    char folder[PATH_MAX] = "", lock[PATH_MAX] = "", directory[PATH_MAX] = "";
    size_t kept = 0; // so much of the directory's path was there before
};
Current current;

// Removes a folder and all in it. Signal handlers do this: no memory is taken.
void remove_tree(int parent, const char *name) noexcept {
    const int folder = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (bool removed = folder >= 0; removed;) { // until a pass removes nothing: entries may move while others go
        removed = false;
        ::lseek(folder, 0, SEEK_SET);
        alignas(dirent64) char buffer[4096];
        for (long bytes; (bytes = ::syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;) {
            for (long at = 0; at < bytes; at += reinterpret_cast<const dirent64 *>(buffer + at)->d_reclen) {
                const char *const entry = reinterpret_cast<const dirent64 *>(buffer + at)->d_name;
                if (std::strcmp(entry, ".") == 0 || std::strcmp(entry, "..") == 0) {
                    continue;
                }
                if (::unlinkat(folder, entry, 0) != 0) {
                    remove_tree(folder, entry);
                }
                removed |= ::faccessat(folder, entry, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
            }
        }
    }
    if (folder >= 0) {
        ::close(folder);
    }
    ::unlinkat(parent, name, AT_REMOVEDIR);
}

// Ctrl-C and an end from outside wait until a set has changed.
class Undisturbed {
public:
    Undisturbed() {
        sigset_t waiting;
        sigemptyset(&waiting);
        for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
            sigaddset(&waiting, signal);
        }
        pthread_sigmask(SIG_BLOCK, &waiting, &before_);
    }
    ~Undisturbed() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    Undisturbed(const Undisturbed &) = delete;
    Undisturbed &operator=(const Undisturbed &) = delete;

private:
    sigset_t before_{};
};

// An open file that is closed at the end.
struct Descriptor {
    explicit Descriptor(int opened) : number(opened) {}
    ~Descriptor() {
        const int reason = errno;
        if (number >= 0) {
            ::close(number);
        }
        errno = reason;
    }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    int number;
};

int lock(int file, int how) {
    int result = -1;
    do {
        result = ::flock(file, how);
    } while (result != 0 && errno == EINTR);
    return result;
}

// Whether this path names the open file.
bool names(const fs::path &path, int file) {
    struct stat open{}, named{};
    return ::fstat(file, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

std::string cannot(const std::string &what, const fs::path &path) {
    return "output directory: cannot " + what + " '" + path.string() + "': " + std::strerror(errno);
}

// Seconds to wait for another process, which holds the lock of a name only while it moves files.
constexpr int longest_wait = 10;

// Held while the files of a name or their work folders change; its file is removed with it. On a file system without locks it has no
// effect.
class NameLock {
public:
    NameLock(const fs::path &directory, const std::string &name) : directory_(directory), path_(directory / ("." + name + ".lock")) {
        do {
            close(); // who had it has removed it
            file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        } while (file_ >= 0 && wait_for_it() && !names(path_, file_));
        if (file_ >= 0) {
            std::snprintf(current.lock, sizeof current.lock, "%s", path_.c_str());
        }
    }
    ~NameLock() {
        const int reason = errno;
        if (file_ >= 0) {
            ::unlink(path_.c_str());
            current.lock[0] = 0;
            close();
        }
        errno = reason;
    }
    NameLock(const NameLock &) = delete;
    NameLock &operator=(const NameLock &) = delete;
    // Why it is not held: one sentence, or nothing.
    std::string refusal() const {
        if (in_use_) {
            return "output directory: another process has held '" + path_.string() + "' for " + std::to_string(longest_wait) + " s";
        }
        return file_ < 0 ? cannot("write into", directory_) : "";
    }

private:
    fs::path directory_, path_;
    int file_ = -1;
    bool in_use_ = false;

    void close() {
        if (file_ >= 0) {
            ::close(file_);
        }
        file_ = -1;
    }

    // Whether the file is locked now; false also where it cannot be.
    bool wait_for_it() {
        for (int i = 0; lock(file_, LOCK_EX | LOCK_NB) != 0; i++) {
            if (errno != EWOULDBLOCK) {
                return false; // a file system without locks
            }
            if (i == 100 * longest_wait) {
                in_use_ = true;
                close();
                return false;
            }
            ::usleep(10000);
        }
        return true;
    }
};

// Waits until the disk has it: a file's bytes, or a folder's names.
bool sync(const fs::path &path) {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return file.number >= 0 && ::fsync(file.number) == 0;
}

// What is in a folder, sorted; false when it cannot be read. A folder that is not there has nothing in it.
bool list(const fs::path &folder, std::vector<fs::path> *found) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
        found->push_back(entry->path());
    }
    std::sort(found->begin(), found->end());
    errno = error.value();
    return !error || error == std::errc::no_such_file_or_directory;
}

bool is_there(const fs::path &path) {
    struct stat status{};
    return ::lstat(path.c_str(), &status) == 0;
}

fs::path target_of(const fs::path &numbered, const fs::path &directory) {
    return directory / numbered.filename().string().substr(number_length);
}

bool move_old(const fs::path &set, const fs::path &directory) {
    std::vector<fs::path> files;
    bool moved = list(set / "old", &files);
    for (const fs::path &file : files) {
        moved &= ::rename(file.c_str(), target_of(file, directory).c_str()) == 0;
    }
    return moved;
}

// One file of a set: where it lies, where it belongs, and where the file that it replaces is kept, by the name of the set.
struct Place {
    fs::path made, target, old_of_ready, old_of_undone;
};

// What the system refused, with its reason in errno: to replace or to write a file, or nothing.
struct Refused {
    const char *what;
    const Place *place;
};

// Moves files to where they belong. If there are several, the old file of the last name is removed before the first move.
Refused move_in(const std::vector<Place> &places) noexcept {
    if (places.size() > 1 && ::unlink(places.back().target.c_str()) != 0 && errno != ENOENT) {
        return {"replace", &places.back()};
    }
    for (const Place &place : places) {
        if (::rename(place.made.c_str(), place.target.c_str()) != 0) {
            return {"write", &place};
        }
    }
    return {nullptr, nullptr};
}

// Moves the files of a whole set into the directory.
std::string move_new(const fs::path &set, const fs::path &directory) {
    std::vector<fs::path> files;
    if (!list(set / "new", &files)) {
        return cannot("read", set);
    }
    std::vector<Place> places;
    for (const fs::path &file : files) {
        places.push_back({file, target_of(file, directory), {}, {}});
    }
    const Refused refused = move_in(places);
    return refused.place == nullptr ? "" : cannot(refused.what, refused.place->target);
}

// Moves the earlier files back; where there was none, none stays.
bool move_back(const std::vector<Place> &places, bool undone) noexcept {
    bool moved = true;
    for (const Place &place : places) {
        const char *const old = (undone ? place.old_of_undone : place.old_of_ready).c_str();
        struct stat status{};
        if (::lstat(old, &status) != 0) {
            ::unlink(place.target.c_str());
        } else {
            moved &= ::rename(old, place.target.c_str()) == 0;
        }
    }
    return moved;
}

// Keeps the old file in the place of a new one: with a second name, or as a copy if links are not possible.
bool keep(const fs::path &target, const fs::path &old) {
    if (::link(target.c_str(), old.c_str()) == 0 || errno == ENOENT) {
        return true;
    }
    std::error_code error;
    fs::copy_file(target, old, error);
    errno = error.value();
    return !error || error == std::errc::no_such_file_or_directory; // nothing to keep, whatever link() said
}

} // namespace

std::string write_text(const fs::path &path, const std::string &text) {
    const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    size_t done = 0;
    while (file.number >= 0 && done < text.size()) {
        const ssize_t some = ::write(file.number, text.data() + done, text.size() - done);
        if (some < 0 && errno != EINTR) {
            break;
        }
        done += some > 0 ? static_cast<size_t>(some) : 0;
    }
    return file.number >= 0 && done == text.size() && ::fsync(file.number) == 0 ? "" : cannot("write", path);
}

WorkFolder::WorkFolder(const fs::path &directory, const std::string &name) : name_(name) {
    std::error_code error;
    directory_ = fs::absolute(directory, error).lexically_normal();
    if (error) {
        error_ = "output directory: '" + directory.string() + "' is in the current folder, which is gone: " + error.message();
        return;
    }
    if (!directory_.has_filename()) {
        directory_ = directory_.parent_path(); // without a slash at the end
    }
    try {
        error_ = make();
    } catch (const std::bad_alloc &) { // there will be no destructor
        const Undisturbed undisturbed;
        remove_work_folder();
        throw;
    }
}

WorkFolder::~WorkFolder() {
    const Undisturbed undisturbed;
    remove_work_folder();
    if (lock_ >= 0) {
        ::close(lock_);
    }
}

std::string WorkFolder::make() {
    std::error_code error;
    fs::path there = directory_;
    while (there.has_relative_path() && !fs::exists(there, error)) {
        there = there.parent_path();
    }
    if (directory_.native().size() + name_.size() + 32 >= PATH_MAX) { // "/.NAME.work-XXXXXX/lock"
        errno = ENAMETOOLONG;
        return cannot("write into", directory_);
    }
    current.kept = there.native().size();
    std::snprintf(current.directory, sizeof current.directory, "%s", directory_.c_str());
    fs::create_directories(directory_, error);
    errno = error.value();
    if (error) {
        return cannot("write into", directory_);
    }
    const NameLock held(directory_, name_);
    const Undisturbed undisturbed;
    std::string refusal = held.refusal();
    refusal = refusal.empty() ? take_over() : refusal;
    if (!refusal.empty()) {
        return refusal;
    }
    std::string pattern = (directory_ / ("." + name_ + ".work-XXXXXX")).string();
    if (::mkdtemp(pattern.data()) == nullptr) {
        return cannot("write into", directory_);
    }
    std::snprintf(current.folder, sizeof current.folder, "%s", pattern.c_str());
    path_ = pattern;
    lock_ = ::open((path_ / lock_name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock_ < 0) {
        return cannot("write into", directory_);
    }
    lock(lock_, LOCK_EX);
    return "";
}

// Finishes or removes what killed processes left of this name. Called with the lock of the name.
std::string WorkFolder::take_over() const {
    const std::string prefix = "." + name_ + ".work-";
    std::vector<fs::path> beside;
    if (!list(directory_, &beside)) {
        return cannot("read", directory_);
    }
    for (const fs::path &folder : beside) {
        struct stat status{};
        if (folder.filename().string().compare(0, prefix.size(), prefix) != 0 || folder == path_ || ::lstat(folder.c_str(), &status) != 0 ||
            !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) {
            continue;
        }
        const Descriptor file(::open((folder / lock_name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
        if (file.number < 0 ? errno != ENOENT : lock(file.number, LOCK_EX | LOCK_NB) != 0) {
            continue; // in use
        }
        if (is_there(folder / ready_name)) {
            const std::string error = move_new(folder / ready_name, directory_);
            if (!error.empty()) {
                return error;
            }
        } else if (!move_old(folder / undone_name, directory_)) {
            return cannot("restore the files of", folder);
        }
        remove_tree(AT_FDCWD, folder.c_str());
    }
    return "";
}

std::string WorkFolder::deliver(const std::vector<fs::path> &files) {
    const NameLock held(directory_, name_);
    const Undisturbed undisturbed;
    std::string error = held.refusal();
    error = error.empty() ? take_over() : error;
    error = error.empty() ? stage(files) : error;
    return error.empty() ? put() : error;
}

std::string WorkFolder::stage(const std::vector<fs::path> &files) const {
    const fs::path set = path_ / staged_name;
    for (const fs::path &folder : {set, set / "new", set / "old"}) {
        if (::mkdir(folder.c_str(), 0777) != 0) {
            return cannot("write", folder);
        }
    }
    for (size_t i = 0; i < files.size(); i++) {
        char number[32];
        std::snprintf(number, sizeof number, "%03zu.", i);
        const std::string name = number + files[i].filename().string();
        if (!sync(files[i]) || ::rename(files[i].c_str(), (set / "new" / name).c_str()) != 0) {
            return cannot("write", files[i]);
        }
        if (!keep(directory_ / files[i].filename(), set / "old" / name)) {
            return cannot("replace", directory_ / files[i].filename());
        }
    }
    return sync(set / "new") && sync(set / "old") ? "" : cannot("write", set);
}

// From staged to delivered, or back. What needs memory is made before the first file moves: then nothing but the system can fail.
std::string WorkFolder::put() {
    const fs::path set = path_ / ready_name, undone = path_ / undone_name;
    std::vector<fs::path> files;
    if (!list(path_ / staged_name / "new", &files)) {
        return cannot("read", path_ / staged_name);
    }
    std::vector<Place> places;
    for (const fs::path &file : files) {
        const fs::path name = file.filename();
        places.push_back({set / "new" / name, target_of(file, directory_), set / "old" / name, undone / "old" / name});
    }
    if (::rename((path_ / staged_name).c_str(), set.c_str()) != 0 || !sync(path_)) {
        return cannot("write", set);
    }
    const Refused refused = move_in(places);
    if (refused.place == nullptr) {
        sync(directory_); // the files are in place; their names survive a power cut where the system allows this sync
        return "";
    }
    const int reason = errno;
    const bool named = ::rename(set.c_str(), undone.c_str()) == 0, restored = move_back(places, named);
    if (!restored) {
        current.folder[0] = 0; // the earlier files stay there
    }
    errno = reason;
    const std::string error = cannot(refused.what, refused.place->target);
    return restored ? error : error + "; the earlier files are in '" + path_.string() + "'";
}

void remove_work_folder() noexcept {
    struct stat status{};
    for (int i = 0; i < 2 && current.folder[0] != 0 && ::lstat(current.folder, &status) == 0;
         i++) { // again if a passing fault prevented it
        remove_tree(AT_FDCWD, current.folder);
    }
    current.folder[0] = 0;
    if (current.lock[0] != 0) {
        ::unlink(current.lock);
    }
    while (std::strlen(current.directory) > current.kept) {
        ::rmdir(current.directory); // only while it is empty: nothing was delivered
        *std::strrchr(current.directory, '/') = 0;
    }
}

} // namespace polyhead::tools

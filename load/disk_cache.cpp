// An entry (entry.h) is one file. Its name is a hash of the key.
#include "disk_cache.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "entry.h"

namespace polyhead::load {
namespace {

namespace fs = std::filesystem;

constexpr char suffix[] = ".object", unfinished[] = "unfinished", turn[] = "lock";

std::string name_of(const std::string &key) {
    return entry_name(key) + suffix;
}

// An open file; closed at the end, which also ends a turn.
class File {
public:
    File(const std::string &path, int flags) : file_(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600)) {}
    ~File() {
        if (file_ >= 0) {
            ::close(file_);
        }
    }
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    bool open() const { return file_ >= 0; }
    bool take_turn() const {
        while (open() && ::flock(file_, LOCK_EX) != 0) {
            if (errno != EINTR) {
                return false;
            }
        }
        return open();
    }
    bool read(std::string *text) const {
        struct stat status{};
        if (!open() || ::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) {
            return false;
        }
        text->resize(size_t(status.st_size));
        size_t at = 0;
        for (ssize_t some = 0; at < text->size() && (some = ::read(file_, text->data() + at, text->size() - at)) > 0;) {
            at += size_t(some);
        }
        return at == text->size();
    }
    bool write(const std::string &text) const {
        size_t at = 0;
        for (ssize_t some = 0; open() && at < text.size() && (some = ::write(file_, text.data() + at, text.size() - at)) > 0;) {
            at += size_t(some);
        }
        return open() && at == text.size();
    }
    // Marks the entry as used now.
    void touch() const { ::futimens(file_, nullptr); }

private:
    int file_;
};

struct Entry {
    std::string path;
    int64_t bytes;
    timespec used;
};

std::vector<Entry> entries_of(const std::string &folder) {
    std::vector<Entry> entries;
    DIR *const listing = ::opendir(folder.c_str());
    for (const dirent *one = nullptr; listing && (one = ::readdir(listing)) != nullptr;) {
        const std::string path = folder + "/" + one->d_name;
        struct stat status{};
        if (fs::path(path).extension() == suffix && ::lstat(path.c_str(), &status) == 0) {
            entries.push_back({path, int64_t(status.st_size), status.st_mtim});
        }
    }
    if (listing) {
        ::closedir(listing);
    }
    return entries;
}

// Room for so many bytes beside the entries that stay.
void make_room(const std::string &folder, int64_t bytes) {
    std::vector<Entry> entries = entries_of(folder);
    std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
        return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec : a.used.tv_nsec < b.used.tv_nsec;
    });
    for (const Entry &entry : entries) {
        bytes += entry.bytes;
    }
    for (const Entry &entry : entries) {
        if (bytes <= cache_limit_bytes()) {
            return;
        }
        bytes -= ::unlink(entry.path.c_str()) == 0 ? entry.bytes : 0;
    }
}

// A folder of this user, which nobody else may enter. Makes it where it is missing.
bool is_private(const std::string &folder) {
    std::error_code error;
    fs::create_directories(fs::path(folder).parent_path(), error);
    ::mkdir(folder.c_str(), 0700);
    struct stat status{};
    return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() && (status.st_mode & 077) == 0;
}

std::string folder_of_environment() {
    const auto value = [](const char *name) { return std::string(std::getenv(name) ? std::getenv(name) : ""); };
    if (const std::string given = value("POLYHEAD_CACHE"); !given.empty()) {
        return given == "off" ? "" : given;
    }
    const std::string shared = value("XDG_CACHE_HOME"), home = value("HOME");
    return !shared.empty() ? shared + "/polyhead" : !home.empty() ? home + "/.cache/polyhead" : "";
}

} // namespace

std::optional<std::string> cache_folder() {
    const std::string folder = folder_of_environment();
    return !folder.empty() && folder[0] == '/' && is_private(folder) ? std::optional(folder) : std::nullopt;
}

int64_t cache_limit_bytes() {
    constexpr int64_t megabyte = 1000000, by_default = 1000 * megabyte;
    const char *const text = std::getenv("POLYHEAD_CACHE_MEGABYTES");
    char *end = nullptr;
    const long long given = text && *text >= '0' && *text <= '9' ? std::strtoll(text, &end, 10) : 0;
    return end && *end == 0 && given < INT64_MAX / megabyte ? int64_t(given) * megabyte : by_default;
}

std::optional<std::string> find_cached(const std::string &folder, const std::string &key) {
    const File file(folder + "/" + name_of(key), O_RDONLY);
    std::string text;
    if (!file.read(&text)) {
        return std::nullopt;
    }
    std::optional<std::string> bytes = entry_bytes(text, key);
    if (bytes) {
        file.touch();
    }
    return bytes;
}

void store_cached(const std::string &folder, const std::string &key, const std::string &bytes) {
    const std::string text = entry_text(key, bytes), path = folder + "/" + name_of(key), half = folder + "/" + unfinished;
    if (int64_t(text.size()) > cache_limit_bytes()) {
        return;
    }
    const File lock(folder + "/" + turn, O_RDWR | O_CREAT);
    if (!lock.take_turn()) {
        return;
    }
    ::unlink(half.c_str()); // of a process that was killed in its turn
    ::unlink(path.c_str()); // a damaged one, or one that another process stored meanwhile
    make_room(folder, int64_t(text.size()));
    const bool written = File(half, O_WRONLY | O_CREAT | O_EXCL).write(text);
    if (!written || ::rename(half.c_str(), path.c_str()) != 0) {
        ::unlink(half.c_str());
    }
}

} // namespace polyhead::load

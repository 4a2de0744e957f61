// Objects on the disk: what is found, what is ignored, and processes that are killed while they store.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "load/build_id.h"
#include "load/disk_cache.h"
#include "support/catch.h"

using namespace polyhead;

namespace fs = std::filesystem;

namespace {

// A folder of its own, and the environment that points to it.
struct Folder {
    Folder() : path((fs::temp_directory_path() / ("polyhead_cache_" + std::to_string(getpid()))).string()) {
        fs::remove_all(path);
        set("POLYHEAD_CACHE", path);
        set("POLYHEAD_CACHE_MEGABYTES", "");
        REQUIRE(load::cache_folder() == path);
    }
    ~Folder() {
        for (const auto &[name, value] : before) {
            value.empty() ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value.c_str(), 1);
        }
        fs::remove_all(path);
    }
    void set(const std::string &name, const std::string &value) {
        const char *const old = std::getenv(name.c_str());
        before.emplace_back(name, old ? old : "");
        ::setenv(name.c_str(), value.c_str(), 1);
    }
    std::set<std::string> names() const {
        std::set<std::string> found;
        for (const auto &entry : fs::directory_iterator(path)) {
            found.insert(entry.path().filename().string());
        }
        return found;
    }
    std::string only_entry() const {
        for (const std::string &name : names()) {
            if (name != "lock") {
                return path + "/" + name;
            }
        }
        return "";
    }
    int64_t bytes() const {
        int64_t sum = 0;
        for (const auto &entry : fs::directory_iterator(path)) {
            sum += int64_t(entry.file_size());
        }
        return sum;
    }
    std::string path;
    std::vector<std::pair<std::string, std::string>> before;
};

std::string content(int number) {
    std::string text(size_t(20000 + number * 97 % 10000), 0);
    for (size_t i = 0; i < text.size(); i++) {
        text[i] = char(i * 31 + size_t(number) * 17);
    }
    return text;
}

std::string key(int number) {
    return "key " + std::to_string(number);
}

constexpr int num_entries = 120;

// Wants kernels one after the other, and stores those that are not there. Ends with 1 where one is wrong.
[[noreturn]] void want_kernels(const std::string &folder, unsigned seed) {
    for (unsigned state = seed;;) {
        state = state * 1664525u + 1013904223u;
        const int number = int(state >> 8) % num_entries;
        const auto found = load::find_cached(folder, key(number));
        if (found && *found != content(number)) {
            ::_exit(1);
        }
        if (!found) {
            ::usleep(500); // the stand-in compiles
            load::store_cached(folder, key(number), content(number));
        }
    }
}

pid_t start(const std::string &folder, unsigned seed) {
    const pid_t child = ::fork();
    if (child == 0) {
        want_kernels(folder, seed);
    }
    return child;
}

void end(pid_t child) {
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status)); // otherwise it found a wrong one
}

} // namespace

TEST_CASE("disk cache: an entry is found by its key, whole or not at all", "[algorithm]") {
    const Folder folder;
    CHECK(!load::find_cached(folder.path, key(1)));
    load::store_cached(folder.path, key(1), content(1));
    CHECK(load::find_cached(folder.path, key(1)) == content(1));
    CHECK(!load::find_cached(folder.path, key(2)));
    CHECK(folder.names().size() == 2);

    const std::string entry = folder.only_entry();
    const auto size = fs::file_size(entry);
    struct stat status{};
    REQUIRE(::stat(entry.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    for (const auto at : {size_t(3), size_t(20), size_t(51), size_t(size / 2), size_t(size - 1)}) {
        INFO(at);
        std::fstream file(entry, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(std::streamoff(at));
        const char was = char(file.get());
        file.seekp(std::streamoff(at));
        file.put(char(was ^ 4));
        file.close();
        CHECK(!load::find_cached(folder.path, key(1)));
        load::store_cached(folder.path, key(1), content(1));
        CHECK(load::find_cached(folder.path, key(1)) == content(1));
    }
    for (const auto left : {size_t(0), size_t(10), size_t(60), size_t(size - 1)}) {
        fs::resize_file(entry, left);
        CHECK(!load::find_cached(folder.path, key(1)));
    }
    fs::remove(entry); // not through a link to a file of somebody
    std::ofstream(folder.path + "/elsewhere") << "x";
    fs::create_symlink(folder.path + "/elsewhere", entry);
    CHECK(!load::find_cached(folder.path, key(1)));
}

TEST_CASE("disk cache: only a folder of this user alone is used", "[algorithm]") {
    Folder folder;
    REQUIRE(::chmod(folder.path.c_str(), 0755) == 0);
    CHECK(!load::cache_folder());
    REQUIRE(::chmod(folder.path.c_str(), 0700) == 0);
    CHECK(load::cache_folder() == folder.path);
    folder.set("POLYHEAD_CACHE", "off");
    CHECK(!load::cache_folder());
    folder.set("POLYHEAD_CACHE", "relative");
    CHECK(!load::cache_folder());
    const std::string link = folder.path + "/link";
    fs::create_directory_symlink(folder.path, link);
    folder.set("POLYHEAD_CACHE", link);
    CHECK(!load::cache_folder());
    folder.set("POLYHEAD_CACHE", "");
    folder.set("XDG_CACHE_HOME", folder.path);
    CHECK(load::cache_folder() == folder.path + "/polyhead");
    folder.set("XDG_CACHE_HOME", "");
    folder.set("HOME", folder.path);
    CHECK(load::cache_folder() == folder.path + "/.cache/polyhead");
    folder.set("HOME", "");
    CHECK(!load::cache_folder());
}

TEST_CASE("disk cache: what was not used for the longest time goes first", "[algorithm]") {
    Folder folder;
    folder.set("POLYHEAD_CACHE_MEGABYTES", "1");
    CHECK(load::cache_limit_bytes() == 1000000);
    const std::string large(400000, 'x');
    const auto pause = [] { ::usleep(20000); }; // times of files are not finer than a few milliseconds
    for (const char *name : {"a", "b"}) {
        load::store_cached(folder.path, name, large);
        pause();
    }
    CHECK(load::find_cached(folder.path, "a"));
    pause();
    load::store_cached(folder.path, "c", large);
    CHECK(load::find_cached(folder.path, "a"));
    CHECK(!load::find_cached(folder.path, "b"));
    CHECK(load::find_cached(folder.path, "c"));
    load::store_cached(folder.path, "too large", std::string(1000001, 'x'));
    CHECK(!load::find_cached(folder.path, "too large"));
    CHECK(load::find_cached(folder.path, "a"));
    for (const char *text : {"", "-1", "1x", "99999999999999999999"}) {
        folder.set("POLYHEAD_CACHE_MEGABYTES", text);
        CHECK(load::cache_limit_bytes() == 1000000000);
    }
}

TEST_CASE("disk cache: processes that are killed leave nothing wrong and nothing behind", "[algorithm]") {
    Folder folder;
    folder.set("POLYHEAD_CACHE_MEGABYTES", "2"); // of 3 that all entries would take
    constexpr int rounds = 5, processes = 8, kills = 12;
    int present = 0;
    for (unsigned round = 0; round < rounds; round++) {
        std::vector<pid_t> children;
        for (unsigned i = 0; i < processes; i++) {
            children.push_back(start(folder.path, 100 * round + i));
        }
        for (unsigned i = 0; i < kills; i++) {
            ::usleep(20000);
            pid_t &child = children[i % processes];
            end(child);
            child = start(folder.path, 1000 * round + i);
        }
        for (const pid_t child : children) {
            end(child);
        }
        for (int number = 0; number < num_entries; number++) {
            const auto found = load::find_cached(folder.path, key(number));
            CHECK((!found || *found == content(number)));
            present += found ? 1 : 0;
        }
        load::store_cached(folder.path, key(0), content(0)); // whoever comes next clears up
        CHECK(folder.bytes() <= load::cache_limit_bytes());
        for (const std::string &name : folder.names()) {
            CHECK((name == "lock" || fs::path(name).extension() == ".object"));
        }
    }
    CHECK(present > rounds * num_entries / 4);
}

TEST_CASE("disk cache: the compiler is known by what it was built from", "[algorithm]") {
    const std::string id = load::compiler_id(POLYHEAD_COMPILER_PROGRAM);
    CHECK(id.size() == 40); // two hashes of 20 bytes
    CHECK(id != load::compiler_id("/proc/self/exe"));
    CHECK(load::compiler_id("/nowhere").empty());
    CHECK(load::compiler_id("polyhead-generate").empty());
}

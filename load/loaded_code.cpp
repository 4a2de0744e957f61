// Puts objects into memory, or joins them with the system's linker and opens what it makes with the system's loader.
#include "loaded_code.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <link.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "../plan/text.h"
#include "../runtime/devices/apis.h"
#include "temporary_folder.h"

extern char **environ;

namespace polyhead::load {
namespace {

namespace fs = std::filesystem;

#if defined(POLYHEAD_HAS_DEVICES)

// The bytes of the object that the loader put at `base`.
struct Place {
    uintptr_t base, begin, end;
};

int find_place(dl_phdr_info *object, size_t, void *found) {
    auto *place = static_cast<Place *>(found);
    if (object->dlpi_addr != place->base) {
        return 0;
    }
    for (int i = 0; i < object->dlpi_phnum; ++i) {
        const auto &segment = object->dlpi_phdr[i];
        if (segment.p_type == PT_LOAD) {
            place->begin = std::min<uintptr_t>(place->begin, object->dlpi_addr + segment.p_vaddr);
            place->end = std::max<uintptr_t>(place->end, object->dlpi_addr + segment.p_vaddr + segment.p_memsz);
        }
    }
    return 1;
}

// NOLINTBEGIN(performance-no-int-to-ptr): the loader tells addresses as numbers
void unload_device_code(const char *begin, const char *end) {
    runtime::unload_device_code(begin, end);
}

void unload_device_code(void *handle) {
    link_map *map = nullptr;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
        return;
    }
    Place place{map->l_addr, UINTPTR_MAX, 0};
    if (dl_iterate_phdr(find_place, &place) != 0) {
        runtime::unload_device_code(reinterpret_cast<const void *>(place.begin), reinterpret_cast<const void *>(place.end));
    }
}
// NOLINTEND(performance-no-int-to-ptr)

#else

void unload_device_code(const char *, const char *) {}
void unload_device_code(void *) {}

#endif

// Where this code is. Objects name a library as the one they need, so that they use the runtime that is in it; after a rebuild that file
// would be loaded as a second one. A program shows its functions to everything that it opens.
struct Home {
    std::string path;
    bool is_program = false;
    struct stat status{};
};

Home find_home() {
    Home home;
    Dl_info info{};
    link_map *map = nullptr;
    if (dladdr1(reinterpret_cast<const void *>(&find_home), &info, reinterpret_cast<void **>(&map), RTLD_DL_LINKMAP) != 0 &&
        info.dli_fname) {
        home.is_program = map && map->l_name[0] == 0;
        std::error_code error;
        home.path = home.is_program ? fs::read_symlink("/proc/self/exe", error).string() : fs::absolute(info.dli_fname).string();
        ::stat(home.path.c_str(), &home.status);
    }
    return home;
}

const Home at_start = find_home();

// Runs a program and waits; its complaints are in the returned text.
std::string run_program(const std::vector<std::string> &words, const std::string &log) {
    std::vector<char *> argv;
    for (const std::string &word : words) {
        argv.push_back(const_cast<char *>(word.c_str()));
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    pid_t process = 0;
    const int error = posix_spawnp(&process, argv[0], &files, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) {
        return words[0] + ": " + std::strerror(error);
    }
    int status = 0;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return "";
    }
    std::ifstream file(log);
    std::string line;
    std::getline(file, line);
    return words[0] + ": " + line;
}

// "" and the words behind the objects: what they are linked to.
std::string add_home(std::vector<std::string> *words) {
    struct stat now{};
    if (at_start.is_program) {
        return "";
    }
    if (::stat(at_start.path.c_str(), &now) != 0 || now.st_ino != at_start.status.st_ino || now.st_dev != at_start.status.st_dev) {
        return at_start.path + " was replaced since it was loaded; start the program again";
    }
    words->push_back(at_start.path);
    return "";
}

#if defined(__x86_64__) && defined(__linux__) && !defined(POLYHEAD_SYSTEM_LOADER)
constexpr bool knows_objects = true;
#else
constexpr bool knows_objects = false;
#endif

// What code of a kernel may call: functions of the runtime that is here, and what compilers call of the C library.
void *resolve(std::string_view name) {
    static const struct {
        const char *name;
        void *function;
    } of_system[] = {
        {"ceilf", reinterpret_cast<void *>(static_cast<float (*)(float)>(&::ceilf))},
        {"floorf", reinterpret_cast<void *>(static_cast<float (*)(float)>(&::floorf))},
        {"memcpy", reinterpret_cast<void *>(&::memcpy)},
        {"memmove", reinterpret_cast<void *>(&::memmove)},
        {"memset", reinterpret_cast<void *>(&::memset)},
        {"roundf", reinterpret_cast<void *>(static_cast<float (*)(float)>(&::roundf))},
        {"truncf", reinterpret_cast<void *>(static_cast<float (*)(float)>(&::truncf))},
    };
    for (const auto &row : of_system) {
        if (name == row.name) {
            return row.function;
        }
    }
    static void *const home = ::dlopen(at_start.is_program ? nullptr : at_start.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    return home && name.rfind("polyhead_", 0) == 0 ? ::dlsym(home, std::string(name).c_str()) : nullptr;
}

bool is_noexec(const std::string &folder) {
    struct statvfs place{};
    return ::statvfs(folder.c_str(), &place) == 0 && (place.f_flag & ST_NOEXEC) != 0;
}

} // namespace

const std::string &own_file() {
    return at_start.path;
}

LoadedCode::~LoadedCode() {
    if (code_.begin()) {
        unload_device_code(code_.begin(), code_.end());
    }
    if (handle_) {
        unload_device_code(handle_);
        dlclose(handle_);
    }
}

Failure LoadedCode::load(const std::vector<std::string> &objects) {
    if (!knows_objects) {
        return load_by_system(objects);
    }
    const std::string error = code_.load(objects, resolve);
    return error.empty() || !load_by_system(objects) ? Failure() : internal(error);
}

Failure LoadedCode::load_by_system(const std::vector<std::string> &objects) {
    const TemporaryFolder folder;
    if (!folder.error().empty()) {
        return internal(folder.error());
    }
    const std::string path = folder.path() + "/kernel.so";
    std::vector<std::string> words = {POLYHEAD_LINKER, "-shared", "-o", path};
    for (const std::string &object : objects) {
        words.push_back(folder.path() + "/" + std::to_string(words.size()) + ".o");
        std::ofstream file(words.back(), std::ios::binary);
        file.write(object.data(), std::streamsize(object.size()));
        if (!file.flush()) {
            return internal("cannot write '" + words.back() + "': " + std::strerror(errno));
        }
    }
    std::string error = add_home(&words);
    error = error.empty() ? run_program(words, folder.path() + "/linker.txt") : error;
    if (error.empty() && is_noexec(folder.path())) {
        error = "TMPDIR: found '" + fs::path(folder.path()).parent_path().string() +
                "', from which no code can be loaded (noexec), expected another folder";
    }
    if (error.empty()) {
        handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        error = handle_ ? "" : std::string("the compiled kernel cannot be loaded: ") + dlerror();
    }
    return internal(error);
}

std::string shrink_object(const std::string &folder, const std::string &entry, std::string *object) {
    const std::string whole = folder + "/whole.o", small = folder + "/small.o";
    std::ofstream file(whole, std::ios::binary);
    file.write(object->data(), std::streamsize(object->size()));
    if (!file.flush()) {
        return "cannot write '" + whole + "': " + std::strerror(errno);
    }
    const std::string error =
        run_program({POLYHEAD_LINKER, "-r", "--gc-sections", "--entry=" + entry, "--discard-all", "--strip-debug", "-o", small, whole},
                    folder + "/linker.txt");
    return !error.empty() || gen::read_file(small, object) ? error : "cannot read '" + small + "': " + std::strerror(errno);
}

void *LoadedCode::function(const std::string &name) const {
    return handle_ ? dlsym(handle_, name.c_str()) : code_.function(name);
}

} // namespace polyhead::load

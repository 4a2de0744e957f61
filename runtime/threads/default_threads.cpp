// The default number of threads: min(CPU affinity, cgroup quota), where Halide alone would take every CPU of the machine and, in a
// container with a quota, be stopped for most of each period.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "threads.h"

#if defined(__linux__)
#include <sched.h>
#include <unistd.h>
#endif

namespace polyhead::runtime {
namespace {

constexpr size_t path_bytes = 4096;

bool first_line(const char *path, char *line, size_t bytes) noexcept {
    std::FILE *file = std::fopen(path, "r");
    if (!file) {
        return false;
    }
    const bool read = std::fgets(line, static_cast<int>(bytes), file) != nullptr;
    std::fclose(file);
    return read;
}

int cpus(long long quota, long long period) noexcept {
    if (quota <= 0 || period <= 0) {
        return 0;
    }
    return static_cast<int>(std::min<long long>(quota / period + (quota % period != 0), most_threads));
}

int smaller_quota(int a, int b) noexcept {
    return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

// Version 2: "max 100000" or "150000 100000" in cpu.max.
int quota_v2(const char *directory) noexcept {
    char path[path_bytes], line[64];
    long long quota, period;
    if (std::snprintf(path, sizeof path, "%s/cpu.max", directory) >= static_cast<int>(sizeof path)) {
        return 0;
    }
    if (!first_line(path, line, sizeof line) || std::sscanf(line, "%lld %lld", &quota, &period) != 2) {
        return 0;
    }
    return cpus(quota, period);
}

// Version 1: cpu.cfs_quota_us (-1 = none) and cpu.cfs_period_us.
int quota_v1(const char *directory) noexcept {
    char path[path_bytes], quota[64], period[64];
    if (std::snprintf(path, sizeof path, "%s/cpu.cfs_period_us", directory) >= static_cast<int>(sizeof path)) {
        return 0;
    }
    if (!first_line(path, period, sizeof period)) {
        return 0;
    }
    std::snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", directory);
    if (!first_line(path, quota, sizeof quota)) {
        return 0;
    }
    return cpus(std::atoll(quota), std::atoll(period));
}

// The smallest quota of a group and of all groups above it. In a container the path of the host may be absent: then the mount
// point itself, the last directory tried, is the container's group.
int quota_upwards(const char *mount, const char *group, int (*quota_of)(const char *)) noexcept {
    char directory[path_bytes];
    if (std::snprintf(directory, sizeof directory, "%s%s", mount, group) >= static_cast<int>(sizeof directory)) {
        return quota_of(mount);
    }
    const size_t mount_length = std::strlen(mount);
    int quota = 0;
    for (size_t length = std::strlen(directory);;) {
        while (length > mount_length && directory[length - 1] == '/') {
            --length;
        }
        directory[length] = 0;
        quota = smaller_quota(quota, quota_of(directory));
        if (length <= mount_length) {
            return quota;
        }
        while (length > mount_length && directory[length - 1] != '/') {
            --length;
        }
    }
}

bool lists_cpu(const char *controllers) noexcept {
    for (const char *c = controllers; c; c = std::strchr(c, ',')) {
        if (*c == ',') {
            ++c;
        }
        if (std::strncmp(c, "cpu", 3) == 0 && (c[3] == ',' || c[3] == 0)) {
            return true;
        }
    }
    return false;
}

} // namespace

int cgroup_cpu_quota(const char *root) noexcept {
    char path[path_bytes], line[path_bytes];
    std::snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    std::FILE *file = std::fopen(path, "r");
    if (!file) {
        return 0;
    }
    int quota = 0;
    // "ID:CONTROLLERS:/GROUP", one line for each hierarchy; version 2 has no controllers.
    while (std::fgets(line, sizeof line, file)) {
        line[std::strcspn(line, "\n")] = 0;
        char *controllers = std::strchr(line, ':');
        char *group = controllers ? std::strchr(controllers + 1, ':') : nullptr;
        if (!group) {
            continue;
        }
        ++controllers;
        *group++ = 0;
        if (*controllers == 0) {
            std::snprintf(path, sizeof path, "%s/sys/fs/cgroup", root);
            quota = smaller_quota(quota, quota_upwards(path, group, quota_v2));
        } else if (lists_cpu(controllers)) {
            std::snprintf(path, sizeof path, "%s/sys/fs/cgroup/cpu", root); // a link where the mount has a longer name
            quota = smaller_quota(quota, quota_upwards(path, group, quota_v1));
        }
    }
    std::fclose(file);
    return quota;
}

#if defined(__linux__)
bool cpus_of_process(cpu_set_t *set) noexcept {
    return sched_getaffinity(getpid(), cpu_set_bytes, set) == 0;
}
#endif

int usable_cpus() noexcept {
#if defined(__linux__)
    cpu_set_t set[cpu_set_bytes / sizeof(cpu_set_t)];
    if (cpus_of_process(set)) {
        return std::max(CPU_COUNT_S(cpu_set_bytes, set), 1);
    }
#endif
    return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

int default_num_threads() noexcept {
    if (const char *text = std::getenv("HL_NUM_THREADS")) {
        const long wanted = std::strtol(text, nullptr, 10);
        if (wanted > 0) {
            return static_cast<int>(std::min<long>(wanted, most_threads));
        }
    }
    return std::min(smaller_quota(usable_cpus(), cgroup_cpu_quota("")), most_threads);
}

} // namespace polyhead::runtime

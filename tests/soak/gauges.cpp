// Reads /proc/self, and compares thirds of a soak.
#include "gauges.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>

namespace polyhead::soak {
namespace {

long entries(const char *folder) {
    long count = 0;
    if (DIR *open = opendir(folder)) {
        while (const dirent *entry = readdir(open)) {
            count += entry->d_name[0] != '.';
        }
        closedir(open);
    }
    return count;
}

// Sanitizers keep freed memory for a while; their own check for leaks, at the end, replaces the gauge.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr long memory_slack = 1 << 20;
#else
constexpr long memory_slack = 4096;
#endif

} // namespace

Gauges Gauges::now() {
    long pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    std::ifstream maps("/proc/self/maps");
    const long lines = std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n');
    maps.close();
    return {pages * sysconf(_SC_PAGESIZE) / 1024, lines, entries("/proc/self/fd") - 1 /* the folder itself */, entries("/proc/self/task")};
}

Gauges Gauges::at_rest(long threads) {
    Gauges lowest = now();
    for (int i = 0; i < 1000 && lowest.threads > threads; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        const Gauges next = now();
        lowest = next.threads <= lowest.threads ? next : lowest;
    }
    return lowest;
}

std::string Gauges::text() const {
    return std::to_string(resident_kib) + " KiB, " + std::to_string(mappings) + " mappings, " + std::to_string(descriptors) +
           " descriptors, " + std::to_string(threads) + " threads";
}

std::string growth(const std::vector<Gauges> &rounds) {
    const struct {
        const char *name;
        long Gauges::*value;
        long slack; // what an allocator may still move about
    } all[] = {{"KiB of memory", &Gauges::resident_kib, memory_slack},
               {"mappings", &Gauges::mappings, 16},
               {"descriptors", &Gauges::descriptors, 0},
               {"threads", &Gauges::threads, 0}};
    const auto third = static_cast<std::ptrdiff_t>(rounds.size() / 3);
    const auto middle = rounds.end() - 2 * third, last = rounds.end() - third;
    std::string sentences;
    for (const auto &gauge : all) {
        const auto less = [&](const Gauges &a, const Gauges &b) { return a.*gauge.value < b.*gauge.value; };
        const long before = (*std::min_element(middle, last, less)).*gauge.value;
        const long after = (*std::min_element(last, rounds.end(), less)).*gauge.value;
        if (after > before + gauge.slack) {
            sentences += std::string(gauge.name) + ": " + std::to_string(after) + " in the last third, " + std::to_string(before) +
                         " in the one before, expected at most " + std::to_string(gauge.slack) + " more. ";
        }
    }
    return sentences;
}

} // namespace polyhead::soak

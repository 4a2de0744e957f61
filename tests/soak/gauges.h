// What a process holds of the machine, and whether it stays the same over many rounds of equal work.
#ifndef POLYHEAD_TESTS_SOAK_GAUGES_H
#define POLYHEAD_TESTS_SOAK_GAUGES_H

#include <string>
#include <vector>

namespace polyhead::soak {

struct Gauges {
    long resident_kib, mappings, descriptors, threads;
    static Gauges now();
    // As soon as there are no more threads than this, or after 20 seconds: a thread does not end at once.
    static Gauges at_rest(long threads);
    std::string text() const;
};

// Held against each other: the smallest value of the middle third of the rounds, after the first has warmed everything up, and that of the
// last third. A leak raises the latter, however slow the machine is; what caches hold for a while raises single rounds. Returns sentences,
// or nothing.
std::string growth(const std::vector<Gauges> &rounds);

} // namespace polyhead::soak
#endif

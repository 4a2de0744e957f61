// Decoding steps from memory: several caches in turns, so that none of them is in a cache of the processor.
#ifndef BENCH_COLD_CACHES_H
#define BENCH_COLD_CACHES_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../instruments/roof/roof.h"
#include "workload.h"

namespace bench {

class ColdCaches {
public:
    // Seconds of a plain read of one cache and of a step on one.
    struct Turn {
        double read, step;
    };

    // Caches of so many keys. "", or why the kernel's answer is not right.
    std::string make(const polyhead::Kernel &kernel, int64_t keys);
    // A plain read, and a step, each from memory, and by threads that are awake. Pages are read in the order of the table, head by head.
    Turn turn(roof::Workers &workers);
    // So many turns take every cache once, and are at least five.
    size_t turns() const;
    double bytes() const; // of one cache

private:
    struct Copy {
        std::unique_ptr<Workload> workload;
        std::vector<roof::Block> blocks; // of its cache, in the order in which a step reads them
    };
    const Copy &another() { return copies_[next_++ % copies_.size()]; }

    std::vector<Copy> copies_;
    size_t next_ = 0;
};

} // namespace bench
#endif

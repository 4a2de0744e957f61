// The roofs of a GPU: how long to measure.
#include "device_roof.h"

#include <algorithm>

#include "workers.h"

namespace roof {

double DeviceRoof::fma_gflops(double seconds) {
    if (steps_ == 0) {
        steps_ = 1;
        (void)run_fma(steps_); // compiles and wakes the clocks
        for (double taken = 0; taken < 1e-3 && steps_ < 1 << 20; steps_ *= 2) {
            const double start = now();
            if (run_fma(2 * steps_) == 0)
                return 0;
            taken = now() - start;
        }
    }
    const int steps = static_cast<int>(std::min(1e9, std::max(1.0, steps_ * seconds / 1e-3)));
    const double start = now(), operations = run_fma(steps);
    return operations / (now() - start) / 1e9;
}

double DeviceRoof::copy_gbs() {
    if (!run_copy())
        return 0;
    double best = 1e30;
    for (int i = 0; i < 5; i++) {
        const double start = now();
        if (!run_copy())
            return 0;
        best = std::min(best, now() - start);
    }
    return 2.0 * static_cast<double>(copy_bytes) / best / 1e9;
}

} // namespace roof

// The module polyhead._core: what the Python package needs of C++.
#include "../../bench/roof.h"
#include "call.h"
#include "without_lock.h"

namespace {

void set_num_threads(int32_t threads) {
    if (threads < 0) {
        throw polyhead::python::Refusal(POLYHEAD_BAD_VALUE, "threads: found " + std::to_string(threads) + ", expected 0 or more");
    }
    polyhead_set_num_threads(threads);
}

// The multiply-add peak that % of peak refers to, by the loops of the bench.
double fma_gflops(int threads, double seconds) {
    roof::Team team(threads);
    return roof::peak_gflops(team, seconds);
}

} // namespace

NB_MODULE(_core, module) {
    using namespace polyhead::python;
    using namespace nb::literals;
    module.doc() = "The compiled module of polyhead; use the package polyhead.";
    nb::set_leak_warnings(false); // kernels and devices live as long as the process
    bind_errors(module);
    bind_devices(module);
    bind_kernels(module);
    module.def("set_num_threads", set_num_threads, "threads"_a, nb::call_guard<WithoutLock>(),
               "Sets the threads that all kernels share, at most 256. 0: the default, HL_NUM_THREADS or min(CPU affinity, cgroup quota).");
    module.def("num_threads", &polyhead_num_threads, "Threads that all kernels share.");
    module.def("fma_gflops", fma_gflops, "threads"_a, "seconds"_a, nb::call_guard<WithoutLock>(),
               "The GFLOP/s that so many threads reach with independent multiply-adds, measured now.");
    module.attr("version") = polyhead_version();
}

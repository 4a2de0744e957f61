// The module polyhead._core: what the Python package needs of C++.
#include "../../contract/cpu_features.h"
#include "../../instruments/roof/roof.h"
#include "../../load/build_id.h"
#include "../../load/disk_cache.h"
#include "../../plan/tuning/tuned_records.h"
#include "../../tools/compile_process.h"
#include "call.h"
#include "kernel_cache.h"
#include "without_lock.h"

namespace nb = nanobind;

namespace {

void set_num_threads(nb::handle given) {
    const int32_t threads = polyhead::python::whole_number("threads", given);
    if (threads < 0) {
        throw polyhead::python::Refusal(POLYHEAD_BAD_VALUE, "threads: found " + std::to_string(threads) + ", expected 0 or more");
    }
    const polyhead::python::WithoutLock others_may_run;
    polyhead_set_num_threads(threads);
}

// The peak that % of peak of kernels of this storage type refers to, by the loops of the bench.
double peak_gflops(int threads, double seconds, int32_t dtype) {
    roof::Workers workers(threads);
    return roof::peak_gflops(workers, seconds, roof::peak_of(dtype));
}

// What `polyhead env` tells of this library, its compiler and the machine.
nb::dict environment() {
    polyhead::python::default_limits(); // finds the compiler
    nb::dict facts;
    nb::list features;
    for (const auto &feature : polyhead::contract::cpu_feature_table) {
        if ((polyhead_cpu_features() & feature.bit) != 0) {
            features.append(feature.name);
        }
    }
    std::string refusal;
    facts["version"] = polyhead_version();
    facts["abi"] = POLYHEAD_ABI_VERSION;
    facts["halide"] = polyhead::gen::halide_version();
    facts["cpu_features"] = features;
    facts["target"] = polyhead::gen::resolve_target("host", &refusal);
    facts["cache"] = polyhead::load::cache_folder().value_or("");
    facts["cache_limit"] = polyhead::load::cache_limit_bytes();
    facts["halide_found"] = !polyhead::load::lacks_halide(polyhead::tools::compiler_program());
    return facts;
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
    bind_plain_calls(module);
    bind_cache(module);
    module.def("set_num_threads", set_num_threads, "threads"_a,
               "Sets the threads that all kernels share, at most 256. 0: the default, HL_NUM_THREADS or min(CPU affinity, cgroup quota).");
    module.def("num_threads", &polyhead_num_threads, "Threads that all kernels share.");
    module.def(
        "set_wait", [](nb::handle given) { polyhead_set_wait(whole_number("microseconds", given)); }, "microseconds"_a,
        "How long a helper thread that has nothing to do looks for the next call before it sleeps, at most 1,000,000. Below 0: the "
        "default, "
        "POLYHEAD_WAIT, or else 1000, or 20 where there are more threads than CPUs.");
    module.def("wait", &polyhead_wait, "Microseconds that an idle helper thread looks for the next call before it sleeps.");
    module.def("environment", environment, "Versions, CPU features, cache and compiler of this process.");
    module.def("peak_gflops", peak_gflops, "threads"_a, "seconds"_a, "dtype"_a = int32_t(POLYHEAD_F32), nb::call_guard<WithoutLock>(),
               "The GFLOP/s that so many threads reach with independent multiply-adds, for bf16 with dot products of pairs, measured now.");
    module.attr("version") = polyhead_version();
}

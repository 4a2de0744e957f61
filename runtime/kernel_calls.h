// The functions of libpolyhead that kernels call, for code that is compiled in process: memory and threads of the call are among them.
#ifndef POLYHEAD_RUNTIME_KERNEL_CALLS_H
#define POLYHEAD_RUNTIME_KERNEL_CALLS_H

#include "amx.h"
#include "fetch.h"
#include "halide_runtime.h"

namespace polyhead::runtime {

struct KernelCalls {
    decltype(polyhead_amx_linear) *amx_linear;
    decltype(polyhead_amx_scores) *amx_scores;
    decltype(polyhead_amx_values) *amx_values;
    decltype(polyhead_fetch) *fetch;
    decltype(polyhead_fetch_pairs) *fetch_pairs;
    decltype(halide_malloc) *malloc;
    decltype(halide_free) *free;
    decltype(halide_do_par_for) *do_par_for;
};

inline KernelCalls kernel_calls() noexcept {
    return {polyhead_amx_linear,  polyhead_amx_scores, polyhead_amx_values, polyhead_fetch,
            polyhead_fetch_pairs, halide_malloc,       halide_free,         halide_do_par_for};
}

} // namespace polyhead::runtime

#endif

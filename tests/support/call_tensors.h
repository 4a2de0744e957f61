// The tensors of a call by name: what tests copy to devices, narrow, compare and damage one after another.
#ifndef POLYHEAD_TESTS_CALL_TENSORS_H
#define POLYHEAD_TESTS_CALL_TENSORS_H

#include <array>

#include <polyhead/polyhead.h>

#include "half.h"

namespace polyhead::test {

// Tensors of keys and values, which lie in pages where the problem has them.
inline bool lies_in_pages(polyhead_tensor polyhead_args::*tensor) {
    return tensor == &polyhead_args::key || tensor == &polyhead_args::value || tensor == &polyhead_args::key_scales ||
           tensor == &polyhead_args::value_scales || tensor == &polyhead_args::key_cache || tensor == &polyhead_args::value_cache;
}

struct CallTensor {
    const char *name;
    polyhead_tensor polyhead_args::*tensor;
};

constexpr std::array<CallTensor, 18> input_tensors = {{
    {"query", &polyhead_args::query},
    {"key", &polyhead_args::key},
    {"value", &polyhead_args::value},
    {"kv_lengths", &polyhead_args::kv_lengths},
    {"page_table", &polyhead_args::page_table},
    {"key_scales", &polyhead_args::key_scales},
    {"value_scales", &polyhead_args::value_scales},
    {"cache_lengths", &polyhead_args::cache_lengths},
    {"position_offsets", &polyhead_args::position_offsets},
    {"mask", &polyhead_args::mask},
    {"score_bias", &polyhead_args::score_bias},
    {"alibi_slopes", &polyhead_args::alibi_slopes},
    {"sinks", &polyhead_args::sinks},
    {"rope_cos", &polyhead_args::rope_cos},
    {"rope_sin", &polyhead_args::rope_sin},
    {"positions_q", &polyhead_args::positions_q},
    {"positions_kv", &polyhead_args::positions_kv},
    {"head_gate", &polyhead_args::head_gate},
}}; // and those of a user expression, an array of their own

constexpr std::array<CallTensor, 4> output_tensors = {{
    {"out", &polyhead_args::out},
    {"lse", &polyhead_args::lse},
    {"scores", &polyhead_args::scores},
    {"weights_mean", &polyhead_args::weights_mean},
}};

// Of a layer with a cache: a call writes some of their rows, and reads others.
constexpr std::array<CallTensor, 2> cache_tensors = {{
    {"key_cache", &polyhead_args::key_cache},
    {"value_cache", &polyhead_args::value_cache},
}};

// Of the elements of a tensor, without what lies between them.
inline double tensor_bytes(const polyhead_tensor &tensor) {
    double bytes = tensor.rank == 0 ? 0 : static_cast<double>(dtype_bytes(tensor.dtype));
    for (int dim = 0; dim < tensor.rank; dim++) {
        bytes *= static_cast<double>(tensor.shape[dim]);
    }
    return bytes;
}

} // namespace polyhead::test
#endif

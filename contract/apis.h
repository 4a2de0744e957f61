// The interfaces through which kernels run: one row each.
#ifndef POLYHEAD_CONTRACT_APIS_H
#define POLYHEAD_CONTRACT_APIS_H

#include <cstdint>

#include <polyhead/c_api.h>

#include "rows.h"

namespace polyhead::contract {

struct ApiRow {
    const char *name; // in targets, file names and NAME.json
    int32_t id;       // polyhead_api
    const char *in_sentences;
};

// In the order of polyhead_api.
inline constexpr ApiRow apis[] = {
    {"cpu", POLYHEAD_CPU, "the CPU"},      {"cuda", POLYHEAD_CUDA, "cuda"},    {"opencl", POLYHEAD_OPENCL, "opencl"},
    {"vulkan", POLYHEAD_VULKAN, "vulkan"}, {"metal", POLYHEAD_METAL, "metal"}, {"webgpu", POLYHEAD_WEBGPU, "webgpu"},
};

// "the CPU", "cuda": as sentences call it.
constexpr const char *api_name(int32_t id) noexcept {
    return fact_of(apis, id, &ApiRow::in_sentences, "an unknown interface");
}

} // namespace polyhead::contract
#endif

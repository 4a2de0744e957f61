// Which calls have grids of blocks that would be too large for a device.
#include "launch_limits.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "../status.h"
#include "device.h"

namespace polyhead::runtime {
namespace {

bool has_score_outputs(const polyhead_problem &p) noexcept {
    return attends(p) && (p.scores != POLYHEAD_NO_SCORES || p.weights_mean != 0);
}

// Rows of one block of a linear layer or of a layer's projections, a number of the variant's tiling.
int64_t linear_block(const polyhead_variant &variant) noexcept {
    static constexpr char name[] = "linear_block=";
    const char *found = variant.tiling ? std::strstr(variant.tiling, name) : nullptr;
    return found ? std::max(1L, std::strtol(found + sizeof name - 1, nullptr, 10)) : 1;
}

} // namespace

int64_t rows_of_launch(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_device &device,
                       const CallShape &shape) noexcept {
    const polyhead_problem &p = kernel.problem;
    if (!attends(p)) {
        return device.most_blocks * linear_block(variant);
    }
    return has_score_outputs(p) ? std::max<int64_t>(1, device.most_blocks / shape.num_heads) : device.most_blocks;
}

bool check_launch(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                  polyhead_status *status) noexcept {
    constexpr int64_t keys_of_block = 64; // schedules/score_output_gpu.cpp
    const polyhead_problem &p = kernel.problem;
    const int64_t rows = args.device->most_blocks * linear_block(variant), keys = args.device->most_blocks * keys_of_block;
    if (is_attention_layer(p) && std::max(shape.seq_len_q, shape.seq_len_kv) > rows) {
        const bool query = shape.seq_len_q > rows;
        return refuse(status, POLYHEAD_UNSUPPORTED, "%s: extent %lld of dimension 1, expected at most %lld, the limit of device %s",
                      query ? "input" : "key", static_cast<long long>(query ? shape.seq_len_q : shape.seq_len_kv),
                      static_cast<long long>(rows), args.device->name);
    }
    if (has_score_outputs(p) && shape.seq_len_kv > keys) {
        return refuse(status, POLYHEAD_UNSUPPORTED,
                      "key: extent %lld of dimension %d, expected at most %lld, the limit of device %s where scores are an output",
                      static_cast<long long>(shape.seq_len_kv), by_heads(p) ? 2 : 1, static_cast<long long>(keys), args.device->name);
    }
    return true;
}

} // namespace polyhead::runtime

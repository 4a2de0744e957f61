// Which rows and keys of a call exist, and which rows a test looks at.
#include <algorithm>
#include <limits>
#include <set>

#include "../calls/problems.h"
#include "reference.h"

namespace polyhead::test {

int64_t batch_size(const Problem &problem, const polyhead_args &args) {
    return is_linear(problem) ? 1 : args.query.shape[0];
}

int64_t num_rows(const polyhead_args &args) {
    return args.query.shape[args.query.rank - 2];
}

int64_t num_keys(const Problem &problem, const polyhead_args &args) {
    if (args.page_table.rank != 0) {
        return args.page_table.shape[1] * problem.page_size;
    }
    if (problem.cache != 0) {
        return (args.key_cache.rank != 0 ? args.key_cache : args.key).shape[2];
    }
    return is_linear(problem) ? 0 : is_sdpa(problem) ? args.key.shape[2] : problem.cross != 0 ? args.key.shape[1] : args.query.shape[1];
}

int64_t num_groups(const Problem &problem, const polyhead_args &args) {
    return is_linear(problem) ? 1 : is_sdpa(problem) ? args.query.shape[0] * problem.num_heads : args.query.shape[0];
}

RowSets all_rows(const Problem &problem, const polyhead_args &args) {
    return sample_rows(problem, args, 0, std::numeric_limits<double>::infinity());
}

RowSets sample_rows(const Problem &p, const polyhead_args &args, uint64_t seed, double max_flops) {
    const int64_t groups = num_groups(p, args), count = num_rows(args), keys = num_keys(p, args);
    double row_flops = 0;
    if (is_linear(p)) {
        row_flops = 2.0 * p.embed_dim * p.out_features;
    } else if (is_sdpa(p)) {
        row_flops = 2.0 * static_cast<double>(keys + 1) * (p.head_dim + p.head_dim_v);
    } else {
        row_flops = 2.0 * p.num_heads * (p.head_dim + p.head_dim_v) * static_cast<double>(keys + p.embed_dim);
    }
    const double wanted = std::max(4.0, max_flops / (row_flops * static_cast<double>(std::max<int64_t>(groups, 1))));
    RowSets sets(static_cast<size_t>(groups));
    for (int64_t group = 0; group < groups; group++) {
        std::set<int64_t> chosen;
        if (wanted >= static_cast<double>(count)) {
            for (int64_t q = 0; q < count; q++) {
                chosen.insert(chosen.end(), q);
            }
        } else {
            chosen = {0, count - 1};
            const int64_t choice = is_sdpa(p) && p.weights_mean != 0 ? group / p.num_heads : group;
            uint64_t state = seed + static_cast<uint64_t>(choice) * 0x9e3779b97f4a7c15u;
            while (static_cast<double>(chosen.size()) < wanted) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                chosen.insert(static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(count)));
            }
        }
        sets[group].assign(chosen.begin(), chosen.end());
    }
    return sets;
}

} // namespace polyhead::test

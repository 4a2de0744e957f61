// The kernel stays inside of the library.
#include "mean.h"

#include <mean_attention.h>
#include <polyhead/polyhead.h>

std::string mean_of_rows(const float *rows, float *mean) {
    const int64_t num_rows = 37, width = 16;
    static const float ones[num_rows * width] = {};
    polyhead::SdpaArgs args;
    args.query = polyhead::view(ones, {1, 1, 1, width});
    args.key = polyhead::view(ones, {1, 1, num_rows, width});
    args.value = polyhead::view(rows, {1, 1, num_rows, width});
    args.out = polyhead::view(mean, {1, 1, 1, width});
    return mean_attention.run(args).ok() ? mean_attention.explain(args) : "";
}

/* Prints the CPU features that dispatch sees in this process, then what a call to a kernel that needs none of them comes to. */
#include <stdio.h>

#include "c_problem.h"

static int entry(void **argv) {
    return argv == NULL;
}

static const polyhead_variant variants[] = {
    {.name = "plain", .target = "x86-64-linux", .tiling = "", .entry = entry, .abi = POLYHEAD_ABI_VERSION}};
static const polyhead_kernel kernel = {
    .sizes = POLYHEAD_SIZES,
    .name = "told",
    .problem = {SMALLEST_PROBLEM},
    .variants = variants,
    .num_variants = 1,
};

int main(void) {
    static float data[3][4];
    static float out[4];
    char names[256];
    polyhead_args args;
    polyhead_status status;
    const polyhead_tensor row = {.data = data, .dtype = POLYHEAD_F32, .rank = 4, .shape = {1, 1, 1, 4}, .stride = {4, 4, 4, 1}};
    polyhead_cpu_feature_names(polyhead_cpu_features(), names, sizeof names);
    printf("%s\n", names);
    args = polyhead_args_of(POLYHEAD_SDPA);
    args.query = args.key = args.value = args.out = row;
    args.out.data = out;
    status = polyhead_run(&kernel, &args);
    printf("%d %s\n", (int)status.code, status.message);
    return 0;
}

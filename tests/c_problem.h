/* Fields of the smallest problem, for tables of kernels that C programs of the tests write down. */
#ifndef POLYHEAD_TESTS_C_PROBLEM_H
#define POLYHEAD_TESTS_C_PROBLEM_H

#include <polyhead/c_api.h>

/* Bare attention of one head of 4, f32; further fields may follow. */
#define SMALLEST_PROBLEM                                                                                                                   \
    .size = sizeof(polyhead_problem), .op = POLYHEAD_SDPA, .dtype = POLYHEAD_F32, .num_heads = 1, .num_kv_heads = 1, .head_dim = 4,        \
    .head_dim_v = 4

#endif

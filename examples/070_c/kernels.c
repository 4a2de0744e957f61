/* Twelve kernels in one program: each is called, told about, and compared with float64. POLYHEAD_CPU_FEATURES=none shows the variants for
 * older CPUs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kernels.h> /* written by CMake */
#include <polyhead/c_api.h>

#include "random.h"

enum { heads = 4, rows = 40, most = heads * rows * 128 };

/* bf16 is the upper half of a float; these numbers fit. */
static float read_number(const void *data, int32_t dtype, int i) {
    float number;
    uint16_t half;
    uint32_t bits;
    if (dtype == POLYHEAD_F32) {
        return ((const float *)data)[i];
    }
    memcpy(&half, (const uint16_t *)data + i, sizeof half);
    bits = (uint32_t)half << 16;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static void write_number(void *data, int32_t dtype, int i, float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (dtype == POLYHEAD_F32) {
        ((float *)data)[i] = number;
    } else {
        ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
    }
}

static double difference(const polyhead_problem *p, const void *query, const void *key, const void *value, const void *out) {
    const int d = p->head_dim;
    double largest = 0;
    for (int h = 0; h < heads; h++) {
        for (int q = 0; q < rows; q++) {
            double probs[rows], sum = 0;
            const int seen = p->causal ? q + 1 : rows;
            for (int n = 0; n < seen; n++) {
                double score = 0;
                for (int i = 0; i < d; i++) {
                    score +=
                        (double)read_number(query, p->dtype, (h * rows + q) * d + i) * read_number(key, p->dtype, (h * rows + n) * d + i);
                }
                probs[n] = exp(score / sqrt((double)d));
                sum += probs[n];
            }
            for (int i = 0; i < d; i++) {
                double expected = 0;
                for (int n = 0; n < seen; n++) {
                    expected += probs[n] / sum * read_number(value, p->dtype, (h * rows + n) * d + i);
                }
                largest = fmax(largest, fabs(read_number(out, p->dtype, (h * rows + q) * d + i) - expected));
            }
        }
    }
    return largest;
}

static int check(const polyhead_kernel *kernel) {
    static float query[most], key[most], value[most], out[most];
    const polyhead_problem *const p = &kernel->problem;
    const int64_t d = p->head_dim;
    uint32_t seed = 7;
    for (int i = 0; i < heads * rows * (int)d; i++) {
        write_number(query, p->dtype, i, next_random(&seed));
        write_number(key, p->dtype, i, next_random(&seed));
        write_number(value, p->dtype, i, next_random(&seed));
    }
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    polyhead_tensor *const tensors[] = {&args.query, &args.key, &args.value, &args.out};
    float *const memory[] = {query, key, value, out};
    for (int i = 0; i < 4; i++) {
        const polyhead_tensor t = {memory[i], p->dtype, 4, {1, heads, rows, d}, {heads * rows * d, rows * d, d, 1}, NULL, 0};
        *tensors[i] = t;
    }
    const polyhead_status status = polyhead_run(kernel, &args);
    if (status.code != POLYHEAD_OK) {
        printf("%s: %s\n", kernel->name, status.message);
        return 1;
    }
    char text[4096];
    polyhead_explain(kernel, &args, text, sizeof text);
    char *const variant = strstr(text, "runs ");
    const double largest = difference(p, query, key, value, out);
    printf("%-24s %.1e  %.*s\n", kernel->name, largest, variant ? (int)strcspn(variant, ",\n") : 0, variant ? variant : "");
    return !(largest < (p->dtype == POLYHEAD_F32 ? 1e-5 : 1e-2));
}

int main(void) {
    int failed = 0;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        failed += check(kernels[i]);
    }
    printf("%zu kernels, %d wrong\n", sizeof kernels / sizeof *kernels, failed);
    return failed;
}

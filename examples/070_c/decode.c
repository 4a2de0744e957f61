/* Decodes 64 tokens: each one's key and value go into a cache of the program, then its query attends over what is there. Threads are the
 * program's, and so is all memory; after the preparations nothing is allocated. Every result is compared with float64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <decoder.h> /* generated: 8 heads of 64, 2 key/value heads */
#include <polyhead/c_cache.h>

#include "random.h"
#include "team.h"

enum { heads = 8, kv_heads = 2, head_dim = 64, capacity = 64 };

static float cache_key[kv_heads * capacity * head_dim], cache_value[kv_heads * capacity * head_dim];
static float query[heads * head_dim], key[kv_heads * head_dim], value[kv_heads * head_dim], out[heads * head_dim];

static polyhead_tensor tensor(float *data, int64_t num_heads, int64_t rows) {
    const polyhead_tensor t = {
        data, POLYHEAD_F32, 4, {1, num_heads, rows, head_dim}, {num_heads * rows * head_dim, rows * head_dim, head_dim, 1}, NULL, 0};
    return t;
}

/* The largest difference of `out` to attention over the first `length` rows of the cache. */
static double difference(int32_t length) {
    double most = 0;
    for (int h = 0; h < heads; h++) {
        const float *const keys = cache_key + h / (heads / kv_heads) * capacity * head_dim;
        const float *const values = cache_value + h / (heads / kv_heads) * capacity * head_dim;
        double probs[capacity], sum = 0, context[head_dim] = {0};
        for (int32_t n = 0; n < length; n++) {
            double score = 0;
            for (int d = 0; d < head_dim; d++) {
                score += (double)query[h * head_dim + d] * keys[n * head_dim + d];
            }
            probs[n] = exp(score / sqrt((double)head_dim));
            sum += probs[n];
        }
        for (int32_t n = 0; n < length; n++) {
            for (int d = 0; d < head_dim; d++) {
                context[d] += probs[n] / sum * values[n * head_dim + d];
            }
        }
        for (int d = 0; d < head_dim; d++) {
            most = fmax(most, fabs(out[h * head_dim + d] - context[d]));
        }
    }
    return most;
}

static int refused(polyhead_status status) {
    if (status.code != POLYHEAD_OK) {
        fprintf(stderr, "%s\n", status.message);
    }
    return status.code != POLYHEAD_OK;
}

static int decode(const polyhead_executor *executor) {
    int32_t before = 0, length = capacity;
    const polyhead_tensor none = {0}, one = {&before, POLYHEAD_I32, 1, {1}, {1}, NULL, 0};
    const polyhead_cache cache = polyhead_cache_of(tensor(cache_key, kv_heads, capacity), tensor(cache_value, kv_heads, capacity), none);
    polyhead_new_keys token = polyhead_new_keys_of();
    token.key = tensor(key, kv_heads, 1);
    token.value = tensor(value, kv_heads, 1);
    token.lengths = one;

    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    args.query = tensor(query, heads, 1);
    args.key = cache.key;
    args.value = cache.value;
    args.out = tensor(out, heads, 1);
    args.kv_lengths = one;
    args.kv_lengths.data = &length;
    args.executor = executor;

    /* Memory for the longest call serves every one. */
    polyhead_status status;
    const int64_t bytes = polyhead_scratch_bytes(&decoder, &args, &status);
    if (refused(status)) {
        return 1;
    }
    args.scratch = aligned_alloc(128, ((size_t)bytes + 127) / 128 * 128);
    args.scratch_bytes = (size_t)bytes;
    const polyhead_workspace workspace = polyhead_workspace_of(executor, NULL, 0);

    uint32_t seed = 1;
    double most = 0;
    int failed = args.scratch == NULL;
    for (; before < capacity && !failed; before++) {
        fill_random(query, heads * head_dim, &seed);
        fill_random(key, kv_heads * head_dim, &seed);
        fill_random(value, kv_heads * head_dim, &seed);
        length = before + 1;
        failed = refused(polyhead_append_in(&workspace, &cache, &token)) || refused(polyhead_run(&decoder, &args));
        most = failed ? most : fmax(most, difference(length));
    }
    free(args.scratch);
    printf("%d tokens, largest difference to float64 %.1e\n", (int)before, most);
    return failed || !(most < 1e-5);
}

int main(void) {
    team *const threads = team_start();
    if (!threads) {
        return 1;
    }
    const polyhead_executor executor = polyhead_executor_of(2, threads, team_run);
    const int failed = decode(&executor);
    team_stop(threads);
    return failed;
}

/* The C ABI from C: the header compiles as C, a table is constant data, and a call runs. Returns 0 when all is well. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <polyhead/c_cache.h>

#include "c_problem.h"

static int calls = 0;

static int entry(void **argv) {
    ++calls;
    return argv == NULL;
}

static const polyhead_variant variants[] = {
    {.name = "c_variant", .target = "x86-64-linux", .tiling = "", .entry = entry, .abi = POLYHEAD_ABI_VERSION}};
static const polyhead_kernel kernel = {
    .sizes = POLYHEAD_SIZES,
    .name = "c_kernel",
    .problem = {SMALLEST_PROBLEM},
    .variants = variants,
    .num_variants = 1,
};

/* A kernel with a mask and an expression of one tensor. */
static const polyhead_declaration declarations[] = {{.name = "slope", .dtype = POLYHEAD_F32, .rank = 0}};
static const polyhead_kernel masked = {
    .sizes = POLYHEAD_SIZES,
    .name = "c_masked",
    .problem = {SMALLEST_PROBLEM, .window = 1, .mask = POLYHEAD_ADDITIVE_MASK, .expression = "score * slope()"},
    .variants = variants,
    .num_variants = 1,
    .num_declarations = 1,
    .declarations = declarations,
};

static polyhead_tensor row(float *data) {
    polyhead_tensor tensor = {data, POLYHEAD_F32, 4, {1, 1, 1, 4}, {4, 4, 4, 1}, NULL, 0};
    return tensor;
}

static int expect(int condition, const char *what, const polyhead_status *status) {
    if (!condition) {
        fprintf(stderr, "%s (%d: %s)\n", what, (int)status->code, status->message);
    }
    return condition ? 0 : 1;
}

/* Masks, windows and tensors of an expression from C. */
static int run_masked(polyhead_args args, float *spare) {
    float one = 1, mask = 0;
    polyhead_tensor slope = {&one, POLYHEAD_F32, 1, {1}, {1}, NULL, 0};
    polyhead_status status;
    int failures = 0, before = calls;
    args.mask.data = &mask;
    args.mask.rank = 1;
    args.mask.shape[0] = 1;
    args.mask.stride[0] = 1;
    args.has_window = 1;
    args.window_left = args.window_right = -1;
    status = polyhead_run(&masked, &args);
    failures += expect(status.code == POLYHEAD_WRONG_OPERATION && calls == before, "missing tensors are refused", &status);
    args.expression_tensors = &slope;
    args.num_expression_tensors = 1;
    status = polyhead_run(&masked, &args);
    failures += expect(status.code == POLYHEAD_OK && calls == before + 1, "a masked call runs", &status);
    slope.data = spare;
    status = polyhead_run(&masked, &args);
    failures += expect(status.code == POLYHEAD_ALIASED && calls == before + 1, "tensors of expressions are inputs", &status);
    return failures;
}

static void one_after_another(void *context, int32_t tasks, void (*run)(void *state, int32_t task), void *state) {
    int32_t task;
    (void)context;
    for (task = 0; task < tasks; task++) {
        run(state, task);
    }
}

/* Threads and memory of the program, and a plan. */
static int check_embedding(const polyhead_args *plain) {
    const int before = calls;
    int failures = 0;
    polyhead_args args = *plain;
    polyhead_executor executor = polyhead_executor_of(3, NULL, one_after_another);
    polyhead_plan *plan = NULL;
    polyhead_status status;
    char *memory;
    args.executor = &executor;
    args.scratch_bytes = (size_t)polyhead_scratch_bytes(&kernel, &args, &status);
    failures += expect(status.code == POLYHEAD_OK && args.scratch_bytes > 0, "scratch", &status);
    failures += expect(polyhead_scratch_bytes(&kernel, plain, NULL) > 0, "scratch without a status", &status);
    memory = malloc(args.scratch_bytes + 128);
    args.scratch = memory + (128 - (uintptr_t)memory % 128) % 128;
    status = polyhead_make_plan(&kernel, &args, &plan);
    failures += expect(status.code == POLYHEAD_OK && plan != NULL, "a plan is made", &status);
    args.plan = plan;
    status = polyhead_run(&kernel, &args);
    failures += expect(status.code == POLYHEAD_OK && calls == before + 1, "a planned call by an executor in scratch memory", &status);
    args.scratch_bytes--;
    status = polyhead_run(&kernel, &args);
    failures += expect(status.code == POLYHEAD_BAD_VALUE && calls == before + 1, "a byte less is refused", &status);
    polyhead_free_plan(plan);
    free(memory);
    calls = before;
    return failures;
}

int main(void) {
    float query[4] = {0}, key[4] = {0}, value[4] = {0}, out[4] = {0};
    char text[512], names[64];
    int failures = 0;
    polyhead_args args;
    polyhead_status status;
    args = polyhead_args_of(POLYHEAD_SDPA);
    args.query = row(query);
    args.key = row(key);
    args.value = row(value);
    args.out = row(out);

    status = polyhead_run(&kernel, &args);
    failures += expect(status.code == POLYHEAD_OK && calls == 1, "a call runs", &status);
    failures += check_embedding(&args);
    status = polyhead_explain(&kernel, &args, text, sizeof text);
    failures += expect(strstr(text, "runs c_variant") != NULL, "explain", &status);
    args.out = row(query);
    status = polyhead_run(&kernel, &args);
    failures += expect(status.code == POLYHEAD_ALIASED && calls == 1, "aliasing is refused", &status);
    args.out = row(out);
    args.mask = row(query);
    status = polyhead_run(&kernel, &args);
    failures += expect(status.code == POLYHEAD_WRONG_OPERATION && calls == 1, "a mask is refused", &status);
    failures += run_masked(args, out);
    failures += expect(polyhead_weights_bytes(&kernel) == 0, "no weights", &status);
    failures += expect(polyhead_num_threads() > 0, "threads", &status);
    polyhead_cpu_feature_names(POLYHEAD_CPU_AMX, names, sizeof names);
    failures += expect(strcmp(names, "amx") == 0, "names", &status);
    failures += expect(strlen(polyhead_version()) > 0, "version", &status);
    return failures;
}

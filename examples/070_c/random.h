/* The same numbers on every machine. */
#ifndef RANDOM_H
#define RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* From -1 to 1. */
static inline float next_random(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / 8388608.0f - 1.0f;
}

static inline void fill_random(float *numbers, size_t count, uint32_t *seed) {
    for (size_t i = 0; i < count; i++) {
        numbers[i] = next_random(seed);
    }
}

#endif

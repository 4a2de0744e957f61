"""The toy storage type, floats of 8 bits (e4m3), through the command line with C++, and through Python, against float64.

Queries, keys, values and results are stored in it; kernels compute in f32. Decoding and prefill take different frames.
"""
import sys

import ml_dtypes
import numpy as np

import polyhead
from through_cpp import through_cpp

F8 = ml_dtypes.float8_e4m3fn
HEADS, KEYS, DIM = 2, 37, 40
PROGRAM = r"""
#include <cstdio>
#include <vector>
#include "f8_kernel.h"

int main(int, char **argv) {
    std::vector<polyhead::f8e4m3> q(%(q)d), k(%(k)d), v(%(k)d), out(%(q)d);
    std::FILE *file = std::fopen(argv[1], "rb");
    for (auto *values : {&q, &k, &v}) {
        if (std::fread(values->data(), 1, values->size(), file) != values->size()) return 2;
    }
    polyhead::SdpaArgs args;
    args.query = polyhead::view(q.data(), {1, %(heads)d, %(queries)d, %(dim)d});
    args.key = polyhead::view(k.data(), {1, %(heads)d, %(keys)d, %(dim)d});
    args.value = polyhead::view(v.data(), {1, %(heads)d, %(keys)d, %(dim)d});
    args.out = polyhead::view(out.data(), {1, %(heads)d, %(queries)d, %(dim)d});
    const polyhead::Status status = polyhead::Kernel(f8_kernel).run(args);
    for (const polyhead::f8e4m3 x : out) {
        const float number = polyhead::to_float(x);
        std::fwrite(&number, sizeof number, 1, stdout);
    }
    std::fprintf(stderr, "%%s\n", status.message());
    return status.ok() ? 0 : 1;
}
"""


def expected(query, key, value):
    logits = np.einsum("bhqd,bhkd->bhqk", query.astype(np.float64), key.astype(np.float64)) / DIM ** 0.5
    probs = np.exp(logits)
    return np.einsum("bhqk,bhkd->bhqd", probs / probs.sum(-1, keepdims=True), value.astype(np.float64))


def steps_apart(found, wanted):
    """The largest distance from a float64 result in steps of the type: half a step is the best that can be stored."""
    step = np.exp2(np.maximum(np.floor(np.log2(np.maximum(np.abs(wanted), 2.0 ** -6))), -6) - 3)
    return float((np.abs(found - wanted) / step).max())


def main():
    random = np.random.default_rng(1)
    for queries in (1, 33):
        arrays = [random.standard_normal((1, HEADS, n, DIM)).astype(F8) for n in (queries, KEYS, KEYS)]
        wanted = expected(*arrays)
        numbers = {"q": HEADS * queries * DIM, "k": HEADS * KEYS * DIM, "heads": HEADS, "queries": queries, "keys": KEYS, "dim": DIM}
        flags = ["--op", "sdpa", "--num-heads", str(HEADS), "--head-dim", str(DIM), "--dtype", "f8e4m3"]
        results = [("C++", through_cpp("f8_kernel", flags, PROGRAM % numbers, arrays, arrays[0].shape))]
        out = polyhead.sdpa(*arrays)
        assert out.dtype == F8, out.dtype
        results.append(("Python", out.astype(np.float32)))
        wide = polyhead.sdpa(*(array.astype(np.float32) for array in arrays), out=np.empty_like(arrays[0]))
        results.append(("Python, f32 inputs", wide.astype(np.float32)))
        for name, found in results:
            steps = steps_apart(found, wanted)
            print("%s, %d queries: %.3f steps from float64" % (name, queries, steps))
            if not steps < 0.51:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

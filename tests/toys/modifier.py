"""The toy modifier, a floor of the logits, through the command line with C++, and through Python, against float64."""
import sys

import numpy as np

import polyhead
from through_cpp import through_cpp

HEADS, QUERIES, KEYS, DIM, FLOOR = 2, 5, 37, 16, 0.125
PROGRAM = r"""
#include <cstdio>
#include <vector>
#include "floor_kernel.h"

int main(int, char **argv) {
    std::vector<float> q(%(q)d), k(%(k)d), v(%(k)d), out(%(q)d);
    std::FILE *file = std::fopen(argv[1], "rb");
    for (auto *values : {&q, &k, &v}) {
        if (std::fread(values->data(), sizeof(float), values->size(), file) != values->size()) return 2;
    }
    polyhead::SdpaArgs args;
    args.query = polyhead::view(q.data(), {1, %(heads)d, %(queries)d, %(dim)d});
    args.key = polyhead::view(k.data(), {1, %(heads)d, %(keys)d, %(dim)d});
    args.value = polyhead::view(v.data(), {1, %(heads)d, %(keys)d, %(dim)d});
    args.out = polyhead::view(out.data(), {1, %(heads)d, %(queries)d, %(dim)d});
    args.logit_floor = %(floor)gf;
    const polyhead::Status status = polyhead::Kernel(floor_kernel).run(args);
    std::fwrite(out.data(), sizeof(float), out.size(), stdout);
    std::fprintf(stderr, "%%s\n", status.message());
    return status.ok() ? 0 : 1;
}
"""


def expected(query, key, value):
    logits = np.einsum("bhqd,bhkd->bhqk", query.astype(np.float64), key.astype(np.float64)) / DIM ** 0.5
    probs = np.exp(np.maximum(logits, FLOOR))
    return np.einsum("bhqk,bhkd->bhqd", probs / probs.sum(-1, keepdims=True), value.astype(np.float64))


def main():
    random = np.random.default_rng(1)
    arrays = [random.standard_normal((1, HEADS, n, DIM)).astype(np.float32) for n in (QUERIES, KEYS, KEYS)]
    wanted = expected(*arrays)
    numbers = {"q": HEADS * QUERIES * DIM, "k": HEADS * KEYS * DIM, "heads": HEADS, "queries": QUERIES, "keys": KEYS, "dim": DIM, "floor": FLOOR}
    flags = ["--op", "sdpa", "--num-heads", str(HEADS), "--head-dim", str(DIM), "--logit-floor"]
    kernel = polyhead.compile("sdpa", num_heads=HEADS, head_dim=DIM, logit_floor=True)
    for name, found in (("C++", through_cpp("floor_kernel", flags, PROGRAM % numbers, arrays, arrays[0].shape)),
                        ("Python", kernel(query=arrays[0], key=arrays[1], value=arrays[2], logit_floor=FLOOR))):
        error = float(np.abs(found - wanted).max())
        print("%s: largest error %.2g" % (name, error))
        if not error < 1e-5:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

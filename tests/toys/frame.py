"""The toy frame, a copy of head lanes with a knob, through the command line with C++, and through Python, against float64."""
import sys

import numpy as np

import polyhead
from polyhead.reference import attention
from through_cpp import through_cpp

HEADS, QUERIES, KEYS, DIM = 4, 3, 517, 32
PROGRAM = r"""
#include <cstdio>
#include <vector>
#include "twin.h"

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
    const polyhead::Status status = polyhead::Kernel(twin).run(args);
    std::fwrite(out.data(), sizeof(float), out.size(), stdout);
    std::fprintf(stderr, "%%s\n", status.message());
    return status.ok() ? 0 : 1;
}
"""


def main():
    random = np.random.default_rng(1)
    arrays = [random.standard_normal((1, HEADS, n, DIM)).astype(np.float32) for n in (QUERIES, KEYS, KEYS)]
    wanted = attention(*arrays).out
    numbers = {"q": HEADS * QUERIES * DIM, "k": HEADS * KEYS * DIM, "heads": HEADS, "queries": QUERIES, "keys": KEYS, "dim": DIM}
    flags = ["--op", "sdpa", "--num-heads", str(HEADS), "--head-dim", str(DIM)]
    for keys in (1, 2, 4):
        tiling = "frame=twin_lanes split_len=64 twin_keys=%d" % keys
        kernel = polyhead.compile("sdpa", num_heads=HEADS, head_dim=DIM, tiling=tiling)
        variant = kernel.manifest["variants"][0]
        if variant["frame"] != "twin_lanes" or "twin_keys=%d" % keys not in variant["tiling"]:
            return 1
        for name, found in (("C++", through_cpp("twin", [*flags, "--tiling", tiling], PROGRAM % numbers, arrays, arrays[0].shape)),
                            ("Python", kernel(query=arrays[0], key=arrays[1], value=arrays[2]))):
            error = float(np.abs(found - wanted).max())
            print("twin_keys %d, %s: largest error %.2g" % (keys, name, error))
            if not error < 1e-5:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

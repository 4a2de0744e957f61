"""The toy frame, a copy of head lanes with a knob, through the command line with C++, and through Python, against float64."""
import sys

import numpy as np

import polyhead
from polyhead.reference import attention
from through_cpp import sdpa_through_cpp

HEADS, QUERIES, KEYS, DIM = 4, 3, 517, 32


def main():
    random = np.random.default_rng(1)
    arrays = [random.standard_normal((1, HEADS, n, DIM)).astype(np.float32) for n in (QUERIES, KEYS, KEYS)]
    wanted = attention(*arrays).out
    flags = ["--op", "sdpa", "--num-heads", str(HEADS), "--head-dim", str(DIM)]
    for keys in (1, 2, 4):
        tiling = "frame=twin_lanes split_len=64 twin_keys=%d" % keys
        kernel = polyhead.compile("sdpa", num_heads=HEADS, head_dim=DIM, tiling=tiling)
        variant = kernel.manifest["variants"][0]
        if variant["frame"] != "twin_lanes" or "twin_keys=%d" % keys not in variant["tiling"]:
            return 1
        for name, found in (("C++", sdpa_through_cpp("twin", [*flags, "--tiling", tiling], arrays)),
                            ("Python", kernel(query=arrays[0], key=arrays[1], value=arrays[2]))):
            error = float(np.abs(found - wanted).max())
            print("twin_keys %d, %s: largest error %.2g" % (keys, name, error))
            if not error < 1e-5:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

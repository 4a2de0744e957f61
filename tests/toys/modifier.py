"""The toy modifier, a floor of the logits, through the command line with C++, and through Python, against float64."""
import sys

import numpy as np

import polyhead
from polyhead.reference import attention
from through_cpp import sdpa_through_cpp

HEADS, QUERIES, KEYS, DIM, FLOOR = 2, 5, 37, 16, 0.125


def main():
    random = np.random.default_rng(1)
    arrays = [random.standard_normal((1, HEADS, n, DIM)).astype(np.float32) for n in (QUERIES, KEYS, KEYS)]
    wanted = attention(*arrays, change=lambda logits: np.maximum(logits, FLOOR)).out
    flags = ["--op", "sdpa", "--num-heads", str(HEADS), "--head-dim", str(DIM), "--logit-floor"]
    kernel = polyhead.compile("sdpa", num_heads=HEADS, head_dim=DIM, logit_floor=True)
    for name, found in (("C++", sdpa_through_cpp("floor_kernel", flags, arrays, more="args.logit_floor = %gf;" % FLOOR)),
                        ("Python", kernel(query=arrays[0], key=arrays[1], value=arrays[2], logit_floor=FLOOR))):
        error = float(np.abs(found - wanted).max())
        print("%s: largest error %.2g" % (name, error))
        if not error < 1e-5:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

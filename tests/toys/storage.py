"""The toy storage type, floats of 8 bits (e4m3), through the command line with C++, and through Python, against float64.

Queries, keys, values and results are stored in it; kernels compute in f32. Decoding and prefill take different frames.
"""
import sys

import ml_dtypes
import numpy as np

import polyhead
from polyhead.reference import attention
from through_cpp import sdpa_through_cpp

F8 = ml_dtypes.float8_e4m3fn
HEADS, KEYS, DIM = 2, 37, 40


def steps_apart(found, wanted):
    """The largest distance from a float64 result in steps of the type: half a step is the best that can be stored."""
    step = np.exp2(np.maximum(np.floor(np.log2(np.maximum(np.abs(wanted), 2.0 ** -6))), -6) - 3)
    return float((np.abs(found - wanted) / step).max())


def main():
    random = np.random.default_rng(1)
    for queries in (1, 33):
        arrays = [random.standard_normal((1, HEADS, n, DIM)).astype(F8) for n in (queries, KEYS, KEYS)]
        wanted = attention(*arrays).out
        flags = ["--op", "sdpa", "--num-heads", str(HEADS), "--head-dim", str(DIM), "--dtype", "f8e4m3"]
        results = [("C++", sdpa_through_cpp("f8_kernel", flags, arrays, "polyhead::f8e4m3", "polyhead::to_float"))]
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

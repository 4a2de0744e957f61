"""The toy knob, an unroll of the linear layer: every value through the command line with C++, and through Python, against float64."""
import sys

import numpy as np

import polyhead
from through_cpp import through_cpp

ROWS, INPUTS, OUTPUTS = 19, 37, 21
PROGRAM = r"""
#include <cstdio>
#include <vector>
#include "unrolled.h"

int main(int, char **argv) {
    std::vector<float> rows(%(rows)d * %(inputs)d), weight(%(outputs)d * %(inputs)d), out(%(rows)d * %(outputs)d);
    std::FILE *file = std::fopen(argv[1], "rb");
    for (auto *values : {&rows, &weight}) {
        if (std::fread(values->data(), sizeof(float), values->size(), file) != values->size()) return 2;
    }
    polyhead::WeightTensors tensors;
    tensors.out_proj = polyhead::view(weight.data(), {%(outputs)d, %(inputs)d});
    const polyhead::Kernel kernel(unrolled);
    polyhead::Weights weights;
    if (!kernel.pack(tensors, &weights).ok()) return 3;
    polyhead::LinearArgs args;
    args.input = polyhead::view(rows.data(), {%(rows)d, %(inputs)d});
    args.out = polyhead::view(out.data(), {%(rows)d, %(outputs)d});
    args.weights = &weights;
    const polyhead::Status status = kernel.run(args);
    std::fwrite(out.data(), sizeof(float), out.size(), stdout);
    std::fprintf(stderr, "%%s\n", status.message());
    return status.ok() ? 0 : 1;
}
"""


def main():
    random = np.random.default_rng(1)
    rows, weight = random.standard_normal((ROWS, INPUTS)).astype(np.float32), random.standard_normal((OUTPUTS, INPUTS)).astype(np.float32)
    wanted = rows.astype(np.float64) @ weight.astype(np.float64).T
    numbers = {"rows": ROWS, "inputs": INPUTS, "outputs": OUTPUTS}
    flags = ["--op", "linear", "--embed-dim", str(INPUTS), "--out-features", str(OUTPUTS)]
    for unroll in (1, 2, 4):
        tiling = "linear_unroll=%d" % unroll
        kernel = polyhead.compile("linear", embed_dim=INPUTS, out_features=OUTPUTS, tiling=tiling)
        if unroll > 1 and tiling not in kernel.manifest["variants"][0]["tiling"]:
            return 1
        python = kernel(input=rows, weights=kernel.pack(out_proj=weight))
        cpp = through_cpp("unrolled", flags + ["--tiling", tiling], PROGRAM % numbers, [rows, weight], (ROWS, OUTPUTS))
        for name, found in (("C++", cpp), ("Python", python)):
            error = float(np.abs(found - wanted).max())
            print("%s, %s: largest error %.2g" % (tiling, name, error))
            if not error < 1e-4:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

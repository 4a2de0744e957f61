"""The toy operation, out = input, through the command line with C++, and through Python."""
import sys

import numpy as np

import polyhead
from through_cpp import through_cpp

ROWS, WIDTH = 7, 33
PROGRAM = r"""
#include <cstdio>
#include <vector>
#include "copy_kernel.h"

int main(int, char **argv) {
    std::vector<float> in(%(size)d), out(%(size)d);
    std::FILE *file = std::fopen(argv[1], "rb");
    if (std::fread(in.data(), sizeof(float), in.size(), file) != in.size()) return 2;
    polyhead_args args = polyhead_args_of(POLYHEAD_COPY);
    args.query = polyhead::view(in.data(), {%(rows)d, %(width)d});
    args.out = polyhead::view(out.data(), {%(rows)d, %(width)d});
    const polyhead_status status = polyhead_run(&copy_kernel, &args);
    std::fwrite(out.data(), sizeof(float), out.size(), stdout);
    std::fprintf(stderr, "%%s\n", status.message);
    return status.code;
}
"""


def main():
    rows = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)
    program = PROGRAM % {"size": rows.size, "rows": ROWS, "width": WIDTH}
    kernel = polyhead.compile("copy", embed_dim=WIDTH)
    for name, found in (("C++", through_cpp("copy_kernel", ["--op", "copy", "--embed-dim", str(WIDTH)], program, [rows], rows.shape)),
                        ("Python", kernel(input=rows))):
        same = np.array_equal(found, rows)
        print("%s: %s" % (name, "the same bits" if same else "WRONG"))
        if not same:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A kernel made on the command line, linked with a program in C++ that reads its inputs from a file and writes its result."""
import os
import subprocess
import tempfile

import numpy as np

BUILD = os.path.join("build", "release")
# Attention over tensors of one element type, bhsd, with the results as floats. `more` sets further arguments.
SDPA_PROGRAM = r"""
#include <cstdio>
#include <vector>
#include "%(kernel)s.h"

int main(int, char **argv) {
    std::vector<%(element)s> q(%(q)d), k(%(k)d), v(%(k)d), out(%(q)d);
    std::FILE *file = std::fopen(argv[1], "rb");
    for (auto *values : {&q, &k, &v}) {
        if (std::fread(values->data(), sizeof(%(element)s), values->size(), file) != values->size()) return 2;
    }
    polyhead::SdpaArgs args;
    args.query = polyhead::view(q.data(), {1, %(heads)d, %(queries)d, %(dim)d});
    args.key = polyhead::view(k.data(), {1, %(heads)d, %(keys)d, %(dim)d});
    args.value = polyhead::view(v.data(), {1, %(heads)d, %(keys)d, %(dim)d});
    args.out = polyhead::view(out.data(), {1, %(heads)d, %(queries)d, %(dim)d});
    %(more)s
    const polyhead::Status status = polyhead::Kernel(%(kernel)s).run(args);
    for (const %(element)s x : out) {
        const float number = %(to_float)s(x);
        std::fwrite(&number, sizeof number, 1, stdout);
    }
    std::fprintf(stderr, "%%s\n", status.message());
    return status.ok() ? 0 : 1;
}
"""


def sdpa_through_cpp(kernel, flags, arrays, element="float", to_float="float", more=""):
    """sdpa of query, key and value [1,H,T,d], all with the same number of heads and width."""
    (_, heads, queries, dim), keys = arrays[0].shape, arrays[1].shape[2]
    program = SDPA_PROGRAM % {"kernel": kernel, "element": element, "to_float": to_float, "more": more, "heads": heads, "queries": queries, "keys": keys,
                              "dim": dim, "q": heads * queries * dim, "k": heads * keys * dim}  # fmt: skip
    return through_cpp(kernel, flags, program, arrays, arrays[0].shape)


def through_cpp(kernel, flags, program, arrays, shape):
    """The result, float32 of this shape. In a tree that is built."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.join(BUILD, "tools", "polyhead-generate"), kernel, *flags, "-o", folder], check=True, stdout=subprocess.DEVNULL)
        source, inputs, main = (os.path.join(folder, name) for name in ("main.cpp", "inputs", "main"))
        with open(source, "w", encoding="utf-8") as file:
            file.write(program)
        with open(inputs, "wb") as file:
            file.write(b"".join(array.tobytes() for array in arrays))
        subprocess.run(["c++", "-std=c++17", "-I" + folder, "-Iruntime/include", source, os.path.join(folder, kernel + ".a"),
                        os.path.join(BUILD, "runtime", "libpolyhead.a"), "-lpthread", "-ldl", "-o", main], check=True)
        done = subprocess.run([main, inputs], check=True, stdout=subprocess.PIPE)
        return np.frombuffer(done.stdout, np.float32).reshape(shape)

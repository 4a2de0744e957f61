"""The toy instruction class, a product of four bytes by name, through the command line with C++, and through Python, against float64."""
import os
import subprocess
import sys
import tempfile

import numpy as np

import polyhead
from polyhead.reference import attention, from_int8
from through_cpp import BUILD, through_cpp

HEADS, KEYS, DIM = 2, 67, 64
PROGRAM = r"""
#include <cstdint>
#include <cstdio>
#include <vector>
#include "by_bytes.h"

int main(int, char **argv) {
    std::vector<float> q(%(heads)d * %(dim)d), key_scales(%(heads)d * %(keys)d), value_scales(key_scales), out(q.size());
    std::vector<int8_t> k(%(heads)d * %(keys)d * %(dim)d), v(k.size());
    std::FILE *file = std::fopen(argv[1], "rb");
    for (auto *floats : {&q, &key_scales, &value_scales}) {
        if (std::fread(floats->data(), sizeof(float), floats->size(), file) != floats->size()) return 2;
    }
    for (auto *bytes : {&k, &v}) {
        if (std::fread(bytes->data(), 1, bytes->size(), file) != bytes->size()) return 2;
    }
    polyhead::SdpaArgs args;
    args.query = polyhead::view(q.data(), {1, %(heads)d, 1, %(dim)d});
    args.key = polyhead::view(k.data(), {1, %(heads)d, %(keys)d, %(dim)d});
    args.value = polyhead::view(v.data(), {1, %(heads)d, %(keys)d, %(dim)d});
    args.key_scales = polyhead::view(key_scales.data(), {1, %(heads)d, %(keys)d, 1});
    args.value_scales = polyhead::view(value_scales.data(), {1, %(heads)d, %(keys)d, 1});
    args.out = polyhead::view(out.data(), {1, %(heads)d, 1, %(dim)d});
    const polyhead::Status status = polyhead::Kernel(by_bytes).run(args);
    std::fwrite(out.data(), sizeof(float), out.size(), stdout);
    std::fprintf(stderr, "%%s\n", status.message());
    return status.ok() ? 0 : 1;
}
"""
FLAGS = ["--op", "sdpa", "--num-heads", str(HEADS), "--head-dim", str(DIM), "--int8-cache", "--tiling", "frame=head_lanes"]


def calls_of_the_product():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.join(BUILD, "tools", "polyhead-generate"), "k", *FLAGS, "--emit", "assembly", "-o", folder], check=True,
                       stdout=subprocess.DEVNULL)
        return sum(open(os.path.join(folder, name), encoding="utf-8").read().count("polyhead_dot4") for name in os.listdir(folder)
                   if name.endswith(".s"))


def main():
    random = np.random.default_rng(1)
    query = random.standard_normal((1, HEADS, 1, DIM)).astype(np.float32)
    key, value = (random.integers(-127, 128, (1, HEADS, KEYS, DIM)).astype(np.int8) for _ in range(2))
    scales = [random.uniform(0.005, 0.02, (1, HEADS, KEYS, 1)).astype(np.float32) for _ in range(2)]
    wanted = attention(query, from_int8(key, scales[0]), from_int8(value, scales[1])).out
    kernel = polyhead.compile("sdpa", num_heads=HEADS, head_dim=DIM, int8_cache=True, tiling="frame=head_lanes")
    found = {"C++": through_cpp("by_bytes", FLAGS, PROGRAM % {"heads": HEADS, "keys": KEYS, "dim": DIM}, [query, *scales, key, value], query.shape),
             "Python": kernel(query=query, key=key, value=value, key_scales=scales[0], value_scales=scales[1])}
    calls = calls_of_the_product()
    print("calls of the product: %d" % calls)
    for name, out in found.items():
        error = float(np.abs(out - wanted).max())
        print("%s: largest error %.2g" % (name, error))
        if not error < 2e-2 or not calls:  # the query is rounded to bytes
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

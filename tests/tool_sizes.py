"""Programs and libraries of other versions of the headers: a kernel and a program link with a library whose structs have more fields, and
a program whose arguments have fewer fields links with this library. Every time the bits are the same."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "of_any_size"
FLAGS = ["--op", "sdpa", "--num-heads", "2", "--head-dim", "8", "--kv-lengths", "--lse", "--target", "x86-64-linux",
         "--expression", "tensor weight: f32[h]; score = score * weight[h]"]
# A field more at the end of each struct.
LATER = {
    "c_api.h": (
        (r"(    const struct polyhead_plan \*plan;[^\n]*\n)", r"\1    const void *later_argument;\n"),
        (r"(    uint32_t abi; [^\n]*\n)", r"\1    uint64_t later_requirement;\n"),
        (r"(    uint32_t reserved; [^\n]*\n)", r"\1    const void *later_table;\n"),
        (r"(    polyhead_tensor out_proj, out_bias;\n)", r"\1    polyhead_tensor later_weight;\n"),
    ),
    "c_executor.h": (
        (r"(?=\} polyhead_executor;)", "    int64_t later_width;\n"),
        (r"(?=\} polyhead_workspace;)", "    int64_t later_memory;\n"),
    ),
    "c_problem.h": (
        (r"(    const char \*expression; [^\n]*\n)", r"\1    int64_t later_field;\n"),
        (r"(    int32_t extents\[4\]; [^\n]*\n)", r"\1    int64_t later_extent;\n"),
    ),
}
# Without the fields that came after the lowest version.
EARLIER = {"c_api.h": ((r"    /\* Memory and threads of the caller.*?\n(?=} polyhead_args;)", ""),)}
PROGRAM = r"""
#include <stdio.h>
#include "of_any_size.h"

static float query[2 * 2 * 5 * 8], key[2 * 2 * 9 * 8], value[2 * 2 * 9 * 8], out[2 * 2 * 5 * 8], lse[2 * 2 * 5], weight[2];
static int32_t lengths[2];

static polyhead_tensor rows(float *data, int64_t length) {
    polyhead_tensor tensor = {data, POLYHEAD_F32, 4, {2, 2, 0, 8}, {0, 0, 8, 1}, NULL, 0};
    tensor.shape[2] = length;
    tensor.stride[1] = length * 8;
    tensor.stride[0] = length * 16;
    return tensor;
}
static float next(void) {
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}
static void print_bits(const float *values, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        uint32_t bits;
        memcpy(&bits, values + i, sizeof bits);
        printf("%08x\n", (unsigned)bits);
    }
}

int main(void) {
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    polyhead_tensor weights = {weight, POLYHEAD_F32, 1, {2}, {1}, NULL, 0};
    for (size_t i = 0; i < sizeof query / sizeof *query; ++i) query[i] = next();
    for (size_t i = 0; i < sizeof key / sizeof *key; ++i) key[i] = next(), value[i] = next();
    weight[0] = 0.5f, weight[1] = 1.5f, lengths[0] = 9, lengths[1] = 3;
    args.query = rows(query, 5), args.key = rows(key, 9), args.value = rows(value, 9), args.out = rows(out, 5);
    args.lse.data = lse, args.lse.rank = 3, args.lse.shape[0] = args.lse.shape[1] = 2, args.lse.shape[2] = 5;
    args.lse.stride[0] = 10, args.lse.stride[1] = 5, args.lse.stride[2] = 1;
    args.kv_lengths.data = lengths, args.kv_lengths.dtype = POLYHEAD_I32, args.kv_lengths.rank = 1, args.kv_lengths.shape[0] = 2,
    args.kv_lengths.stride[0] = 1;
    args.expression_tensors = &weights, args.num_expression_tensors = 1;
    const polyhead_status status = polyhead_run(&of_any_size, &args);
    fprintf(stderr, "%d bytes of arguments: %s\n", (int)sizeof args, status.message);
    print_bits(out, sizeof out / sizeof *out);
    print_bits(lse, sizeof lse / sizeof *lse);
    return status.code;
}
"""


def run(words, **options):
    return subprocess.run([str(word) for word in words], check=True, **options)


def patched(headers, changes):
    """Changes a copy of the public headers."""
    for name, pairs in changes.items():
        path = headers / "polyhead" / name
        text = path.read_text(encoding="utf-8")
        for pattern, to in pairs:
            text, count = re.subn(pattern, to, text, flags=re.S)
            assert count == 1, "%s: %r is there %d times, expected once" % (name, pattern, count)
        path.write_text(text, encoding="utf-8")


def later_library(options, folder):
    """This library, compiled with larger structs."""
    shutil.copytree(ROOT / "runtime", folder / "runtime")
    shutil.copytree(ROOT / "contract", folder / "contract")
    patched(folder / "runtime" / "include", LATER)
    sources = sorted(path for path in (folder / "runtime").rglob("*.cpp") if path.parent.name != "devices")

    def compiled(source):
        run([options.cxx, "-std=c++17", "-O0", "-c", "-w", "-DPOLYHEAD_VERSION=\"later\"", "-I", folder / "runtime" / "include",
             source, "-o", source.with_suffix(".o")])
        return source.with_suffix(".o")

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        objects = list(threads.map(compiled, sources))
    run(["ar", "rcs", folder / "later.a", *objects])
    return folder / "later.a"


def bits(options, folder, headers, library):
    """What the program prints that is compiled with these headers and linked with this library."""
    run([options.cc, "-std=c99", "-O1", "-w", "-I", folder, "-I", headers, "-c", folder / "program.c", "-o", folder / "program.o"])
    run([options.cxx, folder / "program.o", folder / (NAME + ".a"), library, "-lpthread", "-ldl", "-o", folder / "program"])
    return run([folder / "program"], stdout=subprocess.PIPE).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("generate", "library", "cc", "cxx"):
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    headers = ROOT / "runtime" / "include"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run([options.generate, NAME, *FLAGS, "-o", folder])
        (folder / "program.c").write_text(PROGRAM, encoding="utf-8")
        shutil.copytree(headers, folder / "earlier")
        patched(folder / "earlier", EARLIER)
        expected = bits(options, folder, headers, options.library)
        assert len(expected.split()) == 2 * 2 * 5 * 9, "the program prints every element"
        later = later_library(options, folder)
        assert bits(options, folder, headers, later) == expected, "a library with larger structs gives other bits"
        assert bits(options, folder, folder / "earlier", options.library) == expected, "a program with fewer fields gets other bits"
        assert bits(options, folder, folder / "runtime" / "include", options.library) == expected, "a program with more fields gets other bits"
    print("the same bits with structs of four sizes")


if __name__ == "__main__":
    main()

"""polyhead as a C++ program links it: bytes of a program with one kernel and the runtime, less those of the same program without."""

import os
import pathlib
import subprocess

from . import workers

ROOT = workers.PEERS.parents[1]
NAME = "linked_kernel"
ELEMENTS = {"f32": "float", "bf16": "polyhead::bf16", "f16": "polyhead::f16"}  # in C++


def flags(case, dtype):
    s = case.shape
    return ["--op", "sdpa", "--num-heads", str(s["H"]), "--num-kv-heads", str(s["Hkv"]), "--head-dim", str(s["d"]), "--dtype", dtype]


def compiled(folder, name, source, libraries, *options):
    """Path of a stripped program."""
    program = pathlib.Path(folder, name)
    command = [os.environ.get("CXX") or "g++", "-std=c++17", "-O2", "-s", "-Wl,--gc-sections", "-I", str(folder), "-I", str(ROOT / "runtime" / "include")]
    subprocess.run([*command, *options, str(source), *map(str, libraries), "-lpthread", "-ldl", "-o", str(program)], check=True, capture_output=True)
    return program


def build(case, dtype, build_folder, folder):
    """(facts, program): kernel_bytes, program_bytes, empty_bytes. The program answers one call of the case."""
    build_folder = pathlib.Path(build_folder)
    subprocess.run([str(build_folder / "tools" / "polyhead-generate"), NAME, *flags(case, dtype), "-o", str(folder)], check=True, capture_output=True)
    archive, runtime = pathlib.Path(folder, NAME + ".a"), build_folder / "runtime" / "libpolyhead.a"
    program = compiled(folder, "linked", workers.PEERS / "linked_main.cpp", [archive, runtime], "-DELEMENT=" + ELEMENTS[dtype])
    empty = pathlib.Path(folder, "empty.cpp")
    empty.write_text("#include <cstdio>\n#include <vector>\nint main() { std::vector<float> x(9); return std::printf(\"%g\", x[0]) < 0; }\n", encoding="ascii")
    bare = compiled(folder, "empty", empty, [])
    facts = dict(kernel_bytes=archive.stat().st_size, program_bytes=program.stat().st_size, empty_bytes=bare.stat().st_size)
    return dict(facts, bytes=facts["program_bytes"] - facts["empty_bytes"]), program


def arguments(case):
    s = case.shape
    return [str(s[name]) for name in ("B", "H", "Hkv", "Tq", "Tkv", "d")]

"""A wheel as its user has it: made by ./polyhead wheel, installed by pip into an empty folder, used where no compiler, linker and Halide is, then
with Halide beside it, then as the package that a CMake project finds."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from commands import run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tier import sampled  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROBLEMS = r"--head-dim (64|128|256) --dtype f32 --kv-lengths( --causal bottom_right)? --target"  # six
TOOLS = ("ld", "ld.bfd", "gcc", "g++", "cc", "c++", "ar", "as", "clang", "clang++")
CALLS = """
import itertools, os, resource, sys
children = resource.getrusage(resource.RUSAGE_CHILDREN)  # of the shell before
import numpy as np
import polyhead
from polyhead.reference import attention, visible
rng = np.random.default_rng(1)
worst = 0
for width, group, rows, causal, lengths in itertools.product((64, 128, 256), (1, 4, 7), (1, 5, 70), (False, True), (None, [7, 33])):
    query, key, value = (rng.standard_normal((2, heads, length, width)).astype(np.float32) for heads, length in ((2 * group, rows), (2, 70), (2, 70)))
    seen = visible(rows, 70, None if lengths is None else np.array(lengths, np.int32), causal=causal)
    out = polyhead.sdpa(query, key, value, is_causal=causal, kv_lengths=lengths)
    worst = max(worst, float(abs(out - attention(query, key, value, seen).out).max()))
assert worst < 1e-5, worst
assert resource.getrusage(resource.RUSAGE_CHILDREN) == children, "a child process ran"
assert "libHalide" not in open("/proc/self/maps").read()
try:
    x = rng.standard_normal((1, 2, 9, 24)).astype(np.float32)
    out = polyhead.sdpa(x, x, x)
    print("compiled %.0e" % abs(out - attention(x, x, x).out).max())
except polyhead.Error as error:
    print(error)
"""


def masked(command):
    """The command where the tools of a compiler are empty files, if this user may mount; otherwise None."""
    paths = [path for path in (shutil.which(tool) for tool in TOOLS) if path]
    script = " && ".join(["mount --bind /dev/null %s" % os.path.realpath(path) for path in paths] + ['exec "$@"'])
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    if shutil.which("unshare") is None or subprocess.run(words + ["true"], capture_output=True, check=False).returncode != 0:
        return None
    return words + [str(word) for word in command]


def used(site, home, lines=CALLS, expected=0):
    """What lines of Python print with the package of this folder and NumPy, and nothing else."""
    numpy = pathlib.Path(run([sys.executable, "-c", "import numpy; print(numpy.__path__[0])"]).strip())
    for name in (numpy.name, numpy.name + ".libs"):
        if (numpy.parent / name).exists() and not (site / name).exists():
            (site / name).symlink_to(numpy.parent / name)
    command = [sys.executable, "-I", "-S", "-c", "import sys; sys.path.insert(0, %r)\n%s" % (str(site), lines)]
    there = masked(command)
    if there is None:
        print("NOT RUN: without tools: no right to mount")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("POLYHEAD_", "LD_", "PYTHON"))}
    return run(there or command, expected, env={**kept, "HOME": str(home)}).strip()


def check_symbols(core):
    """Others find the entry of the module and what kernels call; nothing of libstdc++, of Halide or of ours."""
    names = [line.split()[-1] for line in run(["nm", "-D", "--defined-only", core]).splitlines()]
    foreign = [name for name in names if not re.match("PyInit__core$|polyhead_(halide|amx|fetch)", name)]
    assert not foreign, foreign
    needed = re.findall(r"NEEDED.*\[(.*)\]", run(["readelf", "-d", core]))
    assert not [name for name in needed if "stdc++" in name or "gcc" in name or "Halide" in name or "lzma" in name], needed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("cmake", "make-program", "cxx", "halide"):
        parser.add_argument("--" + name, required=True)
    options = parser.parse_args()
    if not sampled("wheel", [True, False, False], 3)[0]:  # it compiles all of the package again
        print("another commit has this test in the quick run")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        site, home = folder / "site", folder / "home"
        home.mkdir()
        print(run([sys.executable, ROOT / "polyhead", "wheel", "--bundle", PROBLEMS, "-o", folder / "dist"]).splitlines()[-1])
        wheel, = (folder / "dist").glob("polyhead-*.whl")
        assert wheel.stat().st_size < 5e6, "%s has %d bytes, expected 5 MB at most" % (wheel.name, wheel.stat().st_size)
        assert int(re.search(r"manylinux_2_(\d+)", wheel.name).group(1)) <= 34, wheel.name
        run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel])
        package = site / "polyhead"
        metadata, = site.glob("polyhead-*.dist-info")
        needs = re.findall(r"^Requires-Dist: (.*)$", (metadata / "METADATA").read_text(encoding="utf-8"), re.M)
        assert [need for need in needs if "extra ==" not in need] == ["numpy>=1.22"], needs
        core, = package.glob("_core*.so")
        check_symbols(core)
        home.chmod(0o500)
        said = used(site, home)
        assert said == "this kernel was not compiled yet, and its compiler needs Halide 21: pip install 'polyhead[generate]'", said
        for command, begins in (("generate", "polyhead generate: it needs Halide 21: pip install 'polyhead[generate]'"),
                                ("tune", "polyhead tune: it needs the package ")):
            said = used(site, home, "import runpy; sys.argv = ['polyhead', %r]; runpy.run_module('polyhead', run_name='__main__')" % command, 1)
            assert said.startswith(begins), said
        (site / "halide").symlink_to(pathlib.Path(options.halide).parents[2])
        said = used(site, home)
        assert said.startswith("compiled ") and float(said.split()[1]) < 1e-5, said
        prefix = run([sys.executable, "-m", "polyhead", "cmake-dir"], env={**os.environ, "PYTHONPATH": str(site)}).strip()
        build = folder / "build"
        run([options.cmake, "-Werror=dev", "-S", HERE, "-B", build, "-G", "Ninja", "-DCMAKE_MAKE_PROGRAM=" + options.make_program,
             "-DCMAKE_CXX_COMPILER=" + options.cxx, "-DCMAKE_PREFIX_PATH=" + prefix, "-DCMAKE_BUILD_TYPE=Release"])
        run([options.cmake, "--build", build])
        print(run([build / "consumer"]).strip())


if __name__ == "__main__":
    main()

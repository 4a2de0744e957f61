"""polyhead wheel: the Python package as one file for pip, with kernels that are ready."""
import glob
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess

from . import build, environment, package
from .places import BUILD, PYTHON, ROOT, VENV, Failure, call, jobs, step
from .places import environment as child_environment

TABLE = os.path.join(ROOT, "kernels", "bundle.txt")
WRITE = """
import concurrent.futures, json, sys, time
from polyhead import _core
problems, path, threads = json.load(sys.stdin), sys.argv[1], int(sys.argv[2])
kernels = []
with concurrent.futures.ThreadPoolExecutor(threads) as pool:
    for number, found in enumerate(pool.map(_core.bundle_entries, problems), 1):
        kernels += found
        print("\\r%d of %d problems, %d objects" % (number, len(problems), sum(map(len, kernels))), end="", flush=True)
_core.write_bundle(path, kernels)
print()
"""


def expanded(line):
    """The lines that a line of the table stands for: {a,b} is each of its words in turn."""
    parts = re.split(r"\{([^{}]*)\}", line)
    choices = [[part] if i % 2 == 0 else part.split(",") for i, part in enumerate(parts)]
    return [" ".join("".join(chosen).split()) for chosen in itertools.product(*choices)]


def problems(table=TABLE, only=""):
    """Generate flags for each problem of the table whose flags match."""
    found = []
    with open(table, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    for line in lines:
        targets, _, flags = line.partition(" : ")
        found += [one + " --target " + targets.strip() for one in expanded(flags)]
    return [shlex.split(one) for one in found if re.search(only, one)]


def make_bundle(only, path):
    """Kernels are kept on the disk while they are made, so that a run goes on where another ended."""
    child = dict(package.importing(), POLYHEAD_CACHE=os.path.join(BUILD, "bundle-kernels"))
    wanted = problems(only=only)
    if not wanted:
        raise Failure("bundle: found no problem of kernels/bundle.txt that matches '%s'" % only)
    step("%d problems of the bundle" % len(wanted))
    done = subprocess.run([PYTHON, "-c", WRITE, path, str(jobs())], input=json.dumps(wanted), text=True, env=child, cwd=ROOT, check=False)
    if done.returncode != 0:
        raise Failure("the bundle was not made; the message is above")
    print("%s: %.1f MB" % (os.path.relpath(path), os.path.getsize(path) / 1e6))


def add_command(made):
    made.add_argument("--bundle", metavar="REGEX", default="all", help="kernels that are ready in it: those of kernels/bundle.txt whose flags match; all (default) or none")
    made.add_argument("-o", "--output", metavar="DIR", default="dist", help="where the file goes (default dist)")


def make(options):
    environment.ensure(*environment.PACKAGE, "wheel")
    package.ready("a wheel")
    bundle = os.path.join(BUILD, "kernels.bundle")
    if options.bundle != "none":
        make_bundle("" if options.bundle == "all" else options.bundle, bundle)
    made, target = os.path.join(BUILD, "wheel-made"), os.path.abspath(options.output)
    shutil.rmtree(made, ignore_errors=True)
    child = {"CXX": "c++", "CC": "cc", **child_environment()}  # as CMake finds them for the other builds, with which this one shares objects
    child["PATH"] = os.path.join(VENV, "bin") + os.pathsep + child["PATH"]
    step("wheel")
    call([PYTHON, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", made, ROOT,
          "--config-settings", "cmake.define.POLYHEAD_BUNDLE=" + (bundle if options.bundle != "none" else "")], env=child)
    first, = glob.glob(os.path.join(made, "*.whl"))
    step("auditwheel")
    call([os.path.join(VENV, "bin", "auditwheel"), "repair", "--exclude", "libHalide.so", "--wheel-dir", target, first], env=child)
    newest = max(glob.glob(os.path.join(target, "polyhead-*.whl")), key=os.path.getmtime)
    print("%s: %.1f MB" % (os.path.relpath(newest), os.path.getsize(newest) / 1e6))
    return 0

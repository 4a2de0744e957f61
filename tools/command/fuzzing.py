"""The subcommand test --fuzz MINUTES: builds the fuzzers and runs each for that time."""
import concurrent.futures
import os
import re
import subprocess
import time

from . import build, clang, environment, package
from .places import PYTHON, ROOT, Failure, jobs, step

SCRIPT = "fuzz_record_files"  # the fuzzer of the tuner's files, in Python
FOLDER = os.path.join(ROOT, "tests", "fuzz")


def variables(preset):
    """The CMake variables of a build: the release build has the fuzzers."""
    return {"POLYHEAD_FUZZ_CXX": clang.fuzzing_compiler()} if preset == "release" else {}


def names():
    programs = (name for name in os.listdir(os.path.join(FOLDER, "corpus")) if name.endswith(".txt"))
    return sorted(os.path.splitext(name)[0] for name in programs)


def command(name, root):
    """The command line of one fuzzer of a tree and its release build."""
    if name == SCRIPT:
        return [PYTHON, os.path.join(root, "tests", "fuzz", name + ".py")]
    folder = os.path.join(root, "build", "release")
    return [PYTHON, os.path.join(root, "tests", "fuzz", "drive.py"), "--program", os.path.join(folder, "tests", "fuzz", name), "--generate",
            os.path.join(folder, "tools", "polyhead-generate")]


def fuzz(options):
    """Runs every fuzzer for options.fuzz minutes, one per core at the same time."""
    environment.ensure(*environment.PACKAGE, "test")
    found = variables("release")
    if not found["POLYHEAD_FUZZ_CXX"]:
        raise Failure("fuzzing needs clang with libFuzzer: apt-get install %s" % " ".join(clang.PACKAGES))
    build.configure("release", ["TESTS"] + environment.parts(), **found)
    build.build("release", ["polyhead_fuzzers", "polyhead-generate"] + package.targets())
    seed = os.environ.get("POLYHEAD_SWEEP_SEED") or "%s-%d" % (build.head_commit(), time.time_ns())
    child = package.importing(POLYHEAD_SWEEP_SEED=seed, POLYHEAD_FUZZ_SECONDS=str(round(options.fuzz * 60)))

    def run(name):
        done = subprocess.run(command(name, ROOT), env=child, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        return name, done.returncode, done.stdout

    step("fuzz, %g minutes each, POLYHEAD_SWEEP_SEED=%s" % (options.fuzz, seed))
    known = names() + ([SCRIPT] if package.targets() else [])
    chosen = [name for name in known if re.search(options.filter or "", name)]
    if not chosen:
        raise Failure("no fuzzer matches %r, expected one of %s" % (options.filter, ", ".join(known)))
    failed = []
    with concurrent.futures.ThreadPoolExecutor(jobs()) as pool:
        for name, status, text in pool.map(run, chosen):
            print(text, end="", flush=True)
            if status != 0:
                failed.append(name)
    for name in failed:
        print("FAILED %s" % name)
    print("%d fuzzers without findings, %d with findings" % (len(chosen) - len(failed), len(failed)), flush=True)
    return 1 if failed else 0

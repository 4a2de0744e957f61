"""The subcommand test --fuzz MINUTES: builds the fuzzers and runs each for that time."""
import concurrent.futures
import os
import subprocess

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


def fuzz(options):
    """Runs every fuzzer for options.fuzz minutes, one per core at the same time."""
    environment.ensure(*environment.PACKAGE, "test")
    found = variables("release")
    if not found["POLYHEAD_FUZZ_CXX"]:
        raise Failure("fuzzing needs clang with libFuzzer: apt-get install %s" % " ".join(clang.PACKAGES))
    build.configure("release", ["TESTS"] + environment.parts(), **found)
    build.build("release", ["polyhead_fuzzers", "polyhead-generate"] + package.targets())
    folder = os.path.join(build.directory("release"), "tests", "fuzz")
    child = package.importing(POLYHEAD_SWEEP_SEED=build.head_commit(), POLYHEAD_FUZZ_SECONDS=str(round(options.fuzz * 60)))

    def run(name):
        words = ["drive.py", "--program", os.path.join(folder, name), "--generate", build.program("release", "polyhead-generate")]
        words = [name + ".py"] if name == SCRIPT else words
        done = subprocess.run([PYTHON, os.path.join(FOLDER, words[0])] + words[1:], env=child, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        return name, done.returncode, done.stdout

    step("fuzz, %g minutes each" % options.fuzz)
    chosen = [name for name in names() + ([SCRIPT] if package.targets() else []) if not options.filter or options.filter in name]
    failed = []
    with concurrent.futures.ThreadPoolExecutor(jobs()) as pool:
        for name, status, text in pool.map(run, chosen):
            print(text, end="", flush=True)
            if status != 0:
                failed.append(name)
    for name in failed:
        print("FAILED %s" % name)
    print("%d fuzzers without findings, %d with findings" % (len(chosen) - len(failed), len(failed)), flush=True)
    return 1 if failed or not chosen else 0

"""The subcommand test --soak MINUTES: runs kernels from many threads and the Python package for that time."""
import os
import subprocess

from . import build, environment, package
from .places import PYTHON, ROOT, step


def commands():
    """{name: command} of the soak programs."""
    found = {"kernels": [build.program("release", "test_soak")]}
    if package.targets():
        found["Python"] = [PYTHON, os.path.join(ROOT, "tests", "soak", "soak.py")]
    return found


def soak(options):
    environment.ensure(*environment.PACKAGE, "test")
    build.configure("release", ["TESTS"] + environment.parts())
    build.build("release", ["test_soak"] + package.targets())
    child = package.importing(POLYHEAD_SOAK_SECONDS=str(options.soak * 60), POLYHEAD_SWEEP_SEED=build.head_commit())
    step("soak, %g minutes" % options.soak)
    running = {name: subprocess.Popen(words, env=child, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for name, words in commands().items()}
    failed = []
    for name, process in running.items():
        text = process.communicate()[0]
        print("%s:\n%s" % (name, text), end="", flush=True)
        if process.returncode != 0:
            failed.append(name)
            print("FAILED soak of %s (exit status %d)" % (name, process.returncode))
    print("%d soaks passed, %d failed" % (len(running) - len(failed), len(failed)), flush=True)
    return 1 if failed else 0

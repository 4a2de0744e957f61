"""The subcommand bench autoschedulers: builds its program, then runs bench/autoschedulers.py."""
import os
import shlex
import sys

from . import build, environment
from .places import PYTHON, ROOT, call, step
from .places import environment as child_environment

PROGRAM = "polyhead_bench"


def bench(options):
    environment.ensure("build", "arrays", "plots", "bench")
    build.configure(parts=["BENCH"])
    build.build("release", [PROGRAM], quiet=build.ninja_idle("release", [PROGRAM]))
    command = [PYTHON, os.path.join(ROOT, "bench", "autoschedulers.py"), "--program", build.program("release", PROGRAM)]
    for name in ("rounds", "threads", "limit", "filter", "json"):
        value = getattr(options, name)
        if value is not None:
            command += ["--" + name, os.path.abspath(value) if name == "json" else value]
    child = child_environment()
    child["PYTHONPATH"] = os.path.join(ROOT, "bench", "peers")
    child["POLYHEAD_COMMAND"] = shlex.join(["./polyhead"] + sys.argv[1:])
    step("bench autoschedulers")
    return call(command, check=False, env=child)

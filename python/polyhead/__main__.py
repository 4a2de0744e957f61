"""python -m polyhead COMMAND: the commands of an installed package."""
from __future__ import annotations

import importlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from . import _core
from .env_command import generator

USAGE = """\
usage: python -m polyhead COMMAND [argument ...]

commands:
  generate    write NAME.a, NAME.h and NAME.json for one problem, or with --from config.json for all attention of a model
  tune        measure tilings of a problem on this machine, and keep the best as tuning records
  explain     say which variant of a kernel a call runs, and why not the variants before it
  prune       rank the heads of a layer on your data, and write it without those that should go
  env         print versions, CPU, caches and drivers, for a report of a fault
  cmake-dir   print the folder for CMAKE_PREFIX_PATH: find_package(polyhead) finds libraries, headers and generator there

COMMAND --help prints the arguments of a command.
"""


PROGRAMS = {"env": ".env_command", "explain": ".explain_command", "prune": ".prune_command", "tune": ".tuning.command"}


def refused(command: str, sentence: str, extra: str) -> int:
    print("polyhead %s: %s: pip install 'polyhead[%s]'" % (command, sentence, extra), file=sys.stderr)
    return 1


def run(words: Sequence[str]) -> int:
    command, arguments = (words[0], list(words[1:])) if words else ("help", [])
    if command == "generate" and any(word.partition("=")[0] == "--from" for word in arguments):
        return int(importlib.import_module(".models.command", __package__).main(arguments))
    if command == "generate":
        if not _core.environment()["halide_found"]:
            return refused("generate", "it needs Halide 21", "generate")
        return subprocess.call([generator(), *arguments])
    if command == "cmake-dir":
        print(pathlib.Path(__file__).resolve().parent)
        return 0
    if command not in PROGRAMS:
        print(USAGE, end="", file=sys.stdout if command in ("help", "-h", "--help") else sys.stderr)
        return 0 if command in ("help", "-h", "--help") else 2
    try:
        return int(importlib.import_module(PROGRAMS[command], __package__).main(arguments))
    except ModuleNotFoundError as error:
        return refused(command, "it needs the package %s" % error.name, command)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # of the processes that a command starts: not the current folder
    sys.exit(run(sys.argv[1:]))

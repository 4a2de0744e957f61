"""Help and version without set-up: committed texts of programs that are built later; `check` and a test compare them."""
import os
import re
import subprocess

from . import build, package
from .places import PYTHON, ROOT

FOLDER = os.path.join(ROOT, "tools", "command", "help")
MODULES = {"explain": "polyhead.explain_command", "prune": "polyhead.prune_command", "tune": "polyhead.tuning.command",
           "generate_from": "polyhead.models.command"}  # by name of the text
COMMANDS = ("generate", "explain", "prune", "tune")  # commands whose options belong to other programs


def version():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"^ +VERSION ([\d.]+)", file.read(), flags=re.M).group(1)


def path(command):
    return os.path.join(FOLDER, command + ".txt")


def committed(command):
    with open(path(command), encoding="utf-8") as file:
        return file.read()


def of_a_model(arguments):
    """Whether these arguments of generate are for the program that makes all kernels of a model."""
    return any(word.partition("=")[0] == "--from" for word in arguments)


def answer(argv):
    """The text that these arguments ask for, or None if a program must be built for it."""
    if argv[:1] in (["--version"], ["version"]) or (argv[:1] and argv[0] in COMMANDS and "--version" in argv[1:]):
        return "polyhead %s\n" % version()
    if argv[:1] and argv[0] in COMMANDS and ("-h" in argv[1:] or "--help" in argv[1:]):
        return committed("generate_from" if argv[0] == "generate" and of_a_model(argv[1:]) else argv[0])
    return None


def printed(words, variables):
    """The help that a program prints, 100 columns wide."""
    done = subprocess.run(words + ["--help"], stdout=subprocess.PIPE, text=True, check=True, env=dict(variables, COLUMNS="100", NO_COLOR="1"))
    return done.stdout


def meaning(text):
    """The parts that must agree: the options, and the generator's table of knobs. The layout may differ with the versions of libraries."""
    return sorted(set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", text))), text.partition("\nKnobs of ")[2].strip()


def programs():
    """{command: words that run it} of the programs that are built."""
    found = {}
    generator = build.find_program("release", "polyhead-generate")
    if generator:
        found["generate"] = [generator]
    if os.path.isdir(os.path.join(build.directory("release"), "python", "polyhead")):
        found.update((command, [PYTHON, "-m", module]) for command, module in MODULES.items())
    return found


def check(fix):
    """Compares the committed texts with the output of the programs. The test compares those that are not built here."""
    good = True
    variables = package.importing(PYTHONSAFEPATH="1")
    for command, words in programs().items():
        now = printed(words, variables)
        if meaning(now) == meaning(committed(command) if os.path.exists(path(command)) else ""):
            continue
        if fix:
            with open(path(command), "w", encoding="utf-8") as file:
                file.write(now)
        else:
            print("%s: differs from the output of `polyhead %s --help`; ./polyhead check --fix writes it" % (os.path.relpath(path(command), ROOT), command))
            good = False
    return good

"""Paths in the checkout, and how a child process is started so that it writes nothing outside of the checkout."""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
BUILD = os.path.join(ROOT, "build")


class Failure(Exception):
    """One sentence for the user."""


def tool(name):
    return os.path.join(VENV, "bin", name)


def environment():
    """The caller's environment, changed so that children write their caches into .venv."""
    env = dict(os.environ)
    for name in ("CACHE", "DATA", "STATE"):
        env["XDG_%s_HOME" % name] = os.path.join(VENV, "xdg", name.lower())
    env.update(PIP_CACHE_DIR=os.path.join(VENV, "xdg", "pip"), PIP_DISABLE_PIP_VERSION_CHECK="1", PYTHONDONTWRITEBYTECODE="1",
               MPLCONFIGDIR=os.path.join(VENV, "xdg", "matplotlib"))
    # Folders of build/, and other projects in tests, share objects: ccache makes paths relative to the checkout and ignores the folder in which
    # the compiler runs. Halide's header is precompiled.
    env.update(CCACHE_DIR=os.path.join(BUILD, "ccache"), CCACHE_BASEDIR=ROOT, CCACHE_NOHASHDIR="1", CCACHE_MAXSIZE="2G",
               CCACHE_SLOPPINESS="pch_defines,time_macros")
    if shutil.which("ccache"):
        env.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", "ccache")
    # pip asks `rustc --version` for its user agent, and rustup's rustc makes a folder in an empty home folder.
    env["RUSTUP_HOME"] = os.path.join(VENV, "xdg", "rustup")
    env["PATH"] = os.path.join(VENV, "bin") + os.pathsep + env.get("PATH", os.defpath)
    if not env.get("HOME"):
        env["HOME"] = os.path.join(VENV, "xdg")
    for name in ("PYTHONHOME", "PYTHONPATH", "HL_TARGET", "HL_JIT_TARGET"):
        env.pop(name, None)
    return env


def step(text):
    print("\033[1m== %s\033[0m" % text if sys.stdout.isatty() else "== %s" % text, flush=True)


def call(command, check=True, **options):
    """Runs a command with the output on the terminal; returns its exit status."""
    sys.stdout.flush()
    options.setdefault("env", environment())
    options.setdefault("cwd", ROOT)
    status = subprocess.call(command, **options)
    if check and status != 0:
        raise subprocess.CalledProcessError(status, [os.path.basename(command[0])] + command[1:])
    return status


def output(command, **options):
    """The standard output of a command, or None when it fails."""
    options.setdefault("env", environment())
    options.setdefault("cwd", ROOT)
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def jobs():
    """Parallel jobs: the cores this process may use; POLYHEAD_JOBS overrides."""
    asked = os.environ.get("POLYHEAD_JOBS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def numbers_of_part(text):
    """(i, n) of the text "i/n": the i-th of n parts. Without a text (1, 1)."""
    found = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", text or "1/1")
    if not found or int(found[1]) > int(found[2]):
        raise Failure("part: found '%s', expected I/N with 1 <= I <= N" % text)
    return int(found[1]), int(found[2])


def part_of(items, text):
    """Every n-th of the items, from the i-th on: the part "i/n" of a list that is worked through in n runs. Without a text, all."""
    i, n = numbers_of_part(text)
    return items[i - 1::n]


def tracked(*patterns):
    """Files of the project (tracked by git or new, never ignored ones), relative to the root."""
    listed = output(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"] + list(patterns))
    if listed is None:
        raise Failure("git ls-files failed; this needs a git checkout")
    return sorted(name for name in set(listed.split("\0")) if name and os.path.isfile(os.path.join(ROOT, name)))

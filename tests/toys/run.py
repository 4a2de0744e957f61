"""Tries a toy: applies tests/toys/NAME.patch to a copy of the tree, builds generator, runtime and Python module there, and runs NAME.py.

    .venv/bin/python tests/toys/run.py NAME
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from command import faults  # noqa: E402

BUILD = """
import sys
sys.path.insert(0, "tools")
from command import build
build.configure("release", ["PYTHON"])
build.build("release", ["polyhead", "polyhead-generate", "polyhead_python"])
"""


def main(name):
    copy = os.path.join(ROOT, "build", "toys", name)
    faults.copy_tree(copy)
    # git must not find the repository around the copy: it would take the paths of the patch for ones outside, and apply nothing.
    subprocess.run(["git", "apply", os.path.join(HERE, name + ".patch")], cwd=copy, check=True, env=dict(os.environ, GIT_CEILING_DIRECTORIES=os.path.dirname(copy)))
    subprocess.run([sys.executable, "-c", BUILD], cwd=copy, check=True)
    environment = dict(os.environ, PYTHONPATH=os.path.join(copy, "build", "release", "python"))
    return subprocess.run([sys.executable, os.path.join(HERE, name + ".py")], cwd=copy, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

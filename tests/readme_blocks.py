"""Runs the code blocks of README.md as a reader would who pastes them: the C++ program is the example's file, the shell lines make it and run it,
the Python block prints what float64 says."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def blocks():
    """Language -> the blocks in that language."""
    found = {}
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S):
        found.setdefault(language, []).append(text)
    return found


def only(found, language):
    assert len(found.get(language, [])) == 1, "README.md: found %d blocks in %s, expected 1" % (len(found.get(language, [])), language)
    return found[language][0]


def run(command, folder, **environment):
    done = subprocess.run(command, cwd=folder, env=dict(os.environ, **environment), capture_output=True, text=True, check=False)
    assert done.returncode == 0, "%s: exit status %d\n%s%s" % (command, done.returncode, done.stdout, done.stderr)
    return done.stdout


def test_cpp(shell, options, folder):
    """In an empty folder that has what the lines name: the command, the headers, the example and the built runtime."""
    for name in ("runtime", "examples"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build" / "release" / "runtime").mkdir(parents=True)
    (folder / "build" / "release" / "runtime" / "libpolyhead.a").symlink_to(options.library)
    (folder / "polyhead").write_text("#!/bin/sh\nshift\nexec '%s' \"$@\"\n" % options.generate, encoding="utf-8")
    (folder / "polyhead").chmod(0o755)
    printed = run(["sh", "-e", "-c", shell], folder)
    assert "ok: out[0] = 0.5" in printed, printed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--generate", required=True, type=os.path.abspath)
    parser.add_argument("--library", required=True, type=os.path.abspath)
    parser.add_argument("--python", type=os.path.abspath, help="folder of the Python package")
    options = parser.parse_args()
    found = blocks()
    assert only(found, "cpp") == (ROOT / "examples" / "001_sdpa" / "main.cpp").read_text(encoding="utf-8"), "README.md shows another program"
    with tempfile.TemporaryDirectory() as folder:
        test_cpp(only(found, "sh"), options, pathlib.Path(folder))
        if options.python:
            printed = run([sys.executable, "-c", only(found, "python")], folder, PYTHONPATH=options.python)
            assert printed == "(2, 8, 100, 64) 0.5\n", printed
    # tests/install/drive.py builds the CMake lines.
    assert set(found) == {"cpp", "sh", "python", "cmake"}, "README.md: found a block in a language that no test runs: %s" % ", ".join(found)
    print("blocks of README.md: %d" % sum(len(texts) for texts in found.values()))


if __name__ == "__main__":
    main()

"""Runs the code blocks of README.md and of guides as a reader would who pastes them, each document in an empty folder of its own. Programs are
written to the file that their first line names, shell lines make and run them, Python blocks print what float64 says."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GUIDES = ("first_kernel", "variants", "shipping")
# What a reader is told that he will see.
PROMISED = {"first_kernel": "ok: out[0] = 1.4472\n", "variants": "serves seq_len_q 0 to ", "shipping": "ok: out[0] = 0.25\n"}


def blocks(path):
    """(language, text) of each block."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.M | re.S)


def only(found, language):
    texts = [text for name, text in found if name == language]
    assert len(texts) == 1, "README.md: found %d blocks in %s, expected 1" % (len(texts), language)
    return texts[0]


def run(command, folder, **environment):
    done = subprocess.run(command, cwd=folder, env=dict(os.environ, **environment), capture_output=True, text=True, check=False)
    assert done.returncode == 0, "%s: exit status %d\n%s%s" % (command, done.returncode, done.stdout, done.stderr)
    return done.stdout


def checkout(options, folder):
    """What the lines name: the command, the headers, the examples and the built runtime."""
    for name in ("runtime", "examples"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build" / "release" / "runtime").mkdir(parents=True)
    (folder / "build" / "release" / "runtime" / "libpolyhead.a").symlink_to(options.library)
    explain = "PYTHONPATH='%s' '%s' -m polyhead.explain_command" % (options.python, sys.executable)
    (folder / "polyhead").write_text("#!/bin/sh\ncommand=$1\nshift\ncase $command in\ngenerate) exec '%s' \"$@\" ;;\nexplain) %s \"$@\" ;;\nesac\n"
                                     % (options.generate, explain), encoding="utf-8")
    (folder / "polyhead").chmod(0o755)


def test_readme(options):
    found = blocks(ROOT / "README.md")
    assert only(found, "cpp") == (ROOT / "examples" / "001_sdpa" / "main.cpp").read_text(encoding="utf-8"), "README.md shows another program"
    with tempfile.TemporaryDirectory() as folder:
        checkout(options, pathlib.Path(folder))
        printed = run(["sh", "-e", "-c", only(found, "sh")], folder)
        assert "ok: out[0] = 0.5" in printed, printed
        if options.python:
            printed = run([sys.executable, "-c", only(found, "python")], folder, PYTHONPATH=options.python)
            assert printed == "(2, 8, 100, 64) 0.5\n", printed
    # tests/install/drive.py builds the CMake lines.
    languages = {language for language, _ in found}
    assert languages == {"cpp", "sh", "python", "cmake"}, "README.md: found a block in a language that no test runs: %s" % ", ".join(languages)
    return len(found)


def test_guide(name, options):
    found, printed = blocks(ROOT / "docs" / "guides" / (name + ".md")), ""
    with tempfile.TemporaryDirectory() as folder:
        checkout(options, pathlib.Path(folder))
        for language, text in found:
            file = re.match(r"(?://|/\*) (\w+\.c(?:pp)?):", text)
            if file:
                pathlib.Path(folder, file.group(1)).write_text(text, encoding="utf-8")
            elif language == "sh" and (options.python or "polyhead explain" not in text):
                printed += run(["sh", "-e", "-c", text], folder)
            else:
                assert language == "sh", "%s: a block in %s that no test runs" % (name, language)
    assert PROMISED[name] in printed or not options.python, printed
    return len(found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--generate", required=True, type=os.path.abspath)
    parser.add_argument("--library", required=True, type=os.path.abspath)
    parser.add_argument("--python", type=os.path.abspath, help="folder of the Python package")
    options = parser.parse_args()
    count = test_readme(options) + sum(test_guide(name, options) for name in GUIDES)
    print("blocks of README.md and guides: %d" % count)


if __name__ == "__main__":
    main()

"""Runs the code blocks of README.md and of guides as a reader would who pastes them, each document in an empty folder of its own. Programs are
written to the file that their first line names, shell lines make and run them, Python blocks print what float64 says. Parts of programs are
compiled, or run, with what their text says is there. CMake blocks: tests/install/drive.py."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from tier import sampled

ROOT = pathlib.Path(__file__).resolve().parent.parent
GUIDES = ("embedding", "first_kernel", "variants", "shipping")  # as a whole
PARTS = ("caches", "cmake", "expressions", "models", "pruning", "python", "training", "tuning")  # block by block
# The output that a document promises.
PROMISED = {"first_kernel": "ok: out[0] = 1.4472\n", "variants": ": serves seq_len_q ", "shipping": "ok: out[0] = 0.25\n",
            "embedding": "ok: out[0] = 0.5\n"}


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
    program = [line.strip() for line in (ROOT / "examples" / "001_sdpa" / "main.cpp").read_text(encoding="utf-8").splitlines()]
    shown = [line.strip() for line in only(found, "cpp").splitlines()]
    assert any(program[i:i + len(shown)] == shown for i in range(len(program))), "README.md shows lines that examples/001_sdpa/main.cpp does not have"
    if options.python:
        with tempfile.TemporaryDirectory() as folder:
            printed = run([sys.executable, "-c", only(found, "python")], folder, PYTHONPATH=options.python)
        assert printed == "(2, 8, 100, 64) 0.5\n", printed
    # tests/install/drive.py builds the CMake lines; the text is what ./polyhead demo printed.
    languages = {language for language, _ in found}
    assert languages == {"cpp", "python", "cmake", "text"}, "README.md: found a block in a language that no test runs: %s" % ", ".join(languages)
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


# What the text of a guide takes as given, in Python.
GIVEN = {
    "caches": "",
    "models": "",
    "python": """
import numpy, polyhead
rng = numpy.random.default_rng(1)
def tensor(*shape): return rng.standard_normal(shape, dtype="float32")
query, key, value = q, k, v = tensor(1, 12, 5, 64), tensor(1, 12, 9, 64), tensor(1, 12, 9, 64)
lengths, n = numpy.array([7], "int32"), 3
cache_key, cache_value, new_key, new_value = tensor(1, 12, 16, 64), tensor(1, 12, 16, 64), tensor(1, 12, 1, 64), tensor(1, 12, 1, 64)
x, state_dict = tensor(2, 10, 384), {"in_proj_weight": tensor(1152, 384), "in_proj_bias": tensor(1152), "out_proj.weight": tensor(384, 384),
                                     "out_proj.bias": tensor(384)}
grad_out, weight = tensor(2, 10, 64), tensor(64, 384)
""",
    "pruning": """
import numpy, polyhead, safetensors.numpy
rng = numpy.random.default_rng(1)
def tensor(*shape): return rng.standard_normal(shape, dtype="float32")
safetensors.numpy.save_file({"in_proj_weight": tensor(288, 96), "in_proj_bias": tensor(288), "out_proj.weight": tensor(96, 96),
                             "out_proj.bias": tensor(96)}, "layer.safetensors")
x, lengths = tensor(2, 7, 96), numpy.array([7, 5], "int32")
""",
    "training": "",
    "tuning": "import polyhead\n",
}
# The same for C++: the code around a part of a program. Whole files have none.
AROUND = """#include <string>
#include <vector>
#include <polyhead/polyhead.h>
void log(const std::string &);
extern const polyhead::Kernel *const my_kernels[];
extern const size_t my_kernels_count;
void part(const std::vector<float> &bias, int heads, polyhead::SdpaArgs &args) {
    (void)bias, (void)heads, (void)args;
%s}
"""


def test_parts(name, options):
    """The Python blocks of a guide, one after another in one process, and each C++ block by the compiler."""
    found = [(language, text) for language, text in blocks(ROOT / "docs" / "guides" / (name + ".md")) if language not in ("cmake", "text")]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "tests" / "install" / "tuned.json", folder)
        python = [text for language, text in found if language == "python"]
        if python and options.python:
            run([sys.executable, "-W", "ignore", "-c", "\n".join([GIVEN[name], *python])], folder, PYTHONPATH=options.python)
        for number, text in enumerate(text for language, text in found if language == "cpp"):
            file = pathlib.Path(folder, "part%d.cpp" % number)
            file.write_text(text if text.startswith("#include") else AROUND % text, encoding="utf-8")
            includes = ["-I%s" % path for path in (ROOT / "runtime" / "include", ROOT / "generators" / "include", *options.include)]
            run(["g++", "-std=c++17", "-fsyntax-only", *includes, str(file)], folder)
    languages = {language for language, _ in found} - {"python", "cpp"}
    assert not languages, "%s: found a block in a language that no test runs: %s" % (name, ", ".join(languages))
    return len(found)


def test_every_guide_is_named():
    documents = {path.stem for path in (ROOT / "docs" / "guides").glob("*.md") if blocks(path)}
    assert documents == {*GUIDES, *PARTS}, "guides with code blocks that no test runs: %s" % (documents ^ {*GUIDES, *PARTS})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--generate", required=True, type=os.path.abspath)
    parser.add_argument("--library", required=True, type=os.path.abspath)
    parser.add_argument("--python", type=os.path.abspath, help="folder of the Python package")
    parser.add_argument("--include", action="append", default=[], help="where Halide's headers are")
    options = parser.parse_args()
    test_every_guide_is_named()
    count = test_readme(options)
    count += sum(test_guide(name, options) for name in sampled("guides", GUIDES, 3))
    count += sum(test_parts(name, options) for name in sampled("parts", PARTS, 3))
    print("blocks of README.md and guides: %d" % count)


if __name__ == "__main__":
    main()

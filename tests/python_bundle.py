"""Ready kernels beside the package: sdpa() takes them where no compiler, linker and cache is, and says what to install for others. And the
commands of an installed package."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import polyhead
from polyhead import _core

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = pathlib.Path(_core.__file__).parent
LEVELS = "x86-64-v3,x86-64"
PROBLEMS = ["", "--causal bottom_right", "--mask bool", "--causal bottom_right --mask bool"]
CALLS = """
import itertools, sys
import numpy as np
import polyhead
from polyhead.reference import attention, visible
rng = np.random.default_rng(1)
worst = 0
for kv_heads, group, causal, masked, rows, lengths in itertools.product((1, 2), (1, 3, 8), (False, True), (False, True), (1, 5, 40), (None, [7, 33])):
    query, key, value = (rng.standard_normal((2, heads, length, 16)).astype(np.float32)
                         for heads, length in ((kv_heads * group, rows), (kv_heads, 40), (kv_heads, 40)))
    mask = rng.random((2, 1, rows, 40)) < 0.8 if masked else None
    seen = visible(rows, 40, None if lengths is None else np.array(lengths, np.int32), causal=causal)
    out = polyhead.sdpa(query, key, value, mask, is_causal=causal, kv_lengths=lengths)
    worst = max(worst, float(abs(out - attention(query, key, value, seen if mask is None else seen & mask).out).max()))
print("worst %.1e" % worst)
print(polyhead.explain(query, key, value, kv_lengths=lengths).splitlines()[0])
try:
    polyhead.sdpa(query, key, value, softcap=2.0)
except polyhead.Error as error:
    print(error)
"""


def in_a_process(folder, words, **environment):
    """Nothing is found there: no program, no folder for files, no cache."""
    nowhere = {"PATH": "/dev/null/nowhere", "TMPDIR": "/dev/null/nowhere", "HOME": "/dev/null/nowhere", "XDG_CACHE_HOME": ""}
    path = os.pathsep.join([str(folder), *(one for one in sys.path if one.endswith("site-packages"))])
    done = subprocess.run([sys.executable, "-P", *words] if sys.version_info >= (3, 11) else [sys.executable, *words], capture_output=True, text=True,
                          timeout=300, check=False, env={**os.environ, **nowhere, "POLYHEAD_CACHE": "", "PYTHONPATH": path, **environment})
    return done.stdout + done.stderr


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        copy = cls.folder / "polyhead"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "polyhead-generate"))
        kernels = []
        for flags in PROBLEMS:
            kernels += _core.bundle_entries(["--op", "sdpa", "--head-dim", "16", "--kv-lengths", "--free-group-size", *flags.split(), "--target", LEVELS])
        cls.bundle = copy / "kernels.bundle"
        _core.write_bundle(str(cls.bundle), kernels)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_calls_without_a_compiler_are_right(self):
        for limit in ("", "none"):
            said = in_a_process(self.folder, ["-c", CALLS], POLYHEAD_CPU_FEATURES=limit)
            worst, line, refusal = said.splitlines()
            self.assertLess(float(worst.split()[1]), 1e-5, said)
            self.assertIn("--free-group-size ", line)
            self.assertIn("--kv-lengths", line)
            self.assertRegex(refusal, "^TMPDIR: found ")  # the kernel with a softcap is in no bundle, and nothing can be compiled

    def test_a_user_may_know_what_runs(self):
        call = "import polyhead, numpy as np; x = np.ones((1, 3, 4, 16), np.float32); polyhead.sdpa(x, x, x); polyhead.sdpa(x, x, x)"
        self.assertEqual(in_a_process(self.folder, ["-c", call]), "")
        told = in_a_process(self.folder, ["-c", call], POLYHEAD_VERBOSE="1").splitlines()
        for line in told:
            self.assertRegex(line, "^polyhead: .*--op sdpa --free-group-size --head-dim 16 --kv-lengths .*, [0-9]+ (ms|us)$")
        self.assertEqual([line.split(": ")[1] for line in told if "ready" in line], ["ready in the bundle"] * sum("ready" in line for line in told))
        calls = [line for line in told if "kernel: sdpa, batch 1, seq_len_q 4, seq_len_kv 4, " in line]
        self.assertEqual(len(calls), 2, told)
        self.assertRegex(calls[0], "; runs polyhead_kernel_[0-9]+: target x86-64-linux")
        self.assertGreater(len(told), 2)

    def test_a_bundle_of_another_version_or_a_damaged_one_is_as_none(self):
        whole = self.bundle.read_bytes()
        try:
            for bytes_ in (b"", whole[:200], whole.replace(b"polyhead bundle 1", b"polyhead bundle 2"), whole[:-300] + b"x" * 300):
                self.bundle.write_bytes(bytes_)
                said = in_a_process(self.folder, ["-c", CALLS])
                self.assertRegex(said, "worst|Error: TMPDIR: found ")
                self.assertNotIn("Segmentation", said)
        finally:
            self.bundle.write_bytes(whole)

    def test_commands(self):
        facts = in_a_process(self.folder, ["-m", "polyhead", "env"])
        for name in ("version", "CPU features", "Halide found", "folder", "threads"):
            self.assertRegex(facts, r"(?m)^  %s +\S" % name, facts)
        self.assertIn('"polyhead": {', in_a_process(self.folder, ["-m", "polyhead", "env", "--json"]))
        self.assertEqual(in_a_process(self.folder, ["-m", "polyhead", "cmake-dir"]), "%s\n" % (self.folder / "polyhead"))
        self.assertIn("commands:", in_a_process(self.folder, ["-m", "polyhead"]))
        self.assertIn("usage: python -m polyhead COMMAND", in_a_process(self.folder, ["-m", "polyhead", "nothing"]))
        self.assertIn("usage: polyhead explain", in_a_process(self.folder, ["-m", "polyhead", "explain", "--help"]))

    def test_the_table_of_wheels(self):
        sys.path.insert(0, str(HERE.parent / "tools"))
        from command import wheel
        problems = wheel.problems()
        self.assertEqual(len(problems), 48)
        self.assertEqual(len({" ".join(flags) for flags in problems}), 48)
        self.assertEqual(wheel.expanded("a {b,c} {,d}"), ["a b", "a b d", "a c", "a c d"])
        # One kernel of each list of targets, and the fields that sdpa() makes of its calls.
        for flags in problems[0], problems[-1]:
            shown = subprocess.run([PACKAGE / "polyhead-generate", "k", *flags, "--list-tilings"], capture_output=True, text=True, check=False)
            self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertEqual({re.sub("-", "_", word[2:]) for flags in problems for word in flags if word.startswith("--")} - {"op", "target"},
                         {"free_group_size", "head_dim", "dtype", "kv_lengths", "causal", "mask"})


if __name__ == "__main__":
    assert polyhead.__version__
    unittest.main()

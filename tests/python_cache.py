"""Kernels in memory: how many stay, that the others leave, and that none leaves under a call; threads at the end of the interpreter."""
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import polyhead
from python_lifetimes import in_a_process

X = np.random.default_rng(1).standard_normal((1, 2, 6, 8)).astype(np.float32)


def run(number):
    """A call of a kernel of its own for each number."""
    out = polyhead.sdpa(X, X, X, expression="score = score + %d.0 * kv" % number)
    return out.tobytes()


def loaded():
    """Mapped code of compiled kernels: of no file, or of one of the system's linker."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        lines = [line.split() for line in maps]
    return sum("x" in line[1] and (len(line) == 5 or "/kernel.so" in line[5]) for line in lines)


def fill():
    """More kernels than stay; prints what is mapped after each half."""
    counts = []
    for number in range(12):
        run(number)
        counts.append(loaded())
    polyhead.clear_cache()
    print(max(counts[:6]), max(counts), loaded())


def evict_under_calls():
    """Threads run kernels of few objects and of sdpa() while another compiles, so that each leaves the cache all the time."""
    expected = [run(number) for number in range(3)]
    kernels = [polyhead.compile("sdpa", num_heads=2, head_dim=8, expression="score = score + %d.0 * kv" % number) for number in range(3)]
    wrong, ends = [], time.monotonic() + 6

    def work():
        while time.monotonic() < ends:
            for number, kernel in enumerate(kernels):
                if kernel(query=X, key=X, value=X).tobytes() != expected[number]:
                    wrong.append(number)

    def call():
        while time.monotonic() < ends:
            if run(1) != expected[1]:
                wrong.append("sdpa")

    def clear():
        while time.monotonic() < ends:
            polyhead.clear_cache()
            time.sleep(0.01)

    threads = [threading.Thread(target=f) for f in (work, work, call, call, clear)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del kernels
    polyhead.clear_cache()
    print(wrong, loaded())


class Memory(unittest.TestCase):
    def test_so_many_stay(self):
        half, whole, rest = map(int, in_a_process("import python_cache; python_cache.fill()", POLYHEAD_KERNELS_KEPT="3").split())
        self.assertGreater(half, 0)
        self.assertEqual(whole, half)
        self.assertEqual(rest, 0)

    def test_a_kernel_may_leave_the_cache_while_it_runs(self):
        self.assertEqual(in_a_process("import python_cache; python_cache.evict_under_calls()", POLYHEAD_KERNELS_KEPT="1"), "[] 0\n")

    def test_an_object_keeps_its_kernel(self):
        kernel = polyhead.compile("sdpa", num_heads=2, head_dim=8)
        expected = kernel(query=X, key=X, value=X).tobytes()
        polyhead.clear_cache()
        self.assertEqual(kernel(query=X, key=X, value=X).tobytes(), expected)
        self.assertIsNot(polyhead.compile("sdpa", num_heads=2, head_dim=8)._core, kernel._core)

    def test_the_number_is_documented(self):
        self.assertEqual(in_a_process("import polyhead._core; print(polyhead._core.kernels_kept)", POLYHEAD_KERNELS_KEPT=""), "256\n")
        self.assertIn("256", polyhead.clear_cache.__doc__)


class Disk(unittest.TestCase):
    """A process finds what another one compiled; POLYHEAD_LIMIT_MEGABYTES=1 refuses each compilation."""

    CALL = "import numpy, polyhead\nx = numpy.ones((1, 2, 7, 8), numpy.float32)\ntry:\n print(abs(polyhead.sdpa(x, x, x) - 1).max() < 1e-5)\nexcept polyhead.Error as e:\n print(e)"

    def call(self, **environment):
        return in_a_process(self.CALL, **environment)

    def test_only_the_first_process_compiles(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o700)
            refused = self.call(POLYHEAD_CACHE=folder, POLYHEAD_LIMIT_MEGABYTES="1")
            self.assertIn("limit_megabytes", refused)
            self.assertEqual(self.call(POLYHEAD_CACHE=folder), "True\n")
            self.assertEqual(self.call(POLYHEAD_CACHE=folder, POLYHEAD_LIMIT_MEGABYTES="1"), "True\n")
            self.assertEqual(self.call(POLYHEAD_CACHE="off", POLYHEAD_LIMIT_MEGABYTES="1"), refused)
            for entry in os.scandir(folder):  # each is damaged
                with open(entry.path, "r+b") as file:
                    file.seek(entry.stat().st_size // 2)
                    file.write(b"damage")
            self.assertEqual(self.call(POLYHEAD_CACHE=folder, POLYHEAD_LIMIT_MEGABYTES="1"), refused)
            self.assertEqual(self.call(POLYHEAD_CACHE=folder), "True\n")

    def test_another_compiler_does_not_find_them(self):
        """A copy of the package whose compiler has one byte of its build id changed, as after any change of its code."""
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o700)
            self.assertEqual(self.call(POLYHEAD_CACHE=folder), "True\n")
            copy = os.path.join(folder, "package")
            shutil.copytree(os.path.dirname(polyhead.__file__), os.path.join(copy, "polyhead"))
            compiler = os.path.join(copy, "polyhead", "polyhead-generate")
            with open(compiler, "r+b") as file:
                content = file.read()
                file.seek(content.index(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0") + 16)
                file.write(bytes([content[file.tell()] ^ 1]))
            changed = {"PYTHONPATH": copy, "POLYHEAD_CACHE": folder}
            self.assertIn("limit_megabytes", self.call(POLYHEAD_LIMIT_MEGABYTES="1", **changed))
            self.assertEqual(self.call(**changed), "True\n")
            self.assertEqual(self.call(POLYHEAD_LIMIT_MEGABYTES="1", **changed), "True\n")

    def test_halide_is_not_in_the_process(self):
        self.assertEqual(in_a_process("import polyhead; print('libHalide' in open('/proc/self/maps').read())"), "False\n")
        linked = subprocess.run(["ldd", polyhead._core.__file__], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertNotIn("libHalide", linked)


class End(unittest.TestCase):
    def test_daemon_threads_in_kernels(self):
        """The interpreter ends them where they ask for its lock: the process must not."""
        lines = ("import threading, time, numpy, polyhead\nx = numpy.ones((2, 4, 256, 64), numpy.float32)\npolyhead.sdpa(x, x, x)\n"
                 "def work():\n    while True:\n        polyhead.sdpa(x, x, x)\n"
                 "for _ in range(3):\n    threading.Thread(target=work, daemon=True).start()\ntime.sleep(0.2)\n")
        for _ in range(3):
            in_a_process(lines)


if __name__ == "__main__":
    if not os.path.exists("/proc/self/maps"):
        sys.exit(print("NOT RUN: the whole test: no /proc/self/maps"))
    unittest.main()

"""The compiler of the Python package is another process: limits, crashes and interrupts are exceptions, and the process goes on."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

os.environ["POLYHEAD_CACHE"] = "off"  # a compiler is wanted, also where the disk has the kernel
import polyhead  # noqa: E402
from program_output import own_words  # noqa: E402

ONE_KEY = np.arange(2 * 8, dtype=np.float32).reshape(1, 2, 1, 8)
names = iter(range(1000))


def fresh(**words):
    """A problem that no test before has compiled."""
    return polyhead.compile("sdpa", num_heads=2, head_dim=8, target="host", expression="score = score * %d" % (next(names) + 2), **words)


def compilers(asker=None):
    """Processes that compile for this one, or for another."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"--compile-job" in (process / "cmdline").read_bytes() and "\nPPid:\t%d\n" % (asker or os.getpid()) in (process / "status").read_text():
                found.append(int(process.name))
    return found


@contextlib.contextmanager
def while_compiling(action):
    """Calls action(process) once, as soon as there is a compiler."""
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            for process in compilers():
                action(process)
                return
            time.sleep(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class Limits(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(compilers(), [])
        for name in ("POLYHEAD_LIMIT_SECONDS", "POLYHEAD_LIMIT_MEGABYTES"):
            os.environ.pop(name, None)
        np.testing.assert_allclose(fresh()(query=ONE_KEY, key=ONE_KEY, value=ONE_KEY), ONE_KEY, rtol=1e-5)

    def refused(self, sentence, call):
        with self.assertRaises(polyhead.Error) as caught:
            call()
        self.assertIn(sentence, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_time_and_memory(self):
        self.refused("limit_seconds: the compiler took more than 0.001 s", lambda: fresh(limit_seconds=0.001))
        self.refused("limit_megabytes: the compiler took more than 2 MB", lambda: fresh(limit_megabytes=2))
        os.environ["POLYHEAD_LIMIT_SECONDS"] = "0.001"
        self.refused("limit_seconds", fresh)
        self.refused("limit_seconds", lambda: polyhead.sdpa(ONE_KEY, ONE_KEY, ONE_KEY, expression="score = score / 3"))
        fresh(limit_seconds=0)

    def test_a_crash(self):
        for number in (signal.SIGSEGV, signal.SIGKILL):
            with while_compiling(lambda process: os.kill(process, number)):  # noqa: B023
                self.refused("the compiler crashed (signal %d)" % number, fresh)

    def test_an_interrupt(self):
        with while_compiling(lambda process: os.kill(os.getpid(), signal.SIGINT)), self.assertRaises(KeyboardInterrupt):
            fresh()

    def test_an_interrupt_leaves_those_who_wait(self):
        """The main thread compiles and is interrupted; another thread that needs the same kernel gets it."""
        words = dict(num_heads=2, head_dim=8, expression="score = score * 7777")
        made = []

        def interrupt(process):
            thread = threading.Thread(target=lambda: made.append(polyhead.compile("sdpa", **words)))
            thread.start()
            made.append(thread)
            os.kill(os.getpid(), signal.SIGINT)

        with while_compiling(interrupt), self.assertRaises(KeyboardInterrupt):
            polyhead.compile("sdpa", **words)
        made[0].join()
        self.assertEqual(len(made), 2)
        np.testing.assert_allclose(made[1](query=ONE_KEY, key=ONE_KEY, value=ONE_KEY), ONE_KEY, rtol=1e-5)

    def ended(self, code, package=None, action=lambda child: None):
        """Exit status and standard error of a Python process of its own, in a process group of its own."""
        environment = {**os.environ, "PYTHONPATH": str(package or pathlib.Path(polyhead.__file__).absolute().parent.parent)}
        child = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
        action(child)
        said = own_words(child.communicate(timeout=300)[1])
        return child.returncode, said

    def test_the_terminal_interrupts_all_processes(self):
        def interrupt(child):
            while child.poll() is None:
                if compilers(child.pid):
                    os.killpg(child.pid, signal.SIGINT)
                    return

        code = """if True:
            import sys, polyhead
            try:
                polyhead.compile("sdpa", num_heads=2, head_dim=8)
            except KeyboardInterrupt:
                polyhead.compile("sdpa", num_heads=2, head_dim=8)
                sys.exit(7)"""
        self.assertEqual(self.ended(code, action=interrupt), (7, ""))

    def test_no_compiler(self):
        code = """if True:
            import sys, polyhead
            try:
                polyhead.compile("sdpa", num_heads=2, head_dim=8)
            except polyhead.Error as error:
                sys.exit(str(error))"""
        package = pathlib.Path(polyhead.__file__).absolute().parent
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copytree(package, pathlib.Path(folder, "polyhead"), ignore=shutil.ignore_patterns("polyhead-generate", "__pycache__"))
            status, said = self.ended(code, folder)
        self.assertEqual(status, 1)
        self.assertRegex(said, r"cannot start the compiler %s/polyhead-generate: No such file or directory[^\n]*\n\Z" % copy)

    def test_others_run_meanwhile(self):
        turns = []
        with while_compiling(lambda process: turns.extend(time.monotonic() for _ in range(100))):
            fresh()
        self.assertEqual(len(turns), 100)


if __name__ == "__main__":
    unittest.main()

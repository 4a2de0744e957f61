"""The N-th file operation of polyhead-generate fails, or a signal comes before it, for every N: the old library whole or the new one, nothing else."""
import argparse
import contextlib
import errno
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from failing_calls import Shim
from tier import ALL, sampled

OLD = "--op linear --embed-dim 7 --out-features 20 --target x86-64-linux".split()
NEW = "--op linear --embed-dim 5 --out-features 36 --bias --target x86-64-linux".split()
FILES = ["k.a", "k.h", "k.json"]
OPTIONS = argparse.Namespace()


def contents(folder):
    """{name: bytes} of a folder and everything below; None where there is none."""
    if not folder.exists():
        return None
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


class Failures(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name).resolve()
        cls.shim = Shim(cls.folder, cls.folder / "area", OPTIONS.cc)
        cls.out = cls.folder / "area" / "out"
        cls.old, cls.new = cls.made(OLD), cls.made(NEW)

    @classmethod
    def made(cls, arguments):
        shutil.rmtree(cls.out, ignore_errors=True)
        done = cls.generate(arguments)
        assert done.returncode == 0, done.stderr
        return contents(cls.out)

    @classmethod
    def generate(cls, arguments, at=0, fails_with=errno.EIO, what="files", count=False, compiler=False, **how):
        command = [OPTIONS.generate, *([] if arguments[0].startswith("--runtime") else ["k"]), *arguments]
        command += [] if arguments[0].startswith("--runtime") else ["-o", str(cls.out)]
        environment = cls.shim.environment(at, fails_with, what, compiler) if at or count else None
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **how)

    def count(self, what="files", arguments=NEW, compiler=False):
        done = self.generate(arguments, count=True, what=what, compiler=compiler)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return self.shim.counted()

    def start_from(self, files):
        shutil.rmtree(self.out.parent, ignore_errors=True)
        if files is not None:
            self.out.mkdir(parents=True)
            for name, data in files.items():
                (self.out / name).write_bytes(data)

    def sentence(self, done, status=(1,)):
        self.assertIn(done.returncode, status, done.stderr)
        self.assertRegex(done.stderr, r"\Apolyhead generate: [^\n]+\n\Z")

    def sweep(self, offset):
        """Numbers of operations: all of them, or every sixteenth, others in each test and at each commit."""
        total = self.count()
        self.assertGreater(total, 15)
        return sampled("operations %d" % offset, range(1, total + 1), 16)

    def test_one_operation_fails(self):
        reasons = [errno.ENOSPC, errno.EIO, errno.EMFILE]
        failed = 0
        for before in (self.old, None):
            self.start_from(before)
            for at in self.sweep(0 if before else 4):
                self.start_from(before)
                done = self.generate(NEW, at, reasons[at % 3])
                with self.subTest(at=at, before=bool(before), said=done.stderr):
                    if done.returncode == 0:  # it was not needed
                        self.assertEqual((contents(self.out), done.stderr), (self.new, ""))
                    else:
                        failed += 1
                        self.sentence(done)
                        self.assertIn(os.strerror(reasons[at % 3]), done.stderr)
                        self.assertEqual(contents(self.out), before)
                        self.assertEqual(contents(self.out.parent), None if before is None else {"out": None, **{"out/" + n: d for n, d in before.items()}})
        self.assertGreater(failed, 0)  # how many depends on the sample

    def test_killed_before_an_operation(self):
        states = set()
        for before in (self.old, None):
            self.start_from(before)
            for at in self.sweep(1 if before else 5):
                self.start_from(before)
                done = self.generate(NEW, at, -signal.SIGKILL)
                with self.subTest(at=at, before=bool(before)):
                    self.assertEqual(done.returncode, -signal.SIGKILL)
                    found = {n: d for n, d in (contents(self.out) or {}).items() if n in FILES}
                    state = "old" if found == before else "new" if found == self.new else "no header"
                    states.add(state)
                    if state == "no header":
                        self.assertNotIn("k.h", found)
                    again = self.generate(OLD)
                    self.assertEqual((again.returncode, again.stderr), (0, ""))
                    self.assertEqual(contents(self.out), self.old)
        self.assertIn("old", states)

    def test_what_a_killed_run_had_ready_is_put_in_place_first(self):
        """The next run may fail itself; what it finds is whole then."""
        self.start_from(self.old)
        total = self.count()
        seen = set()
        for at in range(total - 9, total + 1):
            self.start_from(self.old)
            self.generate(NEW, at, -signal.SIGKILL)
            killed = contents(self.out)
            done = self.generate(["--op", "linear", "--embed-dim", "5", "--out-features", "36", "--expression-source", "/nowhere"])
            self.assertEqual((done.returncode, contents(self.out)), (1, killed))  # refused before it touches the folder
            self.assertEqual(self.generate(OLD, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))).returncode, 1)
            found = contents(self.out)
            self.assertIn(found, (self.old, self.new), at)
            seen.add(found == self.new)
        self.assertEqual(seen, {True, False})

    def test_a_signal_before_an_operation(self):
        self.start_from(self.old)
        signals = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
        for at in self.sweep(2):
            self.start_from(self.old)
            number = signals[at % 3]
            done = self.generate(NEW, at, -number)
            with self.subTest(at=at, said=done.stderr):
                self.assertEqual((done.returncode, done.stderr), (-number, ""))
                self.assertIn(contents(self.out), (self.old, self.new))
        self.start_from(None)
        self.assertEqual(self.generate(NEW, 20, -signal.SIGTERM).returncode, -signal.SIGTERM)
        self.assertEqual(contents(self.out.parent), None)

    def test_one_allocation_fails(self):
        """Each allocation of the program (from its main() on, because before that no message is possible), and some of its compiler's."""
        self.start_from(self.old)
        first = self.count("memory", ["--help"])
        for compiler, begin in ((False, first), (True, 1)):
            total = self.count("memory", compiler=compiler)
            steps = 5 if not ALL else 100 if compiler else total - begin
            for at in (begin + (total - begin) * i // steps for i in range(steps)):
                self.start_from(self.old)
                done = self.generate(NEW, at, what="memory", compiler=compiler)
                with self.subTest(compiler=compiler, at=at, of=total, said=done.stderr, status=done.returncode):
                    if done.returncode == 0:
                        self.assertEqual((contents(self.out), done.stderr), (self.new, ""))
                    else:
                        self.sentence(done, (1,) if compiler else (1, -signal.SIGABRT))
                        self.assertEqual(contents(self.out), self.old)

    def test_one_operation_of_the_compiler_fails(self):
        self.start_from(self.old)
        total = self.count(compiler=True)
        self.assertGreater(total, 1)
        for at in range(1, total + 1):
            for reason in (errno.ENOSPC, -signal.SIGKILL, -signal.SIGSEGV):
                self.start_from(self.old)
                done = self.generate(NEW, at, reason, compiler=True)
                with self.subTest(at=at, reason=reason, said=done.stderr):
                    if done.returncode == 0:  # it was not needed
                        self.assertGreater(reason, 0)
                        self.assertEqual((contents(self.out), done.stderr), (self.new, ""))
                    else:
                        self.sentence(done)
                        self.assertIn(os.strerror(reason) if reason > 0 else "the compiler crashed (signal %d) on frame linear" % -reason, done.stderr)
                        self.assertEqual(contents(self.out), self.old)

    def compiler_of(self, asker):
        """The process in which `asker` compiles, as soon as there is one."""
        end = time.monotonic() + 60
        while time.monotonic() < end and asker.poll() is None:
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    told = b"--compile-job" in (process / "cmdline").read_bytes()
                    if told and "\nPPid:\t%d\n" % asker.pid in (process / "status").read_text():
                        return process
        self.fail("there was no compiler")

    def test_the_compiler_ends_with_the_one_who_asked(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL):
            self.start_from(self.old)
            asker = subprocess.Popen([OPTIONS.generate, "k", *NEW, "-o", str(self.out)], stderr=subprocess.PIPE, text=True)
            compiler = self.compiler_of(asker)
            asker.send_signal(number)
            with self.subTest(number=number, said=asker.communicate()[1]):
                self.assertEqual(asker.returncode, -number)
                end = time.monotonic() + 60
                with contextlib.suppress(OSError):  # it is removed
                    while "\nState:\tZ" not in (compiler / "status").read_text():
                        self.assertLess(time.monotonic(), end, "the compiler goes on")
                        time.sleep(0.001)
                if number == signal.SIGKILL:
                    self.assertEqual(self.generate(OLD).returncode, 0)
                self.assertEqual(contents(self.out), self.old)

    def test_files_may_not_grow(self):
        """As a full disk, by the system itself."""
        self.start_from(self.old)
        for size in (100, 1500, 5000):
            done = self.generate(NEW, preexec_fn=lambda size=size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
            with self.subTest(size=size, said=done.stderr):
                self.sentence(done)
                self.assertIn("File too large", done.stderr)
                self.assertEqual(contents(self.out), self.old)

    def test_a_name_that_is_taken_by_a_folder(self):
        for name in FILES:
            self.start_from({n: d for n, d in self.old.items() if n != name})
            (self.out / name / "below").mkdir(parents=True)
            before = contents(self.out)
            done = self.generate(NEW)
            self.sentence(done)
            self.assertIn(name, done.stderr)
            self.assertEqual(contents(self.out), before)

    def test_two_at_once(self):
        """Of the same name: either library, whole."""
        for _ in range(20 if ALL else 3):
            self.start_from(None)
            command = [OPTIONS.generate, "k", "-o", str(self.out)]
            running = [subprocess.Popen([*command, *arguments]) for arguments in (OLD, NEW, OLD)]
            self.assertEqual([process.wait() for process in running], [0, 0, 0])
            self.assertIn(contents(self.out), (self.old, self.new))

    def test_a_runtime_is_whole_or_not_there(self):
        path = self.out / "runtime.a"
        arguments = ["--runtime", str(path), "--target", "host"]
        self.start_from({"runtime.a": b"what was there"})
        total = self.count(arguments=arguments)
        whole = contents(self.out)
        for at in range(1, total + 1, 1 if ALL else 10):
            self.start_from({"runtime.a": b"what was there"})
            done = self.generate(arguments, at, errno.ENOSPC)
            with self.subTest(at=at, said=done.stderr):
                if done.returncode == 0:
                    self.assertEqual(contents(self.out), whole)
                else:
                    self.sentence(done)
                    self.assertEqual(contents(self.out), {"runtime.a": b"what was there"})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("generate", "cc"):
        parser.add_argument("--" + option, required=True)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])

"""Files in any folder, with any locale, current folder, TMPDIR and lock: the same result everywhere, or one sentence."""
import argparse
import ctypes
import ctypes.util
import fcntl
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

from tier import sampled_cases

KERNEL = "k --op sdpa --num-heads 2 --head-dim 8 --seq-len-q-range 17: --target x86-64-linux --no-tuned".split()
FOLDERS = {
    "no UTF-8, what formats are made of, quotes": b"gr\xf6\xdfe/100%s of %d %%/a (1) [b] 'c' \"d\"/-o",
    "a line break and a backslash": b"a\nb\\c",
}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A kernel whose numbers come from a text, a limit of the environment, and sentences with a number.
IN_A_LOCALE = """
import ctypes, locale, sys
import numpy, polyhead
if sys.argv[1] != "C":
    locale.setlocale(locale.LC_ALL, sys.argv[1])
    if locale.localeconv()["decimal_point"] != ",":
        sys.exit("the locale has no decimal comma")
q = numpy.linspace(-1, 1, 2 * 8 * 16, dtype="float32").reshape(1, 2, 8, 16)
out = polyhead.sdpa(q, q, q, expression="score = 1.5 * score + 0.25")
print(numpy.asarray(out).tobytes().hex())
for bad in ({"softcap": -1.5}, {"scale": 2.5e38}):
    try:
        polyhead.sdpa(q, q, q, **bad)
        print("accepted", bad)
    except polyhead.Error as error:
        print(error)
kernel = polyhead.compile(op="sdpa", num_heads=2, head_dim=16)
print(kernel.manifest)
kernel.export(sys.argv[2], "k")
print(open(sys.argv[2] + "/k.h").read())
"""


# Compiles a kernel in the folder for temporary files; prints why that cannot be.
COMPILE = """
import polyhead
try:
    polyhead.compile(op='sdpa', num_heads=1, head_dim=8, seq_len_q=1).manifest
except polyhead.Error as error:
    print(error)
"""


def generate(*words, **options):
    return subprocess.run([OPTIONS.generate, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, **options)


class Places(unittest.TestCase):
    def setUp(self):
        self.folder = os.fsencode(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def files(self, folder):
        found = {}
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as file:
                found[name] = file.read()
        return found

    def generated(self, folder, *words):
        done = generate(*KERNEL, *words, "-o", folder)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return self.files(folder)

    def assert_refused(self, done, *words):
        lines = done.stderr.decode(errors="surrogateescape").splitlines()
        self.assertEqual((done.returncode, len(lines), done.stdout), (1, 1, b""), done.stderr)
        for word in words:
            self.assertIn(word, lines[0])

    def test_any_name_of_a_folder(self):
        plain = self.generated(self.path(b"plain"), "--emit", "stmt,assembly")
        self.assertEqual(len(plain), 5, sorted(plain))
        for what, name in FOLDERS.items():
            with self.subTest(what):
                self.assertEqual(self.generated(self.path(name), "--emit", "stmt,assembly"), plain)

    def runtime(self, path, **options):
        done = generate("--runtime", path, "--target", "x86-64-linux", **options)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        with open(path, "rb") as file:
            return file.read()

    # The plain names are given where the current folder is gone.
    def test_any_name_of_a_runtime(self):
        folder, gone = self.path(next(iter(FOLDERS.values()))), self.path(b"gone")
        os.makedirs(folder)
        for name in (b"r.a", b"r.o"):
            os.mkdir(gone)
            plain = self.runtime(self.path(name), cwd=gone, preexec_fn=lambda: os.rmdir(gone))
            self.assertEqual(self.runtime(os.path.join(folder, b"%s\xf6" + name)), plain)

    def test_any_name_of_a_file_that_is_read(self):
        for what, name in FOLDERS.items():
            with self.subTest(what):
                os.makedirs(self.path(name))
                records, text = self.path(name, b"records\xf6.json"), self.path(name, b"text\xf6.txt")
                with open(records, "w", encoding="utf-8") as file:
                    file.write('{"format": 1, "records": []}')
                with open(text, "wb") as file:
                    file.write(b"# \xf6\nscore = score + 0.5\n")
                done = generate(*KERNEL[:-1], "--tuned", records, "--expression-file", text, "-o", self.path(name))
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(self.path(name, b"k.json"), encoding="utf-8") as file:
                    manifest = json.load(file)
                self.assertIn("\\xf6", manifest["tuned"])
                self.assertIn("score + 0.5", manifest["problem"]["expression"])
                with open(text, "wb") as file:
                    file.write(b"score = scor\n")
                self.assert_refused(generate(*KERNEL, "--expression-file", text, "-o", self.path(name)), "scor")

    def test_a_current_folder_that_is_gone(self):
        gone = self.path(b"gone")
        os.mkdir(gone)
        run = {"cwd": gone, "preexec_fn": lambda: os.rmdir(gone)}
        for words in (KERNEL, KERNEL + ["-o", "sub"], ["--runtime", "r.a", "--target", "x86-64-linux"]):
            self.assert_refused(generate(*words, **run), "output directory", "gone")
            os.mkdir(gone)
        done = generate(*KERNEL, "-o", self.path(b"there"), **run)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_a_byte_order_mark(self):
        symbols = []
        for mark in (b"", BYTE_ORDER_MARK):
            with open(self.path(b"text.txt"), "wb") as file:
                file.write(mark + b"score = score + 0.5\n")
            self.generated(self.path(b"out"), "--expression-file", self.path(b"text.txt"))
            with open(self.path(b"out", b"k.json"), encoding="utf-8") as file:
                symbols.append(json.load(file)["variants"][0]["symbol"])
        self.assertEqual(symbols[0], symbols[1])

    def test_a_lock_that_is_held(self):
        lock = self.path(b".k.lock")
        with open(lock, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.assert_refused(generate(*KERNEL, "-o", self.folder), ".k.lock", "another process")
            self.assertEqual(os.listdir(self.folder), [b".k.lock"])

    def locale_folder(self):
        """A folder with the locale de_DE.UTF-8, which has a decimal comma and groups digits."""
        if not shutil.which("localedef"):
            self.skipTest("no localedef")
        made = os.path.join(os.fsdecode(self.folder), "locales")
        os.mkdir(made)
        done = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", os.path.join(made, "de_DE.UTF-8")], stderr=subprocess.DEVNULL)
        if done.returncode > 1 or not os.path.isdir(os.path.join(made, "de_DE.UTF-8")):  # 1: with warnings
            self.skipTest("no sources of locales")
        return made

    def test_a_decimal_comma(self):
        if not OPTIONS.python_path:
            self.skipTest("no Python package")
        environment = dict(os.environ, LOCPATH=self.locale_folder(), PYTHONPATH=OPTIONS.python_path, POLYHEAD_LIMIT_SECONDS="60.5")
        outputs = []
        for name in ("C", "de_DE.UTF-8"):
            done = subprocess.run([sys.executable, "-c", IN_A_LOCALE, name, self.path(name.encode())], env=environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout)
            outputs.append(done.stdout)
        self.assertIn("softcap: value -1.5", outputs[0])
        self.assertEqual(outputs[0], outputs[1])

    def python(self, text, **environment):
        return subprocess.run([sys.executable, "-c", text], env=dict(os.environ, PYTHONPATH=OPTIONS.python_path, **environment),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)

    def test_folders_for_temporary_files(self):
        if not OPTIONS.python_path:
            self.skipTest("no Python package")
        self.assertEqual(self.python(COMPILE, TMPDIR=self.folder).stdout, b"")
        for name in FOLDERS.values():
            os.makedirs(self.path(name))
            self.assertEqual(self.python(COMPILE, TMPDIR=self.path(name)).stdout, b"")
            self.assertEqual(os.listdir(self.path(name)), [])
        answer = self.python(COMPILE, TMPDIR="/nonexistent", POLYHEAD_CACHE="off").stdout.decode()
        self.assertIn("TMPDIR: found '/nonexistent', expected a folder", answer)
        self.assertEqual(answer.count("\n"), 1)

    def test_a_folder_without_code(self):
        """A file system that is mounted without the right to run code; needs a user who may mount one."""
        if not OPTIONS.python_path:
            self.skipTest("no Python package")
        libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
        if os.geteuid() != 0 or libc.mount(b"none", self.folder, b"tmpfs", 8, b"size=16m") != 0:  # 8: MS_NOEXEC
            self.skipTest("no right to mount")
        self.addCleanup(libc.umount2, self.folder, 2)
        answer = self.python(COMPILE, TMPDIR=self.folder, POLYHEAD_CACHE="off").stdout.decode()
        if platform.machine() == "x86_64":  # code is put into memory from no file
            self.assertEqual(answer, "")
        else:
            self.assertIn("TMPDIR: found '%s', from which no code can be loaded (noexec)" % os.fsdecode(self.folder), answer)


load_tests = sampled_cases(__file__, 2)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--generate", required=True)
    parser.add_argument("--python-path")
    OPTIONS, left = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *left])

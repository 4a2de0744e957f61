"""The report of ./polyhead test: what a machine cannot run is counted as skipped, per test and in the closing line, and never as passed."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tools"))
from command import testing  # noqa: E402
from command.places import Failure  # noqa: E402
from command.report import Tally, read_skips  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def case(name, output="", status="run", label="kernels"):
    element = ElementTree.Element("testcase", name=name, status=status, time="1.5")
    properties = ElementTree.SubElement(element, "properties")
    ElementTree.SubElement(properties, "property", name="cmake_labels", value=label)
    ElementTree.SubElement(element, "system-out").text = output
    return element


class Parts(unittest.TestCase):
    def test_every_test_of_every_build_is_in_one_part(self):
        suites = [testing.Suite("release", "all"), *testing.SUITES]
        whole = {(suite.preset, i + 1, suite.pieces) for suite in suites for i in range(suite.pieces)}
        for n in (2, 3, 8, len(whole)):
            parts = [testing.parts_of(suites, "%d/%d" % (i + 1, n)) for i in range(n)]
            self.assertTrue(all(parts))
            found = [(suite.preset, *suite.slice) for part in parts for suite in part]
            self.assertEqual((set(found), len(found)), (whole, len(whole)))
        self.assertEqual(testing.parts_of(suites, None), suites)

    def test_one_build_is_divided_by_its_tests(self):
        suite = testing.Suite("release", "fast")
        self.assertEqual(testing.parts_of([suite], "2/3"), [suite._replace(slice=(2, 3))])

    def test_what_is_no_part(self):
        for text in ("0/3", "4/3", "x", "1/9999"):
            with self.assertRaises(Failure):
                testing.parts_of([testing.Suite("release", "all"), *testing.SUITES], text)


# polyhead_test(NAME LABEL label ... SOURCES file...), and a note of a part that does not run, in a test case or in a helper.
PROGRAM = re.compile(r"polyhead_test\(\s*\w+\s+LABEL (\w+)([^)]*)\)")
NOTE = re.compile(r'TEST_CASE\("([^"]*)"|note_not_run\([^;]*?,\s*"([^"]*)"\)')


def notes_of(text):
    """[(name of the test case before it, reason)] of a source."""
    notes, name = [], ""
    for found in NOTE.finditer(text):
        if found[1] is not None:
            name = found[1]
        else:
            notes.append((name, found[2]))
    return notes


class SkippedParts(unittest.TestCase):
    def test_notes_of_a_source(self):
        text = 'note_not_run("x" + y, "a");\nTEST_CASE("one") {\n note_not_run(f(z), "b");\n note_not_run("u",\n  "c"); }'
        self.assertEqual(notes_of(text), [("", "a"), ("one", "b"), ("one", "c")])

    def test_every_part_that_a_source_leaves_out_may_be_skipped(self):
        # A reason that only a sanitizer gives is seen here, not first by a run of all builds.
        rules, sources = read_skips(), 0
        for lists in ["CMakeLists.txt"] + [name for name in os.listdir(HERE) if name.endswith(".cmake")]:
            with open(os.path.join(HERE, lists), encoding="utf-8") as file:
                programs = PROGRAM.findall(file.read())
            for label, name in [(label, name) for label, rest in programs for name in re.findall(r"[\w/]+\.cpp", rest)]:
                with open(os.path.join(HERE, name), encoding="utf-8") as file:
                    notes = notes_of(file.read())
                sources += bool(notes)
                for case_name, why in notes:
                    may = any(test.fullmatch("%s: %s" % (label, case_name)) and reason.fullmatch(why) for test, reason in rules)
                    self.assertTrue(may, "%s: %s: tests/skips.txt has no line for %r" % (name, case_name, why))
        self.assertGreater(sources, 5)


class Report(unittest.TestCase):
    def tally(self, *cases):
        tally = Tally()
        for one in cases:
            tally.count(one)
        return tally

    def test_a_test_that_ran(self):
        tally = self.tally(case("a", "All tests passed\n"), case("b", label="sweep"))
        self.assertEqual(tally.closing_line(), "2 passed, 0 failed, 0 skipped")
        self.assertEqual([line.split() for line in tally.lines()], [["kernels", "1", "tests", "1.5", "s"], ["sweep", "1", "tests", "1.5", "s"]])

    def test_kernels_that_this_machine_cannot_run(self):
        needs = "NOT RUN: kernel k%d variant v: needs avx512_skylake\n"
        tally = self.tally(case("some", needs % 1 + "other words\n" + needs % 2 + "NOT RUN: kernel k3: no variant for this machine\n"))
        self.assertEqual(tally.closing_line(), "1 passed, 0 failed, 0 skipped")
        self.assertIn("3 kernels and cases could not run within tests that did", list(tally.lines()))
        self.assertIn("SKIPPED some: 2, needs avx512_skylake", list(tally.lines()))
        self.assertIn("SKIPPED some: 1, no variant for this machine", list(tally.lines()))

    def test_nothing_of_a_test_ran(self):
        output = "NOT RUN: kernel k: needs avx2\nNOT RUN: the whole test: nothing of it runs on this machine\n"
        self.assertEqual(self.tally(case("none", output)).closing_line(), "0 passed, 0 failed, 1 skipped")
        # What fails has failed, whatever it left out before.
        self.assertEqual(self.tally(case("none", output, status="fail")).closing_line(), "0 passed, 1 failed, 0 skipped")

    def test_scripts(self):
        tally = self.tally(case("part", "Ran 3 tests in 1.2s\n\nOK (skipped=2)\n"),
                           case("all", "NOT RUN: the whole test: onnx is not installed\n"))
        self.assertEqual(tally.closing_line(), "1 passed, 0 failed, 1 skipped")
        self.assertIn("SKIPPED all: 1, onnx is not installed", list(tally.lines()))
        self.assertIn("SKIPPED part: 2, no reason given", list(tally.lines()))

    def test_cases_of_a_script_come_with_their_reason(self):
        script = """
import sys, unittest

class Some(unittest.TestCase):
    def test_one(self):
        self.skipTest("no such thing: here")

    @unittest.skip("never")
    def test_two(self):
        pass

    def test_three(self):
        for number in (1, 2):
            with self.subTest(number=number):
                if number == 2:
                    self.skipTest("not two")

assert sys.argv[1:] == ["x"] and __file__.endswith("some.py"), sys.argv
unittest.main(argv=sys.argv[:1])
"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "some.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(script)
            done = subprocess.run([sys.executable, os.path.join(HERE, "run_script.py"), path, "x"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        tally = self.tally(case("part", done.stdout))
        self.assertEqual(sorted(tally.reasons.items()), [(("part", "never"), 1), (("part", "no such thing, here"), 1), (("part", "not two"), 1)])


class Skips(unittest.TestCase):
    """With CI in the environment, a skip that is not on the list fails the run."""

    RULES = [(re.compile("kernels: .*"), re.compile("needs avx2")), (re.compile("python: .*"), re.compile("nothing of it.*"))]

    def judged(self, *cases, fail=True):
        # A file as ctest writes it.
        suite = ElementTree.Element("testsuite")
        suite.extend(cases)
        tally = Tally()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tests.xml")
            ElementTree.ElementTree(suite).write(path)
            tally.read(path)
        tally.judge_skips(self.RULES, fail)
        return tally

    def test_on_the_list(self):
        tally = self.judged(case("kernels: a", "NOT RUN: kernel k: needs avx2\n"), case("python: b", "NOT RUN: the whole test: nothing of it runs\n"))
        self.assertEqual(tally.closing_line(), "1 passed, 0 failed, 1 skipped")

    def test_a_part_that_is_not_on_the_list(self):
        tally = self.judged(case("kernels: a", "NOT RUN: kernel k: needs avx2\nNOT RUN: kernel l: needs avx21\n"))
        self.assertEqual(tally.failures, ["kernels: a: skipped, which tests/skips.txt does not allow: needs avx21"])
        self.assertEqual(tally.closing_line(), "1 passed, 1 failed, 0 skipped")

    def test_a_whole_test_that_is_not_on_the_list(self):
        tally = self.judged(case("fuzz: calls", "NOT RUN: the whole test: fuzz_calls was not built, it needs clang\n"), case("kernels: a"))
        self.assertEqual(tally.closing_line(), "1 passed, 1 failed, 1 skipped")
        self.assertIn("FAILED fuzz: calls: skipped, which tests/skips.txt does not allow: fuzz_calls was not built, it needs clang", tally.lines())

    def test_disabled_and_without_a_reason(self):
        tally = self.judged(case("kernels: a", status="disabled"), case("python: b", "OK (skipped=1)\n"))
        self.assertEqual(len(tally.failures), 2)

    def test_without_ci_it_is_only_said(self):
        tally = self.judged(case("kernels: a", "NOT RUN: kernel l: needs more\n"), fail=False)
        self.assertEqual(tally.closing_line(), "1 passed, 0 failed, 0 skipped")
        self.assertIn("WITH CI A FAILURE: kernels: a: skipped, which tests/skips.txt does not allow: needs more", list(tally.lines()))

    def test_the_list(self):
        def allowed(name, why):
            return any(test.fullmatch(name) and reason.fullmatch(why) for test, reason in read_skips())

        for name, why in (("kernels:every kernel", "needs amx avx512_fp16"), ("sweep:tilings", "needs avx512 avx512_skylake"),
                          ("kernels: every kernel", "no variant for this machine"), ("sweep:amx: products", "neither AMX nor its emulator"),
                          ("runtime: with ThreadSanitizer", "this compiler links no program with ThreadSanitizer"),
                          ("tune: the driver", "long; tuning_files.py has the short form")):
            self.assertTrue(allowed(name, why), (name, why))
        for name, why in (("fuzz: fuzz_calls", "fuzz_calls was not built, it needs clang with libFuzzer (apt-get install clang libclang-rt-dev)"),
                          ("conformance: onnx", "onnx is not installed"), ("kernels:every kernel", "needs"), ("tune: the driver", "no reason given"),
                          ("python: devices", "POLYHEAD_TEST_DEVICE is not set, expected cuda or opencl"), ("kernels:any", "it is disabled")):
            self.assertFalse(allowed(name, why), (name, why))

    def test_a_line_that_says_no_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "skips.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write("# words\n\nkernels: .* | needs avx2\n")
            with self.assertRaisesRegex(ValueError, "expected NAME"):
                read_skips(path)


if __name__ == "__main__":
    unittest.main()

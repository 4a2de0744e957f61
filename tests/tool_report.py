"""The report of ./polyhead test: what a machine cannot run is counted as skipped, per test and in the closing line, and never as passed."""
import os
import sys
import unittest
import xml.etree.ElementTree as ElementTree

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tools"))
from command.report import Tally  # noqa: E402


def case(name, output="", status="run", label="kernels"):
    element = ElementTree.Element("testcase", name=name, status=status, time="1.5")
    properties = ElementTree.SubElement(element, "properties")
    ElementTree.SubElement(properties, "property", name="cmake_labels", value=label)
    ElementTree.SubElement(element, "system-out").text = output
    return element


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
        self.assertIn("SKIPPED part: 2, a condition of the script", list(tally.lines()))


if __name__ == "__main__":
    unittest.main()

"""The report of one or more CTest runs: counts, seconds per label, what could not run and why, and a closing line."""
import collections
import re
import xml.etree.ElementTree as ElementTree

# Lines that tests/support/not_run.h and scripts print, and unittest's count of skipped tests.
NOT_RUN = re.compile(r"^NOT RUN: (.*): ([^:\n]*)$", re.MULTILINE)
UNITTEST = re.compile(r"^OK \(skipped=(\d+)\)$", re.MULTILINE)
WHOLE = "the whole test"


class Tally:
    """Counts of one or more CTest runs, and seconds per label."""

    def __init__(self):
        self.passed = self.failed = self.skipped = self.parts = 0
        self.labels = {}  # (suite, label) -> [tests, seconds]
        self.failures = []
        self.reasons = collections.Counter()  # (test, reason) -> how many parts of it
        self.not_run = {}  # label -> packages that its tests need

    def read(self, path, suite=""):
        try:
            cases = ElementTree.parse(path).getroot().iter("testcase")
        except (OSError, ElementTree.ParseError):
            self.fail("ctest wrote no report")
            return
        for case in cases:
            self.count(case, suite)

    def count(self, case, suite=""):
        name, status, output = case.get("name"), case.get("status"), case.findtext("system-out") or ""
        parts = NOT_RUN.findall(output)
        whole = [why for what, why in parts if what == WHOLE]
        if status == "run" and not whole:
            self.passed += 1
        elif status in ("run", "disabled"):
            self.skipped += 1
            self.reasons[name, whole[0] if whole else "it is disabled"] += 1
        else:
            self.fail(name)
        self.count_parts(name, parts, output)
        names = [p.get("value") for p in case.iter("property") if p.get("name") == "cmake_labels"]
        for label in (names[0].split(";") if names and names[0] else ["no label"]):
            entry = self.labels.setdefault((suite, label), [0, 0.0])
            entry[0] += 1
            entry[1] += float(case.get("time") or 0)

    def count_parts(self, name, parts, output):
        """Counts the parts of a test that could not run: kernels and variants with the reason, cases of a script as a number."""
        for what, why in parts:
            if what != WHOLE:
                self.parts += 1
                self.reasons[name, why] += 1
        for number in UNITTEST.findall(output):
            self.parts += int(number)
            self.reasons[name, "a condition of the script"] += int(number)

    def fail(self, name):
        self.failed += 1
        self.failures.append(name)

    def lines(self):
        """The lines of the report: seconds per label, what could not run, what failed."""
        several = len({suite for suite, _ in self.labels}) > 1
        for (suite, label), (tests, seconds) in sorted(self.labels.items()):
            yield "  %-22s %4d tests %8.1f s" % (suite + ": " + label if several else label, tests, seconds)
        for (name, why), number in sorted(self.reasons.items()):
            yield "SKIPPED %s: %d, %s" % (name, number, why)
        if self.parts:
            yield "%d kernels and cases could not run within tests that did" % self.parts
        for label, packages in sorted(self.not_run.items()):
            yield "label %s not run: apt-get install %s" % (label, " ".join(packages))
        for name in self.failures:
            yield "FAILED %s" % name

    def closing_line(self):
        return "%d passed, %d failed, %d skipped" % (self.passed, self.failed, self.skipped)

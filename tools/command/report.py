"""The report of one or more CTest runs: counts, seconds per label, what could not run and why, and a closing line."""
import collections
import os
import re
import xml.etree.ElementTree as ElementTree

from .places import ROOT

# Lines that instruments/calls/not_run.h and tests/run_script.py print, and unittest's count of skipped tests.
NOT_RUN = re.compile(r"^NOT RUN: (.*): ([^:\n]*)$", re.MULTILINE)
UNITTEST = re.compile(r"^OK \(skipped=(\d+)\)$", re.MULTILINE)
WHOLE = "the whole test"
SKIPS = os.path.join(ROOT, "tests", "skips.txt")


def read_skips(path=SKIPS):
    """[(pattern of a test's name, pattern of the reason)] of what may be skipped, from lines NAME | REASON | WHY."""
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    rules = []
    for line in lines:
        fields = [field.strip() for field in line.split(" | ")]
        if len(fields) != 3 or not all(fields):
            raise ValueError("%s: found %r, expected NAME | REASON | WHY" % (path, line))
        rules.append((re.compile(fields[0]), re.compile(fields[1])))
    return rules


class Tally:
    """Counts of one or more CTest runs, and seconds per label."""

    def __init__(self):
        self.passed = self.failed = self.skipped = self.parts = 0
        self.labels = {}  # (suite, label) -> [tests, seconds]
        self.failures = []
        self.reasons = collections.Counter()  # (test, reason) -> how many parts of it
        self.not_run = {}  # label -> packages that its tests need
        self.not_allowed = []  # skips that fail a run with CI in its environment

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
        """Counts the parts of a test that could not run: kernels, variants, and cases of a script."""
        for what, why in parts:
            if what != WHOLE:
                self.parts += 1
                self.reasons[name, why] += 1
        # Cases whose reason the script did not print.
        silent = sum(map(int, UNITTEST.findall(output))) - sum(what != WHOLE for what, _ in parts)
        if silent > 0:
            self.parts += silent
            self.reasons[name, "no reason given"] += silent

    def judge_skips(self, rules, fail):
        """Looks for skips that no rule allows. With `fail` they are failures; otherwise only lines of the report."""
        for (name, why), _ in sorted(self.reasons.items()):
            if any(test.fullmatch(name) and reason.fullmatch(why) for test, reason in rules):
                continue
            text = "%s: skipped, which tests/skips.txt does not allow: %s" % (name, why)
            if fail:
                self.fail(text)
            else:
                self.not_allowed.append(text)

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
        for text in self.not_allowed:
            yield "WITH CI A FAILURE: %s" % text
        for label, packages in sorted(self.not_run.items()):
            yield "label %s not run: apt-get install %s" % (label, " ".join(packages))
        for name in self.failures:
            yield "FAILED %s" % name

    def closing_line(self):
        return "%d passed, %d failed, %d skipped" % (self.passed, self.failed, self.skipped)

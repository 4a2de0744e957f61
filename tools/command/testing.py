"""The subcommand test: builds, runs CTest, and reports compiled objects, seconds per label and one closing line."""
import os
import time
import xml.etree.ElementTree as ElementTree

from . import build, environment, fuzzing, gpu, soaking
from .places import Failure, call, jobs, step, tool
from .places import environment as environment_of_children

KINDS = {".o": "objects", ".a": "kernels"}


class Tally:
    """Counts of one or more CTest runs, and seconds per label."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.labels = {}  # label -> [tests, seconds]
        self.failures = []
        self.not_run = {}  # label -> packages that its tests need

    def read(self, path):
        try:
            cases = ElementTree.parse(path).getroot().iter("testcase")
        except (OSError, ElementTree.ParseError):
            self.fail("ctest wrote no report")
            return
        for case in cases:
            self.count(case)

    def count(self, case):
        skipped = case.find("skipped")
        if case.get("status") == "run":
            self.passed += 1
        elif case.get("status") == "disabled" or (skipped is not None and (skipped.get("message") or "").startswith("SKIP_")):
            self.skipped += 1
        else:
            self.fail(case.get("name"))
        names = [p.get("value") for p in case.iter("property") if p.get("name") == "cmake_labels"]
        for label in (names[0].split(";") if names and names[0] else ["no label"]):
            entry = self.labels.setdefault(label, [0, 0.0])
            entry[0] += 1
            entry[1] += float(case.get("time") or 0)

    def fail(self, name):
        self.failed += 1
        self.failures.append(name)

    def closing_line(self):
        line = "%d passed, %d failed" % (self.passed, self.failed)
        line += ", %d skipped" % self.skipped if self.skipped else ""
        return line + "".join("; label %s not run: apt-get install %s" % (label, " ".join(packages)) for label, packages in sorted(self.not_run.items()))


def compiled_since(preset, before):
    """Words for what Ninja made between two readings of its log."""
    made = {}
    for name, entry in build.log_entries(preset).items():
        kind = KINDS.get(os.path.splitext(name)[1])
        if name.endswith(".a") and "kernels" not in name:
            kind = None
        if kind and before.get(name) != entry:
            count = made.setdefault(kind, [0, 0])
            count[0] += 1
            count[1] += entry[0]
    if not made:
        return "nothing compiled"
    return "compiled " + ", ".join("%d %s (%.0f core-seconds)" % (n, kind, ms / 1000) for kind, (n, ms) in sorted(made.items()))


# What a second preset adds is its kernels, tsan the threads of the runtime too: labels that do not depend on them, and the sweep, which
# compiles its own, run once.
ONLY_KERNELS = {"targets": "^kernels$", "tsan": "^(kernels|runtime)$"}


def run_preset(preset, tier, options, tally):
    """Builds one preset and adds its tests to the tally; returns the report's lines."""
    build.configure(preset, environment.parts(), POLYHEAD_KERNEL_TIER=tier, POLYHEAD_KERNEL_SAMPLE=build.head_commit(),
                    **fuzzing.variables(preset))
    before, started = build.log_entries(preset), time.monotonic()
    build.build(preset, ["polyhead_tests"])
    built = time.monotonic()
    report = os.path.join(build.directory(preset), "tests.xml")
    if os.path.exists(report):
        os.remove(report)
    command = [tool("ctest"), "--test-dir", build.directory(preset), "--output-on-failure", "--no-tests=error", "--parallel", str(jobs()),
               "--output-junit", report]
    if preset in ONLY_KERNELS:
        command += ["-L", ONLY_KERNELS[preset]]
    if options.label:
        command += ["-L", "^%s$" % options.label]
    if options.filter:
        command += ["-R", options.filter]
    left_out = [] if options.all or options.label == "long" else ["long"]
    if not os.environ.get("CI") and not options.label:
        tally.not_run = gpu.labels_without_device()
        left_out += sorted(tally.not_run)
    if left_out:
        command += ["-LE", "^(%s)$" % "|".join(left_out)]
    step("test (%s)" % preset)
    child = dict(environment_of_children(), POLYHEAD_SWEEP_SEED=build.head_commit(), POLYHEAD_CPU_FEATURES=build.cpu_features(preset))
    if options.all:
        child["POLYHEAD_TEST_ALL"] = "1"
    call(command, check=False, env=child)
    tally.read(report)
    return ["%s: %s in %.0f s; tests ran %.0f s" % (preset, compiled_since(preset, before), built - started, time.monotonic() - built)]


# The programs that hold GPU kernels to the reference; POLYHEAD_TEST_DEVICE tells them where. The second compiles random problems in
# process, so it needs libHalide and is for --all.
DEVICE_PROGRAMS = ["test_kernels_gpu", "test_gpu_sweep"]


def test_on_device(options):
    """The suite of the GPU kernels on a device of this machine; prebuilt ones need nothing but a driver and this checkout."""
    programs = DEVICE_PROGRAMS if options.all else DEVICE_PROGRAMS[:1]
    if not options.no_build:
        environment.ensure(*environment.NEEDS)
        build.configure(options.preset, environment.parts(), POLYHEAD_KERNEL_TIER="all" if options.all else "fast", POLYHEAD_KERNEL_SAMPLE=build.head_commit())
        build.build(options.preset, programs)
    child = dict(environment_of_children(), POLYHEAD_TEST_DEVICE=options.device)
    if options.all:
        child["POLYHEAD_TEST_ALL"] = "1"
    tally = Tally()
    for name in programs:
        step("%s on %s" % (name, options.device))
        command = [build.program(options.preset, name), "--durations", "yes"] + ([options.filter] if options.filter else [])
        if call(command, check=False, env=child) == 0:
            tally.passed += 1
        else:
            tally.fail("%s on %s" % (name, options.device))
    print("programs: " + tally.closing_line(), flush=True)
    return 0 if tally.failed == 0 else 1


def test(options):
    if options.fuzz:
        return fuzzing.fuzz(options)
    if options.soak:
        return soaking.soak(options)
    if options.device:
        return test_on_device(options)
    environment.ensure(*(need for need in environment.NEEDS if need != "check"))
    runs = [(options.preset, "all" if options.all else "fast")]
    if options.all and options.preset == "release" and not (options.label or options.filter):
        runs += [("targets", "all"), ("asan", "fast")]
    tally, lines = Tally(), []
    for preset, tier in runs:
        try:
            lines += run_preset(preset, tier, options, tally)
        except Failure as failure:
            tally.fail("%s: %s" % (preset, failure))
    step("report")
    for line in lines:
        print(line)
    for label, (tests, seconds) in sorted(tally.labels.items()):
        print("  %-14s %4d tests %8.1f s" % (label, tests, seconds))
    for name in tally.failures:
        print("FAILED %s" % name)
    print(tally.closing_line(), flush=True)
    return 0 if tally.failed == 0 and tally.passed > 0 else 1

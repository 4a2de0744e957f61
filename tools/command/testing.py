"""The subcommand test: builds, runs CTest in one build or several, and prints the report."""
import collections
import os
import time

from . import build, environment, faults, fuzzing, gpu, soaking
from .places import ROOT, Failure, call, jobs, numbers_of_part, step, tool
from .places import environment as environment_of_children
from .report import Tally, read_skips

KINDS = {".o": "objects", ".a": "kernels"}


def compiled_since(preset, before):
    """A text about the objects and kernels that Ninja made between two readings of its log."""
    made, folders = {}, collections.Counter()
    for name, entry in build.log_entries(preset).items():
        kind = KINDS.get(os.path.splitext(name)[1])
        if name.endswith(".a") and "kernels" not in name:
            kind = None
        if kind and before.get(name) != entry:
            count = made.setdefault(kind, [0, 0])
            count[0] += 1
            count[1] += entry[0]
            folders[name.split("/")[0] if "/" in name and not name.startswith("CMakeFiles") else "generator"] += entry[0]
    if not made:
        return "nothing compiled"
    counts = ", ".join("%d %s (%.0f core-seconds)" % (n, kind, ms / 1000) for kind, (n, ms) in sorted(made.items()))
    return "compiled %s; %s" % (counts, ", ".join("%s %.0f" % (folder, ms / 1000) for folder, ms in folders.most_common()))


# The builds that --all tests in addition to the requested one; POLYHEAD_TEST_LABELS of the presets says what each runs. With fewer CPU
# features: all tests that run on the CPU, with a third of the sweeps (`amount`, for POLYHEAD_TEST_ALL). With sanitizers: the fast tier
# without tests that measure memory and tests that compile their kernels themselves, which have no sanitizer; with tsan only tests
# of the runtime and kernels.
# --part takes a suite in pieces, slices (i, n): every n-th of its tests from the i-th on; `pieces` makes them about equally long.
Suite = collections.namedtuple("Suite", "preset tier amount pieces slice", defaults=("1", 4, None))
SUITES = [Suite("avx2", "all", "third", 3), Suite("sse41", "all", "third", 3), Suite("asan", "fast", "1", 2), Suite("tsan", "fast", "1", 1)]


def run_suite(suite, options, tally):
    """Builds one preset and adds its tests to the tally; returns the report's lines."""
    preset = suite.preset
    build.configure(preset, environment.parts(), POLYHEAD_KERNEL_TIER=suite.tier, POLYHEAD_KERNEL_SAMPLE=build.head_commit(),
                    **fuzzing.variables(preset))
    before, started = build.log_entries(preset), time.monotonic()
    build.build(preset, ["polyhead_tests"])
    built = time.monotonic()
    report = os.path.join(build.directory(preset), "tests.xml")
    if os.path.exists(report):
        os.remove(report)
    command = [tool("ctest"), "--test-dir", build.directory(preset), "--output-on-failure", "--no-tests=error", "--parallel", str(jobs()),
               "--output-junit", report, "--test-output-size-passed", "1000000"]
    labels = build.presets()[preset].get("POLYHEAD_TEST_LABELS")
    if labels:
        command += ["-L", "^(%s)$" % labels.replace(";", "|")]
    if options.label:
        command += ["-L", "^%s$" % options.label]
    if options.filter:
        command += ["-R", options.filter]
    left_out = [] if options.all or options.label == "long" else ["long"]
    if not os.environ.get("CI") and not options.label:
        tally.not_run = gpu.labels_without_device()
        left_out += sorted(tally.not_run)
    if suite.slice:
        command += ["-I", "%d,,%d" % suite.slice]
    if left_out:
        command += ["-LE", "^(%s)$" % "|".join(left_out)]
    step("test (%s)" % preset)
    child = dict(environment_of_children(), POLYHEAD_SWEEP_SEED=build.head_commit(), POLYHEAD_CPU_FEATURES=build.cpu_features(preset),
                 POLYHEAD_CACHE=os.environ.get("POLYHEAD_CACHE") or os.path.join(ROOT, "build", "kernels"))
    if suite.tier == "all":
        child.setdefault("POLYHEAD_TEST_ALL", suite.amount)
    call(command, check=False, env=child)
    tally.read(report, preset)
    return ["%s: %s in %.0f s; tests ran %.0f s" % (preset, compiled_since(preset, before), built - started, time.monotonic() - built)]


# The programs that compare GPU kernels with the reference, on the device in POLYHEAD_TEST_DEVICE. The second one compiles random problems
# in its process, so it needs libHalide and runs only with --all.
DEVICE_PROGRAMS = ["test_kernels_gpu", "test_gpu_sweep"]


def test_on_device(options):
    """Tests the GPU kernels on a device of this machine. Programs that are already built need only a driver and this checkout."""
    programs = DEVICE_PROGRAMS if options.all else DEVICE_PROGRAMS[:1]
    if not options.no_build:
        environment.ensure(*environment.NEEDS)
        build.configure(options.preset, environment.parts(), POLYHEAD_KERNEL_TIER="all", POLYHEAD_KERNEL_SAMPLE=build.head_commit())
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


def parts_of(suites, part):
    """What the part "i/n" has of the suites: consecutive pieces of them, so that it needs few builds. Without a part, all of them."""
    i, n = numbers_of_part(part)
    if n == 1:
        return suites
    if len(suites) == 1:
        return [suites[0]._replace(slice=(i, n))]
    pieces = [suite._replace(slice=(k + 1, suite.pieces)) for suite in suites for k in range(suite.pieces)]
    if n > len(pieces):
        raise Failure("part: found %d parts, expected at most %d" % (n, len(pieces)))
    return pieces[(i - 1) * len(pieces) // n:i * len(pieces) // n]


def test(options):
    if options.fuzz:
        return fuzzing.fuzz(options)
    if options.soak:
        return soaking.soak(options)
    if options.faults:
        return faults.test_faults(options)
    if options.device:
        return test_on_device(options)
    environment.ensure(*(need for need in environment.NEEDS if need != "check"))
    environment.install_for_several_builds()
    asked = [suite._replace(tier="all" if options.all else "fast") for suite in SUITES if suite.preset == options.preset]
    suites = asked or [Suite(options.preset, "all" if options.all else "fast")]
    if options.all and options.preset == "release" and not (options.label or options.filter):
        suites += SUITES
    tally, lines = Tally(), []
    for suite in parts_of(suites, options.part):
        try:
            lines += run_suite(suite, options, tally)
        except Failure as failure:
            tally.fail("%s: %s" % (suite.preset, failure))
    tally.judge_skips(read_skips(), fail=bool(os.environ.get("CI")))
    step("report")
    for line in lines + list(tally.lines()):
        print(line)
    print(tally.closing_line(), flush=True)
    return 0 if tally.failed == 0 and tally.passed > 0 else 1

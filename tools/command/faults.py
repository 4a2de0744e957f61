"""The subcommand test --faults: plants one fault after another into a copy of the tree, and looks whether the test that it names finds it.

A list tests/faults/NAME.txt has blocks of lines, with an empty line between them:

    fault: what is wrong, in a few words
    file:  the file, from the root
    old:   text that stands once in the file; ⏎ is an end of line
    new:   what stands there instead
    find:  the test that is to find it: PROGRAM FILTER... (Catch2), ctest REGEX, script FILE... [-k NAME], or fuzz NAME (30 seconds)
    build: the targets that the test needs (default: the program; the Python package for a script)
    equivalent: one sentence that proves that no test can find it (only then)
"""
import collections
import contextlib
import os
import re
import shlex
import shutil
import subprocess
import time

from . import build, environment, fuzzing
from .places import BUILD, PYTHON, ROOT, VENV, Failure, jobs, part_of, step, tool, tracked
from .places import environment as environment_of_children

FOLDER = os.path.join(ROOT, "tests", "faults")
TREE = os.path.join(BUILD, "faults")  # the copy, with a build of its own
LIMIT = 90  # seconds for one fault: compiling, linking, testing
WANTED, MOST_EQUIVALENT = 0.95, 0.08
Fault = collections.namedtuple("Fault", "part name file old new find build equivalent", defaults=("", ""))
KEYS = Fault._fields[2:]


def read_list(part):
    """The faults of one list; a Failure names what is wrong with it."""
    with open(os.path.join(FOLDER, part + ".txt"), encoding="utf-8") as file:
        blocks = re.split(r"\n\s*\n", "\n".join(line for line in file.read().splitlines() if not line.startswith("#")).strip())
    faults = []
    for block in blocks:
        values = {}
        for line in block.splitlines():
            key, colon, value = line.partition(":")
            if not colon or key in values or (key != "fault" and key not in KEYS):
                raise Failure("tests/faults/%s.txt: '%s' is no line of a fault" % (part, line))
            values[key] = value.strip()
        name = values.pop("fault", "")
        missing = [key for key in ("file", "old", "find") if not values.get(key)] + ["new"] * ("new" not in values)
        if not name or missing:
            raise Failure("tests/faults/%s.txt: %s: no %s" % (part, name or block.splitlines()[0], ", ".join(missing) or "name"))
        for key in ("old", "new"):
            values[key] = values[key].replace("\u23ce", "\n")
        faults.append(Fault(part, name, **values))
    return faults


def parts():
    return sorted(os.path.splitext(name)[0] for name in os.listdir(FOLDER) if name.endswith(".txt"))


def all_faults():
    faults = [fault for part in parts() for fault in read_list(part)]
    names = [fault.name for fault in faults]
    for name in names:
        if names.count(name) > 1:
            raise Failure("tests/faults: '%s' is there twice" % name)
    return faults


def planted(fault, root=ROOT):
    """The text of the file with the fault; a Failure where the old text does not stand there once."""
    path = os.path.join(root, fault.file)
    if not os.path.isfile(path):
        raise Failure("%s: there is no file %s" % (fault.name, fault.file))
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.count(fault.old) != 1 or fault.old == fault.new:
        raise Failure("%s: the old text stands %d times in %s, expected once" % (fault.name, text.count(fault.old), fault.file))
    return text.replace(fault.old, fault.new)


def targets_of(fault):
    words = shlex.split(fault.find)
    made = {"script": ["polyhead_python"], "fuzz": ["polyhead_fuzzers", "polyhead-generate", "polyhead_python"]}
    return fault.build.split() or made.get(words[0], [words[0]])


def commands_of(fault):
    """The command lines that are to find the fault."""
    folder = os.path.join(TREE, "build", "release")
    kind, *words = shlex.split(fault.find)
    if kind == "ctest":
        return [[tool("ctest"), "--test-dir", folder, "--no-tests=error", "--stop-on-failure", "-R", "^(%s)$" % words[0]]]
    if kind == "fuzz":
        return [["env", "POLYHEAD_FUZZ_SECONDS=30"] + fuzzing.command(words[0], TREE)]
    if kind == "script":
        scripts = [word for word in words if word.endswith(".py")]
        every = ["env", "POLYHEAD_TEST_ALL=1"]  # not a sample of its cases
        return [every + [PYTHON, os.path.join(TREE, "tests", script)] + words[len(scripts):] for script in scripts]
    launcher = ["setarch", "-R"] if kind.endswith("_tsan") and shutil.which("setarch") else []
    label = "[runtime]" if kind.startswith("test_runtime") else ""  # which hidden cases do not have
    return [launcher + [os.path.join(folder, "tests", kind), ",".join(word + label for word in words), "--abort"]]


def run(command, seconds):
    """The exit status and the output; None for the status when the time was over: then the whole group of processes is ended."""
    child = dict(environment_of_children(), PYTHONPATH=os.path.join(TREE, "build", "release", "python") + os.pathsep + os.path.join(TREE, "tests"),
                 POLYHEAD_SWEEP_SEED="planted faults", POLYHEAD_CACHE="off")
    process = subprocess.Popen(command, cwd=TREE, env=child, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True)
    try:
        text, _ = process.communicate(timeout=max(seconds, 1))
        return process.returncode, text
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate()
        return None, ""


def compile_targets(targets, seconds):
    return run([tool("ninja"), "-C", os.path.join(TREE, "build", "release"), "-j", str(jobs()), *targets], seconds)


def copy_tree(copy=TREE):
    """Brings the copy to the state of the tree. Files that are equal keep their times, so that little is compiled again."""
    wanted = set(tracked())
    for name in wanted:
        source, target = os.path.join(ROOT, name), os.path.join(copy, name)
        with open(source, "rb") as file:
            text = file.read()
        old = None
        if os.path.exists(target):
            with open(target, "rb") as file:
                old = file.read()
        if text != old:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(text)
            shutil.copymode(source, target)
    for folder, folders, files in os.walk(copy):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in (os.path.join(copy, "build"), os.path.join(copy, ".venv"))]
        for name in files:
            if os.path.relpath(os.path.join(folder, name), copy) not in wanted:
                os.unlink(os.path.join(folder, name))
    if not os.path.islink(os.path.join(copy, ".venv")):
        os.symlink(VENV, os.path.join(copy, ".venv"))


def configure():
    variables = dict(POLYHEAD_KERNEL_TIER="fast", POLYHEAD_KERNEL_SAMPLE="planted faults", POLYHEAD_CPU_FEATURES=build.cpu_features("release"),
                     **fuzzing.variables("release"), **{"POLYHEAD_BUILD_" + part: "ON" for part in environment.parts()})
    status, text = run([tool("cmake"), "--preset", "release"] + ["-D%s=%s" % item for item in sorted(variables.items())], 300)
    if status != 0:
        raise Failure("the copy cannot be configured:\n%s" % text[-2000:])


def check_without_faults(faults):
    """Every test that is named must pass as long as nothing is wrong."""
    targets = sorted({target for fault in faults for target in targets_of(fault)})
    step("build %s" % " ".join(targets))
    status, text = compile_targets(targets, 3600)
    if status != 0:
        raise Failure("the build without a fault failed:\n%s" % text[-2000:])
    seen = set()
    for fault in faults:
        if fault.find in seen:
            continue
        seen.add(fault.find)
        for command in commands_of(fault):
            status, text = run(command, 10 * LIMIT)
            if status != 0:
                raise Failure("%s does not pass without a fault:\n%s" % (fault.find, text[-2000:]))


def look_for(fault):
    """Whether the test that is named finds the fault, and in how many seconds."""
    started, path = time.monotonic(), os.path.join(TREE, fault.file)
    with open(path, encoding="utf-8") as file:
        good = file.read()
    wrong = planted(fault, TREE)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(wrong)
        status, text = compile_targets(targets_of(fault), LIMIT)
        if status is None:
            raise Failure("%s: compiling takes more than %d s" % (fault.name, LIMIT))
        if status != 0:
            raise Failure("%s does not compile:\n%s" % (fault.name, text[-1500:]))
        found = any(run(command, LIMIT - (time.monotonic() - started))[0] != 0 for command in commands_of(fault))
        return found, time.monotonic() - started
    finally:
        with open(path, "w", encoding="utf-8") as file:
            file.write(good)


def select(faults, options):
    if options.filter:
        faults = [fault for fault in faults if re.search(options.filter, fault.part + ": " + fault.name)]
    return part_of(faults, options.part)


def test_faults(options):
    environment.ensure(*environment.PACKAGE, "test")
    faults = select(all_faults(), options)
    for fault in faults:
        planted(fault)
    step("a copy of the tree in %s" % os.path.relpath(TREE, ROOT))
    os.makedirs(TREE, exist_ok=True)
    copy_tree()
    configure()
    real = [fault for fault in faults if not fault.equivalent]
    check_without_faults(real)
    step("%d faults" % len(real))
    counts = collections.defaultdict(lambda: [0, 0])
    for fault in real:
        found, seconds = look_for(fault)
        counts[fault.part][0] += found
        counts[fault.part][1] += 1
        print("%s %s: %s, in %.0f s by %s" % ("found" if found else "NOT FOUND", fault.part, fault.name, seconds, fault.find), flush=True)
    for part, (found, count) in sorted(counts.items()):
        print("%s: %d of %d found" % (part, found, count))
    found = sum(count[0] for count in counts.values())
    print("%d of %d found, %d equivalent" % (found, len(real), len(faults) - len(real)), flush=True)
    return 0 if found >= WANTED * len(real) else 1

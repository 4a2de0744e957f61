"""Configuring and building with the CMake and Ninja of .venv."""
import json
import os
import subprocess

from .places import BUILD, ROOT, Failure, call, environment, jobs, output, step, tool


def directory(preset):
    return os.path.join(BUILD, preset)


def presets():
    """The builds in CMakePresets.json: {name: CMake variables}."""
    with open(os.path.join(ROOT, "CMakePresets.json"), encoding="utf-8") as file:
        listed = json.load(file)["configurePresets"]
    return {one["name"]: one.get("cacheVariables", {}) for one in listed if not one.get("hidden")}


def cpu_features(preset):
    """The value of POLYHEAD_CPU_FEATURES for this preset: its own, or that of the caller's environment."""
    own = presets().get(preset, {}).get("POLYHEAD_CPU_FEATURES")
    return os.environ.get("POLYHEAD_CPU_FEATURES", "") if own is None else own


# Parts of the release build that need packages which not every command installs; other presets set their parts themselves.
PARTS = ("BENCH", "PYTHON", "TESTS")


def configure(preset="release", parts=(), **variables):
    """Configures a build if there is none, if a variable changed, or if a requested part is off. A part that is on stays on. When CMake
    files change, Ninja configures again by itself."""
    variables["POLYHEAD_CPU_FEATURES"] = cpu_features(preset)
    stamp = os.path.join(directory(preset), "polyhead-configured")
    known = []
    if os.path.exists(os.path.join(directory(preset), "build.ninja")) and os.path.exists(stamp):
        with open(stamp, encoding="utf-8") as file:
            known = file.read().splitlines()
    wanted = ["-D%s=%s" % item for item in sorted(variables.items())]
    on = {"-DPOLYHEAD_BUILD_%s=ON" % part: part for part in PARTS} if preset == "release" else {}
    wanted += [word for word, part in on.items() if part in parts or word in known]
    if known and all(item in known for item in wanted):
        return
    off = [word[:-2] + "OFF" for word in on if word not in wanted]
    kept = [item for item in known if item.split("=")[0] not in {word.split("=")[0] for word in wanted + off}]
    step("configure (%s)" % preset)
    call([tool("cmake"), "--preset", preset, "--log-level=STATUS" if not known else "--log-level=WARNING"] + wanted + off)
    with open(stamp, "w", encoding="utf-8") as file:
        file.write("\n".join(wanted + off + kept) + "\n")


def build(preset, targets, quiet=False):
    """Builds targets and shows Ninja's status on the terminal; quiet hides it."""
    command = [tool("cmake"), "--build", directory(preset), "--parallel", str(jobs()), "--target"] + list(targets)
    if quiet:
        command += ["--", "--quiet"]
    else:
        step("build %s" % " ".join(targets))
    if call(command, check=False) != 0:
        raise Failure("the build failed; its message is above")


def find_program(preset, target):
    """The path of a program in any folder of the build, or None if it was not built."""
    for folder in ("", "tools", "bench", "tests", os.path.join("tests", "gpu_sources"), os.path.join("examples", "010_minilm")):
        path = os.path.join(directory(preset), folder, target)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def program(preset, target):
    found = find_program(preset, target)
    if not found:
        raise Failure("%s was not built" % target)
    return found


def log_entries(preset):
    """{output: (milliseconds, time of the file)} of what Ninja made so far, from the newest entry of each output. CMake tells Ninja of a
    kernel's files by relative and by absolute paths; both are one entry here."""
    entries = {}
    try:
        with open(os.path.join(directory(preset), ".ninja_log"), encoding="utf-8") as file:
            for line in file:
                fields = line.rstrip("\n").split("\t")
                if len(fields) == 5:
                    name = os.path.relpath(os.path.join(directory(preset), fields[3]), directory(preset))
                    entries[name] = (int(fields[1]) - int(fields[0]), fields[2])
    except OSError:
        pass
    return entries


def head_commit():
    return (output(["git", "rev-parse", "HEAD"]) or "none").strip()


def ninja_idle(preset, targets):
    """True when there is nothing to build."""
    done = subprocess.run([tool("ninja"), "-C", directory(preset), "-n"] + list(targets), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env=environment(), cwd=ROOT)
    return done.returncode == 0 and "no work to do" in done.stdout

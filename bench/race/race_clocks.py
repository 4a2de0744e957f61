"""Clocks, power and temperature of the GPU while it works, as nvidia-smi logs them twice a second."""
import contextlib
import os
import shutil
import statistics
import subprocess

FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")
_log = None


def query(*more):
    return ["nvidia-smi", "--query-gpu=" + ",".join(FIELDS), "--format=csv,noheader,nounits", *more]


def now():
    """The fields as one line, or "" without nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return ""
    done = subprocess.run(query(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.strip().split("\n")[0] if done.returncode == 0 else ""


@contextlib.contextmanager
def logging(folder):
    """Logs to clocks.csv meanwhile."""
    global _log
    if not now():
        yield
        return
    _log = os.path.join(folder, "clocks.csv")
    with open(_log, "w", encoding="utf-8") as file:
        child = subprocess.Popen(query("-lms", "500"), stdout=file, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            child.terminate()
            child.wait()


def lines():
    if _log is None:
        return []
    with open(_log, encoding="utf-8") as file:
        return [line.split(", ") for line in file.read().split("\n") if line.count(", ") == len(FIELDS) - 1]


def mark():
    return len(lines())


def since(place):
    """{field: (lowest, median, highest)} of what was logged since the mark."""
    found = {}
    for number, name in enumerate(FIELDS):
        values = []
        for line in lines()[place:]:
            with contextlib.suppress(ValueError):
                values.append(float(line[number]))
        if values:
            found[name] = (min(values), statistics.median(values), max(values))
    return found


def summary():
    return since(0)

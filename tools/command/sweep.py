"""The subcommand bench --sweep: builds and runs its program, then draws what it measured."""
import os
import tempfile

from . import build, environment
from .places import PYTHON, ROOT, call, step
from .places import environment as child_environment

PROGRAM = "polyhead_bench_sweep"


def bench(options):
    environment.ensure("build", "bench", *(("arrays", "plots") if options.plot else ()))
    build.configure(parts=["BENCH"])
    build.build("release", [PROGRAM], quiet=build.ninja_idle("release", [PROGRAM]))
    child = child_environment()
    if options.avx2:
        child["POLYHEAD_CPU_FEATURES"] = build.cpu_features("avx2")
    with tempfile.TemporaryDirectory() as folder:
        results = os.path.abspath(options.json) if options.json else os.path.join(folder, "sweep.json")
        command = [build.program("release", PROGRAM), "--json", results]
        for name in ("threads", "rounds"):
            value = getattr(options, name)
            if value is not None:
                command += ["--" + name, value]
        step("bench --sweep")
        status = call(command, check=False, env=child)
        if options.plot and os.path.exists(results):
            child["PYTHONPATH"] = os.path.join(ROOT, "bench", "peers")
            call([PYTHON, os.path.join(ROOT, "bench", "sweep.py"), results, os.path.abspath(options.plot)], env=child)
    return status

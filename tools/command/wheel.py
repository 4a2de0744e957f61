"""polyhead wheel: the Python package as one file for pip."""
import glob
import os
import shutil

from . import build, environment
from .places import BUILD, PYTHON, ROOT, VENV, Failure, call, step
from .places import environment as child_environment


def make(options):
    environment.ensure(*environment.PACKAGE, "wheel")
    if not environment.has_python_headers():
        raise Failure("a wheel needs the headers of Python: apt-get install %s" % environment.PYTHON_HEADERS)
    made, target = os.path.join(BUILD, "wheel-made"), os.path.abspath(options.output)
    shutil.rmtree(made, ignore_errors=True)
    child = dict(child_environment(), **build.launcher())
    child["PATH"] = os.path.join(VENV, "bin") + os.pathsep + child["PATH"]
    step("wheel")
    call([PYTHON, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", made, ROOT], env=child)
    first, = glob.glob(os.path.join(made, "*.whl"))
    step("auditwheel")
    call([os.path.join(VENV, "bin", "auditwheel"), "repair", "--exclude", "libHalide.so", "--wheel-dir", target, first], env=child)
    newest = max(glob.glob(os.path.join(target, "polyhead-*.whl")), key=os.path.getmtime)
    print("%s: %.1f MB" % (os.path.relpath(newest), os.path.getsize(newest) / 1e6))
    return 0

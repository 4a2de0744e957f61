"""The Python package of the release build, and the subcommands that compare it with others: conformance and parity."""
import os

from . import build, environment, torch_folder
from .places import PYTHON, ROOT, Failure, call, step
from .places import environment as child_environment


def targets():
    """The build targets of the package; none if it cannot be built."""
    return ["polyhead_python"] if "PYTHON" in environment.parts() else []


def importing(**variables):
    """The environment of a child that imports the package, with further variables."""
    return dict(child_environment(), PYTHONPATH=os.path.join(build.directory("release"), "python"), **variables)


def ready(for_what, *needs):
    """Builds the package and installs the other needs; returns the environment of a child that imports the package."""
    environment.ensure(*environment.PACKAGE, *needs)
    if not environment.has_python_headers():
        raise Failure("%s needs the Python package; that needs: apt-get install %s" % (for_what, environment.PYTHON_HEADERS))
    build.configure(parts=["PYTHON"])
    if not build.ninja_idle("release", ["polyhead_python"]):
        build.build("release", ["polyhead_python"])
    return importing()


def conformance(options):
    child = ready("conformance", "test")
    step("ONNX node cases")
    target = os.path.abspath(options.output or os.path.join(ROOT, "docs", "conformance.md"))
    return call([PYTHON, os.path.join("tests", "conformance", "scorecard.py"), "--output", target], check=False, env=child)


def parity(options):
    child = ready("parity")
    python = torch_folder.ensure()
    step("parity with PyTorch in float64")
    command = [python, os.path.join("tests", "conformance", "torch_parity.py"), "--count", str(options.count), "--seed", str(options.seed)]
    return call(command, check=False, env=child)

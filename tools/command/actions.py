"""The subcommands setup, demo, generate, prune, explain, tune and check."""
import os
import sys

from . import build, checks, environment, help_texts, package
from .places import PYTHON, ROOT, Failure, call, step
from .places import environment as child_environment


def setup(options):
    environment.ensure(*(environment.NEEDS if options.all else environment.PACKAGE), force=options.force)
    if environment.has_python_headers():
        package.ready("setup")
        step("set up: .venv, with the Python package polyhead")
    else:
        step("set up: .venv")
    return 0


def demo(options):
    if options.generate:
        return demo_generate(options)
    environment.ensure("build", "arrays", "model")
    build.configure()
    program = "example_minilm_bf16" if options.dtype == "bf16" else "example_minilm"
    build.build("release", [program], quiet=build.ninja_idle("release", [program]))
    script = os.path.join(ROOT, "examples", "010_minilm", "run.py")
    device = ["--device", options.device] if options.device else []
    return call([PYTHON, script, "--build", build.directory("release"), "--dtype", options.dtype] + device + options.texts, check=False)


def demo_generate(options):
    for name, given in (("--device", options.device), ("--dtype bf16", options.dtype != "f32"), ("TEXT", options.texts)):
        if given:
            raise Failure("%s: found with --generate, expected one of them" % name)
    environment.ensure("build")
    build.configure()
    build.build("release", ["example_generate"], quiet=build.ninja_idle("release", ["example_generate"]))
    return call([os.path.join(build.directory("release"), "examples", "060_generate", "example_generate")], check=False)


def generate(options):
    if help_texts.of_a_model(options.arguments):
        run_module("generate --from", "polyhead.models.command", options.arguments)
    environment.ensure("build")
    build.configure()
    targets = ["polyhead-generate", "polyhead"]
    build.build("release", targets, quiet=build.ninja_idle("release", targets))
    sys.stdout.flush()
    # In the user's current folder, because -o is relative to it.
    os.execve(build.program("release", "polyhead-generate"), ["polyhead generate"] + options.arguments, child_environment())


def run_module(command, module, arguments, *needs, **variables):
    """Runs a command in the Python package of the release build, in the user's current folder."""
    # PYTHONSAFEPATH: not that folder, which may have another polyhead.
    child = dict(package.ready(command, *needs), PYTHONSAFEPATH="1", **variables)
    sys.stdout.flush()
    os.execve(PYTHON, [PYTHON, "-m", module] + arguments, child)


def prune(options):
    run_module("prune", "polyhead.prune_command", options.arguments)


def explain(options):
    run_module("explain", "polyhead.explain_command", options.arguments, POLYHEAD_TUNE_SOURCE=ROOT)


def tune(options):
    run_module("tune", "polyhead.tuning.command", options.arguments, "tune", "plots", POLYHEAD_TUNE_SOURCE=ROOT)


def check(options):
    environment.ensure("check", "tune", "plots", *environment.PACKAGE)
    sources = [] if options.quick else checks.sources_to_read(options.all)
    if sources:
        environment.ensure(*environment.NEEDS)
        build.configure(parts=environment.parts())
    return checks.run(fix=options.fix, sources=sources)

"""The subcommand test --soak MINUTES: calls of the kernels from many threads, that long."""
from . import build, environment
from .places import call, step
from .places import environment as environment_of_children


def soak(options):
    environment.ensure("build", "test")
    build.configure("release", ["TESTS"])
    build.build("release", ["test_soak"])
    child = dict(environment_of_children(), POLYHEAD_SOAK_SECONDS=str(options.soak * 60), POLYHEAD_SWEEP_SEED=build.head_commit())
    step("soak, %g minutes" % options.soak)
    status = call([build.program("release", "test_soak")], check=False, env=child)
    print("the soak %s" % ("is flat" if status == 0 else "failed"), flush=True)
    return status

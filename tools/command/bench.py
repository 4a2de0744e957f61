"""The subcommand bench: its commands, and how the program of each is built and run."""
import os
import shlex
import sys
import tempfile

from . import against, build, environment, gpu_race, peers
from .places import PYTHON, ROOT, call, step
from .places import environment as child_environment

PROGRAM, GPU_PROGRAM = "polyhead_bench", "polyhead_bench_gpu"
# Commands of polyhead_bench that are run as they stand: the help, and their options beside --threads, --rounds and --avx2.
PLAIN = {
    "kernels": ("every kernel of the table, as %% of this machine's measured peak", ("filter", "json")),
    "ratio": ("the speed targets: %% of peak, speed-up with threads, free compared with fixed lengths", ("filter", "no_tuned")),
    "storage": ("the kernels of bf16 and f16 beside those of f32", ()),
    "decode": ("how fast a decoding step reads its cache, compared with a plain read of the same memory", ()),
    "calls": ("what a call costs beside its kernel, and beside the threads of another pool", ()),
    "layer-step": ("one token through an attention layer with a cache, compared with a plain read of its weights and its cache", ()),
    "layer-features": ("what norms, rotation and gates cost an attention layer, compared with the layer without them", ()),
    "capacity": ("how the capacity of a key/value cache changes the time of a decoding step", ()),
    "pages": ("what pages cost a decoding step, compared with a contiguous cache", ()),
    "ragged": ("how fast packed tokens are, compared with equal lengths", ()),
    "append": ("what packed tokens cost an append to a cache, compared with a batch", ()),
    "backward": ("gradients of attention, as %% of this machine's measured peak, beside the forward kernel; what dropout and biases cost", ("filter",)),
    "latent": ("what value_in_key saves in a decoding step of multi-head latent attention", ()),
}
OPTIONS = {
    "filter": ("--filter", {"metavar": "REGEX", "help": "only the cases whose names match"}),
    "json": ("--json", {"metavar": "FILE", "help": "also write the results to FILE"}),
    "no_tuned": ("--no-tuned", {"action": "store_true", "help": "default tilings, whatever tuning records say"}),
    "rounds": ("--rounds", {"metavar": "N", "help": "rounds of each measurement (default 7)"}),
    "threads": ("--threads", {"metavar": "N", "help": "threads of the kernels"}),
    "avx2": ("--avx2", {"action": "store_true", "help": "the kernels for AVX2, also on a CPU that has more"}),
}


def add_commands(parser):
    commands = parser.add_subparsers(dest="measured", metavar="COMMAND", required=True)

    def add(name, action, text, *options):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(action=action)
        for option in options:
            flag, how = OPTIONS[option]
            command.add_argument(flag, **how)
        return command

    for name, (text, options) in PLAIN.items():
        add(name, run, text, *options, "threads", "rounds", "avx2")
    features = add("features", run_features, "the time of each mask, modifier and output relative to the plain kernel (docs/measured/benchmarks.md)",
                   "filter", "json", "threads", "rounds", "avx2")
    features.add_argument("--pairs", action="store_true", help="also every pair of them")
    features.add_argument("--against", metavar="CHECKOUT", help="all ratios are to the plain kernel of another checkout of polyhead, or of a commit")
    sweep = add("sweep", run_sweep, "the speed over query lengths 1 to 1024, for some head dims, plain and causal; lengths that fall behind their neighbours",
                "json", "threads", "rounds", "avx2")
    sweep.add_argument("--plot", metavar="FILE", help="also draw the speeds (.svg or .png)")
    schedulers = add("autoschedulers", run_autoschedulers, "compare polyhead's schedules with those of Halide's autoschedulers (docs/measured/benchmarks.md)",
                     "filter", "json", "threads", "rounds")
    schedulers.add_argument("--limit", metavar="SECONDS", help="time limit of each autoscheduler per case (default 300)")
    other = add("against", run_against, "the kernels tagged speed here and in another checkout, in turns", "filter", "threads", "rounds")
    other.add_argument("against", metavar="CHECKOUT", help="its folder; its bench must be built, by ./polyhead bench --filter NONE there")
    peers.add_options(add("peers", peers.bench, "compare with PyTorch, ONNX Runtime and OpenVINO, installed into build/peers-venv", "json", "threads", "rounds", "no_tuned"))
    race = add("gpu-race", gpu_race.bench, "kernels of tensor cores on a GPU in one run: layouts, answers, candidates in turns with PyTorch, clocks, profiles, one report", "rounds")
    race.add_argument("--pack", metavar="DIR", help="only write what the run needs into DIR, for a machine without compiler and network")
    modelled = add("gpu-model", run_gpu_model, "predict the speed of kernels of tensor cores on an H100 or A100 from their machine code, beside published kernels; measures nothing", "filter", "json")
    modelled.add_argument("--machine", choices=("a100", "h100"), help="default h100")
    modelled.add_argument("--tiling", metavar="KNOBS", help="knobs beside the frame, such as 'row_groups=12'")
    modelled.add_argument("--constants", action="store_true", help="also print what the model knows of the machine, with sources")
    modelled.add_argument("--write", action="store_true", help="write the tables of docs/measured/gpu.md")
    device = add("device", run_on_device, "the GPU kernels of the table, as %% of a device's measured peak", "filter", "json", "rounds")
    device.add_argument("device", metavar="API", help="cuda or opencl, with :N for another device than the first")
    device.add_argument("--longest", metavar="N", help="tokens of the long cases (default 4096)")
    device.add_argument("--no-build", action="store_true", help="use the program that is already built")


def with_command(arguments):
    """`bench` alone, and with options alone, is `bench kernels`."""
    if arguments[:1] == ["bench"] and (len(arguments) == 1 or (arguments[1].startswith("-") and arguments[1] not in ("-h", "--help"))):
        return ["bench", "kernels", *arguments[1:]]
    return arguments


def words_of(options, *names):
    """These options as they were given, as flags of a program."""
    words = []
    for name in names:
        value = getattr(options, name, None)
        if value is True:
            words.append("--" + name.replace("_", "-"))
        elif value not in (None, False):
            words += ["--" + name, os.path.abspath(value) if name == "json" else value]
    return words


def built(program=PROGRAM, needs=()):
    """The path of a program of the bench."""
    environment.ensure("build", "bench", *needs)
    build.configure(parts=["BENCH"])
    build.build("release", [program], quiet=build.ninja_idle("release", [program]))
    return build.program("release", program)


def child_of(options):
    """The environment of a program: with --avx2, that of a CPU without more."""
    return dict(child_environment(), POLYHEAD_CPU_FEATURES=build.cpu_features("avx2" if options.avx2 else "release"))


def run(options):
    command = [built(), options.measured, *words_of(options, "filter", "json", "threads", "rounds", "no_tuned")]
    step("bench " + options.measured)
    return call(command, check=False, env=child_of(options))


def run_features(options):
    child = child_of(options)
    command = [built(), "features", *words_of(options, "filter", "json", "threads", "rounds", "pairs")]
    if options.against is not None:
        command += ["--against", against.plain_library(options.against, child["POLYHEAD_CPU_FEATURES"])]
    step("bench features")
    return call(command, check=False, env=child)


def run_sweep(options):
    program, child = built(needs=("arrays", "plots") if options.plot else ()), child_of(options)
    with tempfile.TemporaryDirectory() as folder:
        results = os.path.abspath(options.json) if options.json else os.path.join(folder, "sweep.json")
        step("bench sweep")
        status = call([program, "sweep", "--json", results, *words_of(options, "threads", "rounds")], check=False, env=child)
        if options.plot and os.path.exists(results):
            child["PYTHONPATH"] = os.path.join(ROOT, "bench", "peers")
            call([PYTHON, os.path.join(ROOT, "bench", "sweep.py"), results, os.path.abspath(options.plot)], env=child)
    return status


def run_autoschedulers(options):
    program = built(needs=("arrays", "plots"))
    child = dict(child_environment(), PYTHONPATH=os.path.join(ROOT, "bench", "peers"), POLYHEAD_COMMAND=shlex.join(["./polyhead"] + sys.argv[1:]))
    step("bench autoschedulers")
    script = os.path.join(ROOT, "bench", "autoschedulers.py")
    return call([PYTHON, script, "--program", program, *words_of(options, "rounds", "threads", "limit", "filter", "json")], check=False, env=child)


def run_against(options):
    return against.bench(options, built)


def run_gpu_model(options):
    environment.ensure("build", "test")
    build.configure()
    build.build("release", ["polyhead-generate"], quiet=build.ninja_idle("release", ["polyhead-generate"]))
    step("bench gpu-model")
    command = [PYTHON, "-B", os.path.join(ROOT, "instruments", "gpu_model", "command.py"), "--generate", build.program("release", "polyhead-generate")]
    return call([*command, *words_of(options, "filter", "json", "machine", "tiling", "constants", "write")], check=False)


def run_on_device(options):
    program = build.program("release", GPU_PROGRAM) if options.no_build else built(GPU_PROGRAM)
    step("bench device")
    sys.stdout.flush()
    return call([program, *words_of(options, "device", "filter", "json", "rounds", "longest")], check=False, env=child_environment())

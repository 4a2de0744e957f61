"""Command line of ./polyhead: chooses the subcommand and prints each failure as one sentence."""
import argparse
import subprocess
import sys

from . import actions, bench, build, golden, gpu_table, help_texts, package, testing, wheel
from .places import Failure

EPILOG = """\
examples:
  ./polyhead demo "a man is eating food" "someone has a meal"
  ./polyhead generate minilm_layer --op mha --embed-dim 384 --num-heads 12 --kv-lengths -o out
  ./polyhead generate --from config.json --print
  ./polyhead prune --weights layer.safetensors --num-heads 12 --input x.npy --remove 6 -o out
  ./polyhead tune --op sdpa --num-heads 8 --head-dim 40 --budget 300 -o tuned.json
  ./polyhead explain minilm_layer --query-length 16
  ./polyhead test --label runtime
  ./polyhead bench --filter sdpa --threads 1 --json out.json
  ./polyhead bench peers --report peers.html
  ./polyhead test --device cuda
"""


def parser():
    top = argparse.ArgumentParser(
        prog="polyhead", description="Attention kernels generated for one problem and one machine.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--version", action="version", version="polyhead " + help_texts.version())
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    def add(name, action, text, **options):
        command = commands.add_parser(name, help=text, description=text, **options)
        command.set_defaults(action=action)
        return command

    setup = add("setup", actions.setup, "install what the Python package needs, and build it: .venv here, Debian packages when allowed")
    setup.add_argument("--all", action="store_true", help="install what any command needs")
    setup.add_argument("--force", action="store_true", help="remove .venv and make it again")
    demo = add("demo", actions.demo, "build and run all-MiniLM-L6-v2 on generated attention layers, or a small decoder")
    demo.add_argument("--generate", action="store_true", help="generate texts with a small random decoder instead: a cache in pages, sequences that join and leave")
    demo.add_argument("--device", metavar="API", help="run the layers on a GPU: cuda or opencl, with :N for another device than the first")
    demo.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="storage type; bf16 is shown beside f32 (default f32)")
    demo.add_argument("texts", nargs="*", metavar="TEXT", help="sentences to compare (default: a few of its own)")
    test = add("test", testing.test, "build and run the tests")
    test.add_argument("--all", action="store_true", help="every kernel of the table and the long tests, the CPU suite again for AVX2 and SSE4.1, and the builds with sanitizers")
    test.add_argument("--label", help="only the tests of this label")
    test.add_argument("--filter", metavar="REGEX", help="only the tests whose names match")
    test.add_argument("--preset", default="release", choices=list(build.presets()), help="build to test (default release)")
    test.add_argument("--device", metavar="API", help="only the GPU kernels, on a device of this machine: cuda, opencl or vulkan, with :N for another than the first")
    test.add_argument("--no-build", action="store_true", help="with --device: use the programs that are already built")
    test.add_argument("--fuzz", metavar="MINUTES", type=float, help="only the fuzzers, each that long")
    test.add_argument("--soak", metavar="MINUTES", type=float, help="only the soak test, that long: memory must not grow, answers must not change")
    test.add_argument("--faults", action="store_true", help="plant one fault after another into a copy of the tree: does the test that is to find it find it?")
    test.add_argument("--part", metavar="I/N", help="only the I-th of N parts: of the tests of every build, or with --faults of the list")
    bench.add_commands(add("bench", None, "measure kernels: one command for each question; without one, every kernel of the table"))
    generate = add("generate", actions.generate, "write NAME.a, NAME.h and NAME.json for one problem, or with --from config.json for all attention of a model", add_help=False)
    generate.add_argument("arguments", nargs=argparse.REMAINDER)
    prune = add("prune", actions.prune, "rank the heads of a layer on your data, and write it without those that should go", add_help=False)
    prune.add_argument("arguments", nargs=argparse.REMAINDER)
    tune = add("tune", actions.tune, "measure tilings of a problem on this machine, and keep the best as tuning records", add_help=False)
    tune.add_argument("arguments", nargs=argparse.REMAINDER)
    explain = add("explain", actions.explain, "say which variant of a kernel a call runs, and why not the variants before it", add_help=False)
    explain.add_argument("arguments", nargs=argparse.REMAINDER)
    table = add("gpu-table", gpu_table.make, "check and run every GPU kernel for every API, and write the tables of docs/measured/gpu.md")
    table.add_argument("--filter", metavar="REGEX", help="only kernels whose names match; prints the tables instead")
    conformance = add("conformance", package.conformance, "run the ONNX node cases of attention through Python, and write docs/measured/conformance.md")
    conformance.add_argument("--output", metavar="FILE", help="write the scorecard there instead")
    parity = add("parity", package.parity, "compare the Python package with PyTorch in float64 (downloads PyTorch at the first call)")
    parity.add_argument("--count", type=int, default=200, help="configurations of nn.MultiheadAttention (default 200)")
    parity.add_argument("--seed", type=int, default=1, help="seed of the configurations (default 1)")
    code = add("golden", golden.golden, "compare the code of every kernel of the table with the hashes in golden/, for fixed targets")
    code.add_argument("--write", action="store_true", help="write the hashes of the code as it is now")
    code.add_argument("--filter", metavar="REGEX", help="only the lines that match, such as '^lowered sdpa_.* avx2$'")
    code.add_argument("--part", metavar="I/N", help="only the I-th of N parts of the lines")
    wheel.add_command(add("wheel", wheel.make, "make the Python package as one file for pip: dist/polyhead-*.whl"))
    check = add("check", actions.check, "format, lint, spelling and the project's rules")
    check.add_argument("--fix", action="store_true", help="let clang-format and gersemi rewrite the files")
    check.add_argument("--quick", action="store_true", help="without clang-tidy (which reads only files that differ from the upstream branch)")
    check.add_argument("--all", action="store_true", help="clang-tidy reads every file")
    told = add("help", None, "this list, or the arguments of a command: polyhead help bench")
    told.add_argument("of", nargs="?", metavar="COMMAND", choices=sorted(commands.choices))
    told.set_defaults(action=lambda options: run([options.of, "--help"]) if options.of else top.print_help() or 0)
    return top


def run(argv):
    text = help_texts.answer(argv)
    if text is not None:
        print(text, end="")
        return 0
    # All words after `generate`, `explain`, `prune` and `tune` go to their programs, also options.
    top = parser()
    if argv and argv[0] in help_texts.COMMANDS:
        options = argparse.Namespace(action=getattr(actions, argv[0]), arguments=argv[1:])
    else:
        options = top.parse_args(bench.with_command(argv))
        if options.command is None:
            top.print_help()
            return 0
    try:
        return options.action(options)
    except Failure as failure:
        print("polyhead: %s" % failure, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print("polyhead: %s failed (exit status %d)" % (error.cmd[0] if isinstance(error.cmd, list) else error.cmd, error.returncode),
              file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130

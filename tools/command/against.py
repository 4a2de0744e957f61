"""bench against: the speed kernels of this checkout and of another one, measured alternately; a ratio per case. Another one's plain kernel."""
import json
import os
import re
import statistics
import subprocess
import tempfile

from . import kernel_table
from .places import BUILD, ROOT, Failure, call, environment as child_environment, output, step

ROUNDS = 7


def speed_kernels():
    """The names in kernels/table.txt with the tag speed."""
    return [name for name, tags, _ in kernel_table.kernels() if "speed" in tags]


def cases_of(program, threads):
    listed = subprocess.run([program, "--benchmark_list_tests"] + threads, capture_output=True, text=True, env=child_environment(), check=False)
    # Google Benchmark appends its own settings to the name of a case.
    return [re.sub(r"/iterations:.*$", "", name) for name in listed.stdout.split()]


def seconds_of(program, case, threads, folder):
    """The time of a call, measured in its own process: the median of two rounds, or None when the case cannot run."""
    path = os.path.join(folder, "case.json")
    command = [program, "--filter", "^%s(/|$)" % re.escape(case), "--rounds", "2", "--json", path] + threads
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=child_environment(), check=False)
    try:
        with open(path, encoding="utf-8") as file:
            runs = json.load(file)["benchmarks"]
        os.remove(path)
    except (OSError, ValueError, KeyError):
        return None
    medians = [run["real_time"] for run in runs if run.get("aggregate_name") == "median"]
    return medians[0] if len(medians) == 1 else None


def ratios_of(before, after, case, threads, rounds, folder):
    """The ratio time before / time after of every round; the first program alternates."""
    ratios = []
    for turn in range(rounds):
        pair = [before, after] if turn % 2 == 0 else [after, before]
        times = dict((program, seconds_of(program, case, threads, folder)) for program in pair)
        if None in times.values():
            return None
        ratios.append(times[before] / times[after])
    return ratios


def checkout_of(word):
    """The folder of another checkout: the given one, or a clone of this one at the given commit."""
    if os.path.isdir(word):
        return os.path.abspath(word)
    commit = output(["git", "rev-parse", "--verify", "--quiet", word + "^{commit}"])
    if commit is None:
        raise Failure("against: found '%s', expected a checkout of polyhead or a commit" % word)
    folder = os.path.join(BUILD, "against", commit.strip()[:12])
    if not os.path.isdir(folder):
        call(["git", "clone", "--quiet", "--no-checkout", ROOT, folder])
    call(["git", "-C", folder, "checkout", "--quiet", commit.strip()])
    return folder


def plain_library(word, cpu_features):
    """A library of the plain kernel of the bench of features, made by the generator of another checkout. Its first build takes minutes."""
    child = dict(child_environment(), POLYHEAD_CPU_FEATURES=cpu_features)
    folder = checkout_of(word)
    made = os.path.join(BUILD, "against", "plain")
    os.makedirs(made, exist_ok=True)
    step("plain kernel of %s" % os.path.relpath(folder, ROOT))
    problem = ["--op", "sdpa", "--num-heads", "12", "--head-dim", "64", "--dtype", "f32", "--tiling", "frame=query_lanes"]
    call([os.path.join(folder, "polyhead"), "generate", "plain", *problem, "-o", made], cwd=folder, env=child)
    library = os.path.join(made, "plain.so")
    call([os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-I" + made,
          "-I" + os.path.join(folder, "runtime", "include"), os.path.join(ROOT, "bench", "plain_of_checkout.cpp"),
          os.path.join(made, "plain.a"), os.path.join(folder, "build", "release", "runtime", "libpolyhead.a"),
          "-Wl,--exclude-libs,ALL", "-Wl,-Bsymbolic", "-lpthread", "-ldl", "-o", library])  # fmt: skip
    return library


def bench(options, built):
    """Prints the ratios; above 1 this checkout is faster. built() makes its program; that of the other one is there, from ./polyhead bench."""
    before = os.path.join(os.path.abspath(options.against), "build", "release", "bench", "polyhead_bench")
    if not os.path.isfile(before):
        raise Failure("against: found no %s; run ./polyhead bench --filter NONE in that checkout first" % before)
    after = built()
    threads = ["--threads", options.threads] if options.threads else []
    wanted = re.compile(options.filter or r"^(%s)/" % "|".join(speed_kernels()))
    in_before = set(cases_of(before, threads))
    cases = [case for case in cases_of(after, threads) if wanted.search(case) and case in in_before]
    if not cases:
        raise Failure("--filter: found no case that both checkouts have")
    rounds = int(options.rounds or ROUNDS)
    step("bench: time before / time after, median (interquartile range) of %d rounds" % rounds)
    medians = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            ratios = ratios_of(before, after, case, threads, rounds, folder)
            if ratios is None:
                print("%-56s cannot be run in both checkouts" % case, flush=True)
                continue
            quarters = statistics.quantiles(ratios, n=4, method="inclusive")
            medians.append(statistics.median(ratios))
            print("%-56s %6.3f (%.3f)" % (case, medians[-1], quarters[2] - quarters[0]), flush=True)
    if not medians:
        raise Failure("no case ran in both checkouts")
    print("%d cases: median %.3f, smallest %.3f" % (len(medians), statistics.median(medians), min(medians)))
    return 0

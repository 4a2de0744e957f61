"""Runs one fuzzer: the corpus of the tree first, then new inputs for some seconds. A finding is printed as a line for the corpus.

    drive.py --program build/release/tests/fuzz/fuzz_records --seconds 600
    drive.py --program ... --repeat              the corpus alone
    drive.py --program ... --merge               adds inputs of earlier runs that reach new code to the corpus
"""
import argparse
import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
NOT_RUN = "NOT RUN: the whole test: "  # what ./polyhead test counts
NEEDS = "clang with libFuzzer (apt-get install clang libclang-rt-dev)"
LITERAL = re.compile(r"\s*(b'(?:\\.|[^'\\])*'|b\"(?:\\.|[^\"\\])*\")(?:\s*\*\s*(\d+))?\s*(\+|$)")
# A hang is an input that takes longer than this on a busy machine; generation has limits of its own.
HANG_SECONDS = 500
SECONDS = int(os.environ.get("POLYHEAD_FUZZ_SECONDS", "4"))  # of new inputs, for each fuzzer


def read_line(line):
    """The bytes of a line such as: b'[' * 1000 + b'1'"""
    data, at = b"", 0
    while at < len(line):
        match = LITERAL.match(line, at)
        if match is None:
            raise SystemExit("corpus: cannot read %r" % line)
        data += ast.literal_eval(match.group(1)) * int(match.group(2) or 1)
        at = match.end()
    return data


def read_corpus(path):
    with open(path, encoding="utf-8") as file:
        return [read_line(line.strip()) for line in file if line.strip() and not line.startswith("#")]


def write_inputs(inputs, folder):
    os.makedirs(folder, exist_ok=True)
    for data in inputs:
        with open(os.path.join(folder, hashlib.sha256(data).hexdigest()[:16]), "wb") as file:
            file.write(data)


def contents(folder):
    result = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            result.append(file.read())
    return result


def environment(options):
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1:handle_abort=1", UBSAN_OPTIONS="print_stacktrace=1")
    env["HL_NUM_THREADS"] = "1"
    env.pop("POLYHEAD_TUNED", None)
    if options.generate:
        env["POLYHEAD_FUZZ_GENERATE"] = os.path.abspath(options.generate)
    return env


def flags(options, findings):
    seed = os.environ.get("POLYHEAD_SWEEP_SEED", "1")
    number = int(hashlib.sha256(seed.encode()).hexdigest()[:7], 16) + 1
    result = ["-artifact_prefix=%s/" % findings, "-timeout=%d" % HANG_SECONDS, "-rss_limit_mb=4096", "-seed=%d" % number, "-print_final_stats=1"]
    dictionary = os.path.join(HERE, "corpus", options.name + ".dict")
    return result + (["-dict=" + dictionary] if os.path.exists(dictionary) else [])


def shown(options, output, findings):
    """What to do with a finding: its last lines, and the input as a line for the corpus."""
    lines = output.splitlines()
    begin = next((i for i, line in enumerate(lines) if "ERROR" in line or "runtime error" in line), max(0, len(lines) - 60))
    print("\n".join(lines[max(0, begin - 3):begin + 60]))
    for data in contents(findings):
        print("FOUND by %s; a line for tests/fuzz/corpus/%s.txt:\n%r" % (options.name, options.name, data))
    return 1


def run(options, command, cwd, findings):
    done = subprocess.run(command, cwd=cwd, env=environment(options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = done.stdout.decode(errors="replace")
    if done.returncode == 0 and NOT_RUN in output:
        print(next(line for line in output.splitlines() if line.startswith(NOT_RUN)))
        return None
    if done.returncode != 0:
        return shown(options, output, findings)
    stats = dict(re.findall(r"^stat::(\w+):\s+(\d+)", output, re.M))
    covered = re.findall(r"cov: (\d+)", output)
    print("%s: %s runs, %s edges covered" % (options.name, stats.get("number_of_executed_units", "?"), covered[-1] if covered else "?"))
    return 0


def fuzz(options, folder):
    corpus, found, cwd, findings = (os.path.join(folder, name) for name in ("corpus", "found", "cwd", "findings"))
    for path in (corpus, cwd, findings):
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
    os.makedirs(found, exist_ok=True)
    path = os.path.join(HERE, "corpus", options.name + ".txt")
    write_inputs(read_corpus(path), corpus)
    common = flags(options, findings)
    if options.merge:
        fresh = os.path.join(folder, "merged")
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(corpus, fresh)
        # By edges alone: how often they are taken would keep thousands of inputs.
        merge = [options.program, "-merge=1", "-use_counters=0", "-max_len=%d" % min(options.longest, 200)]
        result = run(options, merge + common + [fresh, found], cwd, findings)
        known = contents(corpus)
        with open(path, "a", encoding="utf-8") as file:
            file.writelines("%r\n" % data for data in sorted(contents(fresh), key=len) if data not in known)
        return result
    # Long inputs of the corpus are run as they are; new ones stay short, where a fuzzer finds most.
    result = run(options, [options.program, "-runs=0", "-max_len=1000000"] + common + [corpus], cwd, findings)
    if result == 0 and not options.repeat:
        result = run(options, [options.program, "-max_total_time=%d" % options.seconds, "-max_len=%d" % options.longest] + common + [found, corpus],
                     cwd, findings)
    return result or 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--generate", help="polyhead-generate, which a fuzzer may hand what was accepted")
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--longest", type=int, default=1000, help="bytes of new inputs")
    parser.add_argument("--repeat", action="store_true")
    parser.add_argument("--merge", action="store_true")
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    options.name = os.path.basename(options.program)
    if not os.path.exists(options.program):
        print(NOT_RUN + "%s was not built, it needs %s" % (options.name, NEEDS))
        return 0
    return fuzz(options, os.path.join(os.path.dirname(options.program), "work", options.name))


if __name__ == "__main__":
    sys.exit(main())

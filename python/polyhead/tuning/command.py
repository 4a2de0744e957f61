"""The command ./polyhead tune: finds the fastest tiling of problems on this machine; checks, merges and compares files of records."""
from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import sys
import warnings
from typing import Any, Optional

from .. import device_count, num_threads
from ..error import Error, refuse
from . import records
from .log import Log
from .pool import cores
from .problem import LENGTHS, Task, flags_of_line, flags_of_name, kernel_table, parse
from .run import duel, recheck, tune
from .screen import Screen, print_table
from .search import STRATEGIES
from .session import Settings

EPILOG = """\
examples:
  ./polyhead tune --op sdpa --num-heads 8 --head-dim 40 --seq-len-q 300 --seq-len-kv 300 --budget 300
  ./polyhead tune layer_d768_h12 build/polyhead_kernels/attention.json -o tuned.json
  ./polyhead tune --problem "--op sdpa --num-heads 8 --head-dim 40" --problem "--op linear --embed-dim 96 --out-features 300"
  ./polyhead tune --check tuned.json
  ./polyhead tune --merge mine.json theirs.json -o tuned.json

All other flags are those of `polyhead generate`. Ctrl-C keeps what is known, the same command goes on from the log. See docs/guides/tuning.md.
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="polyhead tune", description="Measures tilings of a problem on this machine and keeps the best as tuning records.",
                                  epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    top.add_argument("kernels", nargs="*", metavar="KERNEL", help="a name of kernels/table.txt, or a manifest NAME.json that a build has written")
    top.add_argument("--problem", action="append", default=[], metavar="FLAGS", help="a problem as flags of polyhead generate; may be given several times")
    top.add_argument("-o", "--output", default="tuned.json", metavar="FILE", help="records go there, beside those that are in it (default tuned.json)")
    top.add_argument("--budget", type=float, default=600, metavar="SECONDS", help="for all problems together (default 600)")
    top.add_argument("--candidates", type=int, default=0, metavar="N", help="at most so many per problem and range of lengths (default: what the budget allows)")
    top.add_argument("--strategy", choices=sorted(STRATEGIES), default="tpe", help="how the next candidate is chosen (default tpe)")
    top.add_argument("--seed", type=int, default=1, help="of the strategy (default 1)")
    top.add_argument("--threads", type=int, default=1, help="of the kernels; 0: all (default 1)")
    top.add_argument("--jobs", type=int, default=0, help="candidates compiled side by side (default: cores)")
    top.add_argument("--target", default="host", help="Halide target that this machine can run (default host)")
    top.add_argument("--batch", type=int, default=1, help="batch rows of the calls (default 1)")
    top.add_argument("--lengths", default=",".join(map(str, LENGTHS)), metavar="LIST",
                     help="query lengths that a free length is tuned for: decoding, where one is at most 16, and what is longer (default %(default)s)")
    top.add_argument("--most", action="append", default=[], metavar="KNOB=N",
                     help="larger values of a knob are not tried, such as split_len=512 for records that more cores than these will use")
    top.add_argument("--timeout", type=float, default=120, metavar="SECONDS", help="after which a compiling candidate is given up (default 120)")
    top.add_argument("--no-confirm", action="store_true", help="do not check and time the written records once more")
    top.add_argument("--log", metavar="FILE", help="measurements, taken up again by the next run (default: OUTPUT.log)")
    top.add_argument("--check", metavar="FILE", help="measure the records of a file again")
    top.add_argument("--merge", nargs="+", metavar="FILE", help="join files of records into OUTPUT")
    top.add_argument("--diff", nargs=2, metavar="FILE", help="say how two files of records differ")
    top.add_argument("--measure", action="store_true", help="with --diff: time tilings that differ against each other")
    top.add_argument("--quiet", action="store_true", help="only results and what went wrong")
    return top


def tasks_of(options: argparse.Namespace, flags: list[str], screen: Screen) -> tuple[list[Task], int]:
    """(tasks, number of problems that were refused; a message was printed for each)."""
    table = kernel_table()
    lengths, most = lengths_of(options.lengths), most_of(options.most)
    wanted: list[tuple[str, Any]] = [(os.path.splitext(os.path.basename(name))[0], lambda name=name: flags_of_name(name, table))
                                     for name in options.kernels]
    wanted += [("problem %d" % (i + 1), lambda text=text: flags_of_line(text)) for i, text in enumerate(options.problem)]
    if flags:
        wanted.append(("problem", lambda: flags_of_line(shlex.join(flags))))
    if not wanted:
        raise refuse("problem: found none, expected flags of polyhead generate, --problem, or the name of a kernel")
    tasks, refused = [], 0
    for name, read in wanted:
        try:
            task = Task(name, read(), options.target, options.batch, lengths, most)
            task.segments()
            if task.device and not device_count(task.device):
                raise refuse("target: found no %s device, expected one that runs %s" % (task.device, task.full_target))
            tasks.append(task)
        except Error as error:
            refused += 1
            screen.result("polyhead tune: %s: %s" % (name, error))
    for knob in sorted(set(most).difference(*(task.knobs() for task in tasks)) if tasks else []):
        raise refuse("most: found '%s', expected a knob of these problems: %s" % (knob, ", ".join(sorted(set().union(*(t.knobs() for t in tasks))))))
    return tasks, refused


def lengths_of(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.strip().isdecimal() and 0 < int(word) <= 1 << 24 for word in words):
        raise refuse("lengths: found '%s', expected numbers such as 128,512,2048" % text)
    return tuple(sorted({int(word) for word in words}))


def most_of(words: list[str]) -> dict[str, int]:
    for word in words:
        if not re.fullmatch("[a-z_]+=[0-9]{1,9}", word):
            raise refuse("most: found '%s', expected a knob and a number such as split_len=512" % word)
    return {name: int(number) for name, number in (word.split("=") for word in words)}


def check(options: argparse.Namespace, settings: Settings, screen: Screen) -> int:
    rows = recheck(options.check, settings, 1.0, options.target, screen)
    print_table("records of %s, measured again" % options.check,
                ["problem", "lengths", "tiling", "ms then", "ms now", "of the default", "verdict"], rows)
    return 0 if all(row[-1] == "holds" or row[-1].startswith("not measured") for row in rows) else 1


def merge(options: argparse.Namespace, screen: Screen) -> int:
    count, complaints = records.merge(options.merge, options.output)
    for complaint in complaints:
        screen.say("warning: %s; the entry stays in the file" % complaint)
    print("%d records in %s" % (count, options.output))
    return 0


def diff(options: argparse.Namespace, settings: Settings, screen: Screen) -> int:
    rows, complaints = records.compare(*options.diff)
    for complaint in complaints:
        screen.say("warning: " + complaint)

    def side(record: dict[str, Any]) -> str:
        return "%s %s, %.4g ms" % (record["frame"], record["tiling"], record["median_ms"]) if record else ""

    def line(what: str, a: dict[str, Any], b: dict[str, Any]) -> list[str]:
        some = a or b
        measured = [duel(a, b, settings, 3.0, options.target) if what == "other tiling" else ""] if options.measure else []
        return [some["problem"], "%d:%s" % (some["min_seq_len_q"], some["max_seq_len_q"] or ""), what, side(a), side(b), *measured]

    if rows:
        print_table("", ["problem", "lengths", "what", *options.diff, *(["second / first"] if options.measure else [])], [line(*row) for row in rows])
    print("%d differences" % len(rows))
    return 0


def run(options: argparse.Namespace, flags: list[str]) -> int:
    screen = Screen(options.quiet)
    if options.threads < 0 or options.budget <= 0 or options.candidates < 0 or options.jobs < 0 or options.batch < 1 or options.timeout <= 0:
        raise refuse("tune: found a number that is too small, expected --budget, --batch and --timeout above 0, the others at least 0")
    settings = Settings(options.strategy, options.seed, options.threads or num_threads(), options.candidates, jobs=options.jobs or cores(),
                        compile_seconds=options.timeout)
    if options.merge:
        return merge(options, screen)
    if options.diff:
        return diff(options, settings, screen)
    if options.check:
        return check(options, settings, screen)
    tasks, refused = tasks_of(options, flags, screen)
    if not tasks:
        return 1
    records.check_output(options.output)  # a file that cannot be written is found before anything is measured
    log = Log(options.log or options.output + ".log")
    if log.broken:
        screen.say("%s: %d lines cannot be read and are ignored" % (log.path, log.broken))
    records.add(options.output, [])
    failures, interrupted = tune(tasks, settings, options.budget, options.output, log, screen, not options.no_confirm)
    log.close()
    screen.say("records in %s, measurements in %s" % (options.output, log.path))
    return 128 + _ended_by if interrupted else 1 if failures or refused else 0


def main(arguments: Optional[list[str]] = None) -> int:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    warnings.filterwarnings("ignore", module="optuna")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # keeps the results so far
        signal.signal(number, _interrupted)
    options, flags = parse(parser(), arguments)
    try:
        return run(options, flags)
    except (Error, OSError) as error:
        print("polyhead tune: %s" % error, file=sys.stderr)
        return 1
    except json.JSONDecodeError as error:
        print("polyhead tune: records: %s" % error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + _ended_by


_ended_by = signal.SIGINT


def _interrupted(number: int, _: Any) -> None:
    global _ended_by
    _ended_by = signal.Signals(number)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

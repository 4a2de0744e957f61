"""./polyhead bench peers: polyhead and other libraries, case by case, in turns."""

import argparse
import json
import os
import pathlib
import re
import sys
import tempfile

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from . import cases, costs, workers, linked, machine, markdown, measure, report, results, storage, table, whole

LAST = linked.ROOT / "build" / "peers.json"
STATUS = Console(stderr=True, highlight=False)


class Failure(Exception):
    """One sentence for the user."""


def parser():
    parser = argparse.ArgumentParser(prog="polyhead bench peers", description=__doc__)
    parser.add_argument("names", nargs="?", default="", help="libraries, with commas (default: all)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds per case (default 7)")
    parser.add_argument("--dtype", default="f32", help="the type of all tensors: f32, bf16 or f16 (default f32)")
    parser.add_argument("--threads", default="", help="numbers of threads, with commas (default: 1 and all cores)")
    parser.add_argument("--cases", default="", metavar="REGEX", help="only cases whose names match")
    parser.add_argument("--backward", action="store_true", help="cases with gradients instead of the others")
    parser.add_argument("--slice", type=float, default=0.1, help="seconds of a slice (default 0.1)")
    parser.add_argument("--cold-starts", type=int, default=5, metavar="N", help="of each library; 0: none (default 5)")
    parser.add_argument("--json", default=str(LAST), metavar="FILE", help="the results (default build/peers.json)")
    parser.add_argument("--report", metavar="FILE", help="also a page, and its plots as PNG beside it")
    parser.add_argument("--from", dest="source", metavar="FILE", help="measure nothing: table and report of these results")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has the other libraries")
    parser.add_argument("--adapters", metavar="DIR", help="a folder with peer_NAME.py of further libraries")
    parser.add_argument("--absent", action="append", default=[], metavar="NAME=REASON", help="a library that could not be installed")
    parser.add_argument("--roof", default=str(linked.ROOT / "build" / "release" / "bench" / "peers" / "polyhead_roof"), help="the program of that name")
    parser.add_argument("--build", default=str(linked.ROOT / "build" / "release"), help="build folder with polyhead-generate and libpolyhead.a")
    return parser


def threads_of(text):
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if not text:
        return sorted({1, cores})
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdigit() and 1 <= int(word) <= cores for word in words):
        raise Failure("--threads: found '%s', expected numbers from 1 to %d with commas; this process may use %d cores" % (text, cores, cores))
    return sorted({int(word) for word in words})


def chosen_peers(options):
    if options.adapters and not list(pathlib.Path(options.adapters).glob("peer_*.py")):
        raise Failure("--adapters: found no peer_NAME.py in %s" % options.adapters)
    known = workers.known_peers(options.python, options.adapters, options.backward)
    asked = [word.strip() for word in options.names.split(",") if word.strip()]
    for name in asked:
        if name not in known:
            raise Failure("--peers: found '%s', expected some of %s" % (name, ", ".join(known)))
    return [peer for name, peer in known.items() if not asked or name in asked or name == results.OURS]


def chosen_cases(pattern, backward):
    offered = cases.cases_with_gradients() if backward else cases.all_cases()
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise Failure("--cases: '%s' is no regular expression: %s" % (pattern, error)) from None
    found = [case for case in offered if wanted.search(case.name)]
    if "small" in pattern:
        found += [case for case in (cases.small_cases_with_gradients() if backward else cases.small_cases()) if wanted.search(case.name)]
    if not found:
        raise Failure("--cases: '%s' matches none of %s" % (pattern, ", ".join(case.name for case in offered)))
    return found


def checked(options):
    """Everything that can be refused is, before anything runs."""
    if options.rounds < 1 or options.slice <= 0 or options.cold_starts < 0:
        raise Failure("--rounds, --slice, --cold-starts: found %d, %g and %d, expected at least 1, more than 0 and at least 0"
                      % (options.rounds, options.slice, options.cold_starts))  # fmt: skip
    if options.dtype not in storage.BYTES:
        raise Failure("--dtype: found '%s', expected one of %s" % (options.dtype, ", ".join(storage.BYTES)))
    options.threads = threads_of(options.threads)
    options.peers, options.cases = chosen_peers(options), chosen_cases(options.cases, options.backward)
    absent = dict(word.partition("=")[::2] for word in options.absent)
    options.absent = {peer.name: absent[peer.name] for peer in options.peers if peer.name in absent}
    options.peers = [peer for peer in options.peers if peer.name not in absent]
    if not os.access(options.roof, os.X_OK):
        raise Failure("--roof: %s is no program; build polyhead_roof first" % options.roof)


def can_write(*paths):
    for path in paths:
        folder = pathlib.Path(path).resolve().parent if path else None
        if folder and not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise Failure("%s cannot be written: %s is no folder that may be written to" % (path, folder))


def measure_all(options, say):
    """The document of a run; Ctrl-C ends it early and keeps the cases that are complete."""
    document = dict(machine=machine.facts(), command=os.environ.get("POLYHEAD_COMMAND") or " ".join(["python", "-m", "compare", *sys.argv[1:]]),
                    dtype=options.dtype, rounds=options.rounds, slice_seconds=options.slice, threads=options.threads, interrupted=False, cases=[],
                    library_bytes={}, cold_start={}, cost_case="")  # fmt: skip
    with measure.Bench(options, say) as bench:
        versions = bench.versions()
        packages = {entry.peer.name: entry.hello.get("package") for entry in bench.entries}
        document["fma"] = bench.roofs[options.threads[0]].name
        document["missing"] = {**options.absent, **bench.missing}
        document["peers"] = {peer.name: dict(label=peer.label, version=versions[peer.name]) for peer in options.peers if peer.name in versions}
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=STATUS) as progress:
            task = progress.add_task("", total=len(options.cases))
            try:
                for case in options.cases:
                    progress.update(task, description="%-28s" % case.name)
                    document["cases"].append(bench.measure(case))
                    progress.advance(task)
            except KeyboardInterrupt:
                document["interrupted"] = True
    results.finish(document["cases"])
    if not document["interrupted"]:
        add_costs(document, options, packages, say)
    return document


def add_costs(document, options, packages, say):
    """Bytes and cold start, by the first case of attention with all its queries."""
    case = next((c for c in options.cases if c.shape["kind"] == "sdpa" and c.group in ("model", "head")), None)
    if case is None:
        return
    peers = [peer for peer in options.peers if peer.name in document["peers"]]
    with tempfile.TemporaryDirectory(prefix="polyhead-linked-") as folder:
        document["cost_case"] = case.name
        document["library_bytes"], document["cold_start"] = costs.all_costs(peers, packages, case, options, folder, say)


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        document["cases"], document["peers"], document["machine"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure("%s: %s; expected results of polyhead bench peers" % (path, error)) from None
    return document


def run(options):
    can_write(options.json, options.report)
    if options.source:
        document = read(options.source)
    else:
        checked(options)
        document = measure_all(options, lambda text: STATUS.print("polyhead: " + text))
        whole.write(options.json, json.dumps(document, indent=1, default=float) + "\n")
    if options.markdown:
        print("\n".join(markdown.lines(document)))
    else:
        table.show(document)
    if not options.source:
        print("results: %s" % options.json)
    if options.report:
        print("report: %s" % ", ".join(map(str, report.write(document, options.report))))
    ours = any(results.timed(r) for record in document["cases"] for r in record["results"] if r["peer"] == results.OURS)
    return 130 if document["interrupted"] else 0 if ours else 1


def main():
    try:
        return run(parser().parse_args())
    except (Failure, workers.Gone) as failure:
        print("polyhead: %s" % failure, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

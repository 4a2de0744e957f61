"""The bench of autoschedulers: each case under each of Halide's autoschedulers, a process of its own for each, then a table and JSON."""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys

from compare import machine, whole
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

# Name in the table, Halide's name, parameters. Adams2019 searches with a beam of 32 states unless told otherwise; 1 is its greedy search.
AUTOSCHEDULERS = (("Mullapudi2016", "Mullapudi2016", ()), ("Adams2019", "Adams2019", ()),
                  ("Adams2019, beam 1", "Adams2019", ("beam_size=1",)), ("Li2018", "Li2018", ()))  # fmt: skip


def last_sentence(text):
    """Halide's message without its prefix."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"^(Internal )?Error:? ?", "", lines[-1]) if lines else "it ended without a word"


def measure(program, case, frame, autoscheduler, options):
    """What the process says, or {"error": sentence}: an autoscheduler may throw, crash or search for hours."""
    name, parameters = autoscheduler[1:]
    command = [program, "autoschedulers", "--case", case, "--frame", frame, "--autoscheduler", name,
               "--rounds", str(options.rounds), "--threads", str(options.threads)]  # fmt: skip
    for parameter in parameters:
        command += ["--parameter", parameter]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=options.limit, check=False)
    except subprocess.TimeoutExpired:
        return {"error": "not done after %g s" % options.limit}
    if done.returncode < 0:
        said = ": " + last_sentence(done.stderr) if done.stderr.strip() else ""
        return {"error": "ended by %s%s" % (signal.Signals(-done.returncode).name, said)}
    try:
        return json.loads(done.stdout) if done.returncode == 0 else {"error": last_sentence(done.stderr)}
    except ValueError:
        return {"error": "its answer is no JSON: %s" % last_sentence(done.stdout)}


def words_of(result):
    """A result in the words of the table."""
    if "error" in result:
        return result["error"]
    return "%.1f (%.2f)" % (result["theirs_percent"]["median"], result["theirs_over_ours"]["median"])


def measure_all(program, cases, options, document):
    """Fills document["results"] and the file step by step, so that nothing measured is lost."""
    wanted = [(case["name"], frame, autoscheduler) for case in cases for frame in case["frames"] for autoscheduler in AUTOSCHEDULERS]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=len(wanted))
        for case, frame, autoscheduler in wanted:
            progress.update(bar, description="%s, %s, %s" % (case, frame, autoscheduler[0]))
            result = measure(program, case, frame, autoscheduler, options)
            document["results"].append({"case": case, "frame": frame, "autoscheduler": autoscheduler[0], **result})
            progress.console.print("%s, %s, %s: %s" % (case, frame, autoscheduler[0], words_of(result)), highlight=False, markup=False)
            progress.advance(bar)
            if options.json:
                whole.write(options.json, json.dumps(document, indent=1) + "\n")


def print_table(document):
    table = Table(title="%% of the FMA peak, and in brackets time / time of our schedule; %d thread%s, median of %d rounds" % (
        document["threads"], "" if document["threads"] == 1 else "s", document["rounds"]))  # fmt: skip
    names = [name for name, _, _ in AUTOSCHEDULERS]
    for name in ("case", "formulation"):
        table.add_column(name, overflow="fold")
    for name in ("ours", *names):
        table.add_column(name, justify="right", overflow="fold")
    rows, notes = {}, []
    for result in document["results"]:
        rows.setdefault((result["case"], result["frame"]), {})[result["autoscheduler"]] = result
    for (case, frame), found in rows.items():
        ours = [result["ours_percent"]["median"] for result in found.values() if "error" not in result]
        cells = ["%.1f" % statistics.median(ours) if ours else "–"]
        for name in names:
            result = found.get(name, {"error": "not measured"})
            if "error" in result:
                notes.append("%s, %s, %s: %s" % (case, frame, name, result["error"]))
            cells.append("none" if "error" in result else words_of(result))
        table.add_row(case, frame, *cells)
    console = Console()
    console.print(table)
    for note in notes:
        console.print(note, highlight=False, markup=False)
    busy = [result["others_busy"]["median"] for result in document["results"] if "error" not in result]
    if busy:
        console.print("others busy: %.2f cores (median); above 0.1 repeat on a quiet machine" % statistics.median(busy), highlight=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="polyhead_bench")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--limit", type=float, default=300, help="seconds for one autoscheduler on one case, measurement included")
    parser.add_argument("--filter", default="", help="only the cases whose names match")
    parser.add_argument("--json", help="also write the results to this file")
    options = parser.parse_args()
    listed = subprocess.run([options.program, "autoschedulers", "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    try:
        known = json.loads(listed)
        cases = [case for case in known if re.search(options.filter, case["name"])]
    except re.error as error:
        print("bench autoschedulers: --filter is no regular expression: %s" % error, file=sys.stderr)
        return 2
    if not cases:
        names = ", ".join("'%s'" % case["name"] for case in known)
        print("bench autoschedulers: --filter '%s' matches no case: expected one of %s" % (options.filter, names), file=sys.stderr)
        return 2
    document = {"machine": machine.facts(), "command": os.environ.get("POLYHEAD_COMMAND", ""), "threads": options.threads,
                "rounds": options.rounds, "limit_seconds": options.limit, "results": []}  # fmt: skip
    stopped = 0
    try:
        if options.json:
            whole.write(options.json, json.dumps(document, indent=1) + "\n")  # an error of writing appears before an hour of measuring
        measure_all(options.program, cases, options, document)
    except KeyboardInterrupt:
        stopped = 130
    except OSError as error:
        print("bench autoschedulers: %s cannot be written: %s" % (options.json, error.strerror), file=sys.stderr)
        return 1
    print_table(document)
    return stopped


if __name__ == "__main__":
    sys.exit(main())

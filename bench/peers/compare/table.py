"""The results as tables on the terminal."""

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import cases, results

STYLES = {"faster": "green", "slower": "red", "level": ""}


def ratio_text(result):
    if "ratio" in result:
        ratio = result["ratio"]
        return Text("%.2f ±%.2f" % (ratio["median"], (ratio["q3"] - ratio["q1"]) / 2), style=STYLES[results.verdict(ratio)])
    if "error" in result:
        return Text("error", style="red")
    return Text("%.3g ms" % result["ms"]["median"] if "ms" in result else "no" if "missing" in result else "–", style="dim")


def of_threads(document, threads, labels):
    others = [name for name in labels if name != results.OURS]
    title = "%s: time of others / time of polyhead, above 1 polyhead is faster" % results.title(document, threads)
    table = Table(title=title, caption="median of %d rounds ± half the interquartile range" % document["rounds"])
    for name in ("case", "shape"):
        table.add_column(name, no_wrap=True)
    for name in ("polyhead ms", "% of peak", *(labels[name] for name in others)):
        table.add_column(name, justify="right", no_wrap=True)
    steps = any(r["group"] == "step" for r in document["cases"])
    if steps:
        table.add_column("MiB each", justify="right", no_wrap=True)
    for group in cases.GROUPS:
        for record in (r for r in document["cases"] if r["group"] == group):
            found = {r["peer"]: r for r in record["results"] if r["threads"] == threads}
            ours = found.get(results.OURS, {})
            peak = ours.get("percent_of_read") or ours.get("percent_of_peak")
            unit = " of read" if "percent_of_read" in ours else ""
            table.add_row(record["name"], record["words"], "%.3g" % ours["ms"]["median"] if "ms" in ours else ratio_text(ours),
                          "%.0f%s" % (peak["median"], unit) if peak else "–", *(ratio_text(found.get(name, {})) for name in others), *([results.memory(record, threads, labels)] if steps else []))  # fmt: skip
        table.add_section()
    return table


def of_costs(document):
    table = Table(title="Bytes on disk and seconds to the first answer of a fresh process (%s, %s)" % (document["cost_case"], results.dtype_of(document)))
    table.add_column("library", no_wrap=True)
    for name in ("MB", "seconds"):
        table.add_column(name, justify="right")
    for row in results.costs(document):
        table.add_row(*row)
    return table


def faults(document, labels):
    """A line per result that is none."""
    for name, reason in document["missing"].items():
        yield "%s: not measured: %s" % (labels.get(name, name), reason)
    for record in document["cases"]:
        seen = set()
        for result in record["results"]:
            if "error" in result and result["peer"] not in document["missing"] and (result["peer"], result["error"]) not in seen:
                seen.add((result["peer"], result["error"]))
                yield "%s, %s: %s" % (record["name"], labels[result["peer"]], result["error"])


def show(document):
    console = Console(width=None if sys.stdout.isatty() else 170, highlight=False)
    labels = {name: peer["label"] for name, peer in document["peers"].items()}
    for threads in document["threads"]:
        console.print(of_threads(document, threads, labels))
        for sentence in results.sentences(document, threads):
            console.print(sentence + "\n")
    if document["library_bytes"] or document["cold_start"]:
        console.print(of_costs(document))
    for line in faults(document, labels):
        console.print(Text(line, style="yellow"))

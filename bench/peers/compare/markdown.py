"""The results as a Markdown table: what docs/benchmarks.md shows."""

from . import cases, machine, results


def cell(result):
    if result and "ratio" in result:
        ratio = result["ratio"]
        text = "%.2f (%.2f–%.2f)" % (ratio["median"], ratio["q1"], ratio["q3"])
        return "**%s**" % text if results.verdict(ratio) == "slower" else text
    return "error" if result and "error" in result else "–"


def rate(result):
    found = result.get("percent_of_read") or result.get("percent_of_peak")
    return "%.0f%s" % (found["median"], " of read" if "percent_of_read" in result else "") if found else "–"


def lines(document):
    """Machine, then a table per number of threads; bold where another library is faster."""
    labels = {name: peer["label"] for name, peer in document["peers"].items()}
    others = [name for name in labels if name != results.OURS]
    found = document["machine"]
    versions = ", ".join("%s %s" % (peer["label"], peer["version"]) for peer in document["peers"].values())
    yield "%s; %s; commit %s; %s." % (machine.sentence(found), versions, found["commit"], found["date"])
    for threads in document["threads"]:
        yield ""
        yield "| case, %d thread%s | shape | ms | %% of peak | %s |" % (threads, "" if threads == 1 else "s", " | ".join(labels[n] for n in others))
        yield "|" + "---|" * (4 + len(others))
        for group in cases.GROUPS:
            for record in (r for r in document["cases"] if r["group"] == group):
                by_peer = {r["peer"]: r for r in record["results"] if r["threads"] == threads}
                ours = by_peer.get(results.OURS, {})
                ms = "%.3g" % ours["ms"]["median"] if "ms" in ours else "–"
                yield "| `%s` | %s | %s | %s | %s |" % (record["name"], record["words"], ms, rate(ours), " | ".join(cell(by_peer.get(n)) for n in others))

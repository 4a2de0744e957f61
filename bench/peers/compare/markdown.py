"""The results as Markdown: what README and docs/measured/benchmarks.md show."""

from . import cases, machine, results


def cell(result):
    if result and "ratio" in result:
        ratio = result["ratio"]
        text = "%.2f (%.2f–%.2f)" % (ratio["median"], ratio["q1"], ratio["q3"])
        return "**%s**" % text if results.verdict(ratio) == "slower" else text
    return "error" if result and "error" in result else "no" if result and "missing" in result else "–"


def rate(result):
    found = result.get("percent_of_read") or result.get("percent_of_peak")
    return "%.0f%s" % (found["median"], " of read" if "percent_of_read" in result else "") if found else "–"


def head(document):
    found = document["machine"]
    versions = ", ".join("%s %s" % (peer["label"], peer["version"]) for peer in document["peers"].values())
    return "%s; %s; commit %s; %s." % (machine.sentence(found), versions, found["commit"], found["date"])


def of_threads(document, threads, groups, names=()):
    """A table of all cases of these groups, or of those with these names; bold where another library is faster."""
    labels = {name: peer["label"] for name, peer in document["peers"].items()}
    others = [name for name in labels if name != results.OURS]
    steps = "step" in groups and any(r["group"] == "step" for r in document["cases"])
    heads = ["case, " + results.title(document, threads), "shape", "ms", "% of peak", *(labels[n] for n in others), *(["MiB of " + ", ".join(labels.values())] if steps else [])]
    yield "| %s |" % " | ".join(heads)
    yield "|" + "---|" * len(heads)
    for group in groups:
        for record in (r for r in document["cases"] if r["group"] == group and (not names or r["name"] in names)):
            by_peer = {r["peer"]: r for r in record["results"] if r["threads"] == threads}
            ours = by_peer.get(results.OURS, {})
            ms = "%.3g" % ours["ms"]["median"] if "ms" in ours else "–"
            cells = ["`%s`" % record["name"], record["words"], ms, rate(ours), *(cell(by_peer.get(n)) for n in others)]
            yield "| %s |" % " | ".join(cells + ([results.memory(record, threads, labels)] if steps else []))


def of_costs(document):
    """What is linked or installed, and how long the first answer takes."""
    yield "| library | MB | seconds to the first answer |"
    yield "|---|---|---|"
    for row in results.costs(document):
        yield "| %s | %s | %s |" % row


def lines(document, groups=tuple(cases.GROUPS), threads=None, names=()):
    """The machine; per number of threads a table of these groups of cases, and what all cases together say; what the libraries weigh, unless
    only cases of these names, or no tables (no groups), are wanted."""
    yield head(document)
    for number in document["threads"]:
        if threads is None or number in threads:
            if groups:
                yield ""
                yield from of_threads(document, number, groups, names)
        for sentence in results.sentences(document, number):
            yield ""
            yield sentence
    if groups and not names and (document["library_bytes"] or document["cold_start"]):
        yield ""
        yield from of_costs(document)

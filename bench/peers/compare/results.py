"""The results of the rounds: % of the peak, ratios within rounds, counts of wins and losses."""

import numpy

AHEAD = 0.05  # the least lead that a reader can rely on on another machine
OURS = "polyhead"


def spread(values):
    """Median and quartiles."""
    q1, median, q3 = (float(v) for v in numpy.percentile(values, (25, 50, 75)))
    return dict(median=median, q1=q1, q3=q3)


def timed(result):
    return bool(result.get("seconds")) and "error" not in result


def result_of(record, peer, threads):
    """The timed result, or None."""
    return next((r for r in record["results"] if r["peer"] == peer and r["threads"] == threads and timed(r)), None)


def add_rates(record):
    """Milliseconds, GFLOP/s and % of the roof of the same round."""
    for result in filter(timed, record["results"]):
        roofs = record["roofs"][str(result["threads"])]
        seconds = numpy.array(result["seconds"])
        result["ms"] = spread(seconds * 1e3)
        result["gflops"] = spread(record["flops"] / seconds / 1e9)
        result["percent_of_peak"] = spread(100 * record["flops"] / seconds / 1e9 / numpy.array(roofs["fma_gflops"]))
        if record["key_value_bytes"]:
            result["percent_of_read"] = spread(100 * record["key_value_bytes"] / seconds / 1e9 / numpy.array(roofs["read_gbs"]))


def verdict(ratio):
    """A difference counts when the middle half of the rounds agrees on it."""
    return "faster" if ratio["q1"] > 1 else "slower" if ratio["q3"] < 1 else "level"


def add_ratios(record):
    """theirs / ours of each round: above 1 ours is faster. "best" is the fastest other library of each round."""
    for result in record["results"]:
        ours = result_of(record, OURS, result["threads"])
        if timed(result) and ours and result is not ours:
            result["ratio"] = spread(numpy.array(result["seconds"]) / numpy.array(ours["seconds"]))
    record["best"] = {}
    for threads in record["roofs"]:
        ours = result_of(record, OURS, int(threads))
        others = [r for r in record["results"] if r["peer"] != OURS and r["threads"] == int(threads) and timed(r)]
        if ours and others:
            fastest = min(others, key=lambda r: r["ms"]["median"])
            ratio = spread(numpy.min([r["seconds"] for r in others], axis=0) / numpy.array(ours["seconds"]))
            record["best"][threads] = dict(ratio, peer=fastest["peer"], verdict=verdict(ratio))


def summary(records, threads):
    """Counts, the geometric mean against the fastest other, the best and the worst case; None when nothing was compared."""
    found = {r["name"]: r["best"][str(threads)] for r in records if str(threads) in r["best"]}
    if not found:
        return None
    medians = {name: best["median"] for name, best in found.items()}
    counts = {word: sum(best["verdict"] == word for best in found.values()) for word in ("faster", "level", "slower")}
    return dict(counts, cases=len(found), ahead=sum(median >= 1 + AHEAD for median in medians.values()), mean=float(numpy.exp(numpy.mean(numpy.log(list(medians.values()))))),
                most=max(medians, key=medians.get), least=min(medians, key=medians.get))  # fmt: skip


def dtype_of(document):
    """The type of all tensors. Files that do not name it are of f32."""
    return document.get("dtype", "f32")


def threads_text(threads):
    return "%d thread%s" % (threads, "" if threads == 1 else "s")


def title(document, threads):
    """What a table or plot is about."""
    return "%s, %s" % (dtype_of(document), threads_text(threads))


def sentence(records, threads):
    """What all cases together say, or None when nothing was compared."""
    found = summary(records, threads)
    return found and ("%s: against the fastest other library of each round polyhead is faster in %d of %d cases, by %.0f %% or more in %d, level in %d, "
                      "slower in %d; geometric mean %.2f" % (threads_text(threads), found["faster"], found["cases"], 100 * AHEAD, found["ahead"],
                                                             found["level"], found["slower"], found["mean"]))  # fmt: skip


def sentences(document, threads):
    """What the cases say; of those with gradients, and of whole training steps, each library apart."""
    apart = {"backward": "gradients", "step": "training steps"}
    found = sentence([r for r in document["cases"] if r["group"] not in apart], threads)
    if found:
        yield found
    for group, title in apart.items():
        records = [r for r in document["cases"] if r["group"] == group]
        means = ["%s %.2f (%d cases)" % (document["peers"][peer]["label"], *mean) for peer, mean in means_by_peer(records, threads).items()]
        if means:
            yield "%s, %s: time of others / time of polyhead, geometric mean: %s" % (title, threads_text(threads), ", ".join(means))


def memory(record, threads, names):
    """MiB of a call and its tensors, of these libraries, in words; "" but for training steps."""
    if record["group"] != "step":
        return ""
    found = [result_of(record, name, threads) for name in names]
    return ", ".join("%.0f" % (r["memory_bytes"] / 2**20) if r and r.get("memory_bytes") else "–" for r in found)


def costs(document):
    """(library, MB, seconds to the first answer) in words, of every library of which one is known."""
    for name in {**document["library_bytes"], **document["cold_start"]}:
        size, start = document["library_bytes"].get(name, {}), document["cold_start"].get(name, {})
        yield (document["peers"].get(name, {}).get("label", name), "%.1f" % (size["bytes"] / 1e6) if "bytes" in size else "–",
               "%.3f" % start["median"] if "median" in start else "–")  # fmt: skip


def means_by_peer(records, threads):
    """{peer: (geometric mean of theirs / ours, cases)} over the cases that both have."""
    ratios = {}
    for record in records:
        for result in record["results"]:
            if result["threads"] == threads and "ratio" in result:
                ratios.setdefault(result["peer"], []).append(result["ratio"]["median"])
    return {peer: (float(numpy.exp(numpy.mean(numpy.log(values)))), len(values)) for peer, values in ratios.items()}


def finish(records):
    for record in records:
        add_rates(record)
        add_ratios(record)

"""The report of a race: tables of medians, what was promised, and what was not run."""
import json
import os
import statistics

# Promised on an H100 (f16 and bf16; d 64, causal, d 128, causal): TFLOP/s of wgmma, and ratios to PyTorch.
WGMMA_TFLOPS = {(64, False): 350, (64, True): 270, (128, False): 450, (128, True): 360}
OF_DEFAULT, OF_FLASH, OF_LAYER, OF_DECODING, OF_EFFICIENT = 0.75, 0.9, 0.5, 0.9, 0.75


def medians(race):
    return {name: statistics.median(seconds) for name, seconds in race["seconds"].items() if seconds}


def ratio(race, name, other):
    """Speed of one side / speed of another, in the median of the rounds; None where one did not race."""
    mine, theirs = race["seconds"].get(name), race["seconds"].get(other)
    return statistics.median(b / a for a, b in zip(mine, theirs)) if mine and theirs else None


def predicted(name, package):
    return package.get("predicted", {}).get(name)


def lines_of_race(race, package):
    lines = ["**%s**" % race["title"], ""]
    if race["clocks"]:
        lines += ["clocks of the race: " + ", ".join("%s %g to %g, median %g" % (name, low, high, middle) for name, (low, middle, high) in race["clocks"].items()), ""]
    lines += ["| side | ms | quartiles | TFLOP/s | predicted | torch default = 1 |", "|---|---|---|---|---|---|"]
    for name, middle in sorted(medians(race).items(), key=lambda side: side[1]):
        seconds = sorted(race["seconds"][name])
        low, high = (statistics.quantiles(seconds, n=4)[::2] if len(seconds) > 1 else (middle, middle))
        relative = ratio(race, name, "torch default")
        foretold = predicted(name, package)
        lines.append("| %s | %.4f | %.4f to %.4f | %.1f | %s | %s |" % (name, 1e3 * middle, 1e3 * low, 1e3 * high, race["flops"] / middle / 1e12,
                                                                        "%.0f" % foretold if foretold else "", "%.2f" % relative if relative else ""))
    lines += ["| %s | not run: %s | | | | |" % (name, note) for name, note in race["notes"].items()]
    return lines + [""]


def best(race, word):
    """The name of the fastest side whose name has this word, or None."""
    found = {name: seconds for name, seconds in medians(race).items() if word in name and not name.startswith("torch")}
    return min(found, key=found.get) if found else None


def promises(races):
    """[(what, reached or None, wanted)]; None: not run."""
    found = []
    for race in races:
        kernel, title = race["kernel"], race["title"]
        if kernel["op"] == "mha" and kernel["dtype"] == "f32":
            continue  # nothing was promised
        if kernel["op"] == "mha":
            found.append((title + ": of nn.MultiheadAttention", ratio(race, best(race, "race"), "torch MultiheadAttention"), OF_LAYER))
        elif "decode" in kernel["name"]:
            found.append((title + ": of PyTorch's default", ratio(race, best(race, "race"), "torch default"), OF_DECODING))
        elif kernel["dtype"] == "f32":
            found.append((title + ": tf32 of its efficient path", ratio(race, best(race, "tf32x3"), "torch EFFICIENT_ATTENTION"), OF_EFFICIENT))
        else:
            group, warps = best(race, "wgmma"), best(race, "_mma")
            reached = race["flops"] / medians(race)[group] / 1e12 if group else None
            found += [(title + ": wgmma, TFLOP/s", reached, WGMMA_TFLOPS.get((kernel["head_dim"], kernel["causal"]), 0)),
                      (title + ": wgmma of PyTorch's default", ratio(race, group, "torch default"), OF_DEFAULT),
                      (title + ": mma.sync of its FLASH backend", ratio(race, warps, "torch FLASH_ATTENTION"), OF_FLASH)]
    return found


def lines_of_promises(races):
    lines = ["| promise | reached | at least | |", "|---|---|---|---|"]
    for what, reached, wanted in promises(races):
        word = "not run" if reached is None else "kept" if reached >= wanted else "MISSED"
        lines.append("| %s | %s | %g | %s |" % (what, "" if reached is None else "%.2f" % reached, wanted, word))
    return lines + [""]


def best_and_worst(races, package):
    """[(kernel, shape)] of the kernel that is nearest to its prediction and of the one that is farthest from it; without predictions, by TFLOP/s."""
    scores = {}
    for race in races:
        for name, seconds in medians(race).items():
            if not name.startswith("torch") and race["kernel"]["op"] == "sdpa" and "decode" not in name:
                scores[(name, tuple(race["shape"]))] = race["flops"] / seconds / 1e12 / (predicted(name, package) or 1)
    ordered = sorted(scores, key=scores.get)
    return ordered[-1:] + ordered[:1] if len(ordered) > 1 else ordered


def lines(found, faults):
    package = found["package"]
    text = ["# A race on %s" % (found["device"] or "no device"), "",
            "%s; made of commit %s; %d faults." % (found.get("machine", ""), package.get("commit", "unknown"), faults), ""]
    for what in ("layouts", "answers"):
        wrong = ["%s %s: %s" % (name, one["shape"], one["error"]) for name, all_ in found[what].items() for one in all_ if one["error"]]
        text += ["%s: %d kernels checked, %d calls wrong." % (what, len(found[what]), len(wrong)), ""] + ["- " + line for line in wrong]
    if found["unsupported"]:
        text += ["not for this device: " + ", ".join(found["unsupported"])]
    if found["races"]:
        promised = ["Tiny shapes: the speeds say nothing.", ""] if found["small"] else lines_of_promises(found["races"])
        text += ["", "## What was promised", ""] + promised + ["## Races", ""]
    for race in found["races"]:
        text += lines_of_race(race, package)
    for race in found["races"]:
        text += ["    " + line for variant in race["variants"].values() for line in variant.strip().split("\n")]
    text += ["", "Clocks, all the time (lowest, median, highest): %s" % json.dumps(found["clocks"]), "Profiles: %s" % json.dumps(found["profiles"]),
             "Seconds of the steps: %s" % json.dumps(found["seconds"]), ""]
    return text


def write(folder, found, faults):
    with open(os.path.join(folder, "report.json"), "w", encoding="utf-8") as file:
        json.dump(dict(found, faults=faults), file, indent=1)
    with open(os.path.join(folder, "report.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines(found, faults)))

"""The measurement: every library and number of threads in turn, round after round, between slices of the machine's peak."""

import os
import statistics
import tempfile

import numpy

from . import cases, workers, reference

PEAK_SECONDS = 0.02  # of each slice of the peak
BUSY = 0.1           # cores that others may use in a round; a round in which they used more is made again, once for each that is wanted
PER_ROUND = ("seconds", "median_seconds", "calls", "others_busy")


class Entry:
    """One library at one number of threads; its process is started anew after a crash."""

    def __init__(self, peer, threads):
        self.peer, self.threads = peer, threads
        self.process, self.hello, self.lost = None, {}, ""
        self.result = {}

    def begin(self):
        """False, with the reason in `lost`, when the library cannot be used at all."""
        try:
            self.process, self.hello = workers.start(self.peer, self.threads)
        except (workers.Gone, OSError) as gone:
            self.lost = str(gone)
        return not self.lost

    def ask(self, order):
        """The answer, or None: then the result says why, and the process is another one."""
        try:
            answer = self.process.ask(order)
        except workers.Gone as gone:
            self.result["error"] = str(gone)
            self.process.end()
            self.begin()
            return None
        if "error" in answer:
            self.result["error"] = answer["error"]
            return None
        return answer

    def discard(self):
        """Gives the tensors of the case back, and notes how much memory a call takes."""
        try:
            self.result["memory_bytes"] = self.process.ask(dict(do="drop", memory="seconds" in self.result and "error" not in self.result))["memory_bytes"]
        except workers.Gone:
            self.process.end()
            self.begin()

    def end(self):
        if self.process:
            self.process.end()


class Bench:
    """All processes of a run."""

    def __init__(self, options, say):
        self.options, self.say = options, say
        self.entries, self.roofs, self.missing = [], {}, {}

    def __enter__(self):
        for threads in self.options.threads:
            self.roofs[threads] = workers.Roofs(self.options.roof, threads, self.options.dtype)
        for peer in self.options.peers:
            for threads in self.options.threads:
                entry = Entry(peer, threads)
                if peer.name in self.missing or entry.begin():
                    self.entries.append(entry)
                else:
                    self.missing[peer.name] = entry.lost
                    self.say("%s; the others go on" % entry.lost)
        self.entries = [entry for entry in self.entries if entry.peer.name not in self.missing]
        return self

    def __exit__(self, *_):
        for one in [*self.entries, *self.roofs.values()]:
            one.end()

    def versions(self):
        return {entry.peer.name: entry.hello.get("version", "") for entry in self.entries}

    def measure(self, case):
        """The record of a case."""
        for entry in self.entries:
            entry.result = dict(peer=entry.peer.name, threads=entry.threads)
        with tempfile.TemporaryDirectory(prefix="polyhead-peers-") as folder:
            expected = reference.truth(case, self.options.dtype)
            ready = [entry for entry in self.entries if not entry.lost and self.prepare(entry, case, expected, folder)]
        record = dict(name=case.name, group=case.group, title=case.title, words=cases.words(case), shape=case.shape, flops=cases.flops(case),
                      key_value_bytes=cases.key_value_bytes(case, self.options.dtype),
                      roofs={str(n): dict(fma_gflops=[], copy_gbs=[], read_gbs=[]) for n in self.roofs})
        if ready:
            self.rounds(record, ready)
        for entry in self.entries:
            if entry.lost and "error" not in entry.result:
                entry.result["error"] = entry.lost
            elif not entry.lost:
                entry.discard()
        record["results"] = [entry.result for entry in self.entries]
        return record

    def prepare(self, entry, case, expected, folder):
        """Every way in which a library does the case, checked; the fastest of the right ones stays. False when there is none."""
        result = entry.result
        answer = entry.ask(dict(do="prepare", case=case.name, dtype=self.options.dtype, folder=folder))
        if answer is None:
            return False
        right, result["refused"] = {}, {}
        for way in answer["ways"]:
            if "rows" in way:
                error, wrong = reference.largest_error(numpy.load(way["rows"]), expected, self.options.dtype)
                os.remove(way["rows"])
                if not wrong:
                    right[way["how"]] = (error, way["prepare_seconds"])
                way["error"] = wrong
            if way.get("error") or "missing" in way:
                result["refused"][way["how"]] = way.get("error") or way["missing"]
        if not right:
            faults = [way["error"] for way in answer["ways"] if way.get("error")]
            result["error" if faults else "missing"] = faults[0] if faults else "; ".join(result["refused"].values()) or "it has no such operation in %s" % self.options.dtype
            return False
        chosen = entry.ask(dict(do="choose", ways=list(right)))
        if chosen is None:
            return False
        result.update(how=chosen["how"], tried=chosen["seconds"], max_error=right[chosen["how"]][0],
                      prepare_seconds=right[chosen["how"]][1], seconds=[], median_seconds=[], calls=[], others_busy=[])  # fmt: skip
        return True

    def rounds(self, record, ready):
        """As many rounds as are wanted; of more, those stay in which others used the machine least."""
        busy = []
        while len(busy) < 2 * self.options.rounds and sum(b <= BUSY for b in busy) < self.options.rounds:
            self.round(record, ready, len(busy))
            found = [entry.result["others_busy"][-1] for entry in ready if "error" not in entry.result]
            if not found:
                return
            busy.append(statistics.mean(found))
        kept = sorted(sorted(range(len(busy)), key=busy.__getitem__)[: self.options.rounds])
        record["others_busy"], record["rounds_made"] = [round(busy[i], 3) for i in kept], len(busy)
        for columns, names in [(entry.result, PER_ROUND) for entry in ready] + [(roofs, list(roofs)) for roofs in record["roofs"].values()]:
            for name in names:
                columns[name] = [columns[name][i] for i in kept if i < len(columns[name])]

    def round(self, record, ready, number):
        """Every entry once, in an order that is another one in each round."""
        peaks = {threads: [] for threads in self.roofs}
        start = number % len(ready)
        for entry in ready[start:] + ready[:start]:
            if "error" in entry.result:
                continue
            peaks[entry.threads].append(self.roofs[entry.threads].measure("fma", PEAK_SECONDS))
            answer = entry.ask(dict(do="time", seconds=self.options.slice))
            if answer is not None:
                # The shortest call of the slice counts, because other programs can only make a call longer.
                entry.result["seconds"].append(min(answer["seconds"]))
                entry.result["median_seconds"].append(statistics.median(answer["seconds"]))
                entry.result["calls"].append(len(answer["seconds"]))
                entry.result["others_busy"].append(round(answer["others_busy"], 3))
        for threads, roofs in self.roofs.items():
            found = record["roofs"][str(threads)]
            found["fma_gflops"].append(max(peaks[threads] or [roofs.measure("fma", PEAK_SECONDS)]))
            found["copy_gbs"].append(roofs.measure("copy"))
            if record["key_value_bytes"]:
                found["read_gbs"].append(roofs.measure("read"))

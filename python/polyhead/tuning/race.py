"""Compares the last candidates: successive halving over interleaved rounds, until the best one is better by more than the noise."""
from __future__ import annotations

import math
import random
import time
from typing import Any, Callable, NamedTuple

import numpy

from .pool import Poisoned, Process
from .problem import Shape

FIRST_RUNG, LAST_RUNG = 3, 24


class Result(NamedTuple):
    """The result of one candidate: time / time of the reference in the same round, and its own milliseconds."""

    ratio: float
    low: float  # 95 % interval of the median
    high: float
    median_ms: float
    spread_ms: float
    rounds: int


def summary(ratios: list[float], seconds: list[float]) -> Result:
    q1, median, q3 = (float(x) for x in numpy.percentile(ratios, (25, 50, 75)))
    half = 1.58 * (q3 - q1) / math.sqrt(len(ratios))  # as the notches of a box plot
    ms = 1e3 * numpy.asarray(seconds)
    return Result(median, median - half, median + half, float(numpy.median(ms)), float(numpy.subtract(*numpy.percentile(ms, (75, 25)))),
                  len(ratios))


class Race:
    """Rounds. In each round every remaining process is timed once, in a new order."""

    def __init__(self, reference: Process, finalists: list[Process], shape: Shape, slice_seconds: float,
                 lost: Callable[[Process, str], None] = lambda process, why: None) -> None:
        self.reference, self.left, self.shape, self.slice, self.lost = reference, list(finalists), shape, slice_seconds, lost
        self.ratios: dict[str, list[float]] = {p.text: [] for p in finalists}
        self.seconds: dict[str, list[float]] = {p.text: [] for p in finalists}
        self.reference_seconds: list[float] = []
        self.order = random.Random(5)

    def round(self) -> None:
        taken: dict[str, float] = {}
        self.order.shuffle(self.left)
        reference_at = self.order.randrange(len(self.left) + 1)
        base = 0.0
        for i, process in enumerate([*self.left[:reference_at], self.reference, *self.left[reference_at:]]):
            if i == reference_at:
                base = self.reference.time(self.shape, self.slice)[0]
                continue
            try:
                taken[process.text] = process.time(self.shape, self.slice)[0]
            except Poisoned as why:
                self.left.remove(process)
                self.lost(process, str(why))
        self.reference_seconds.append(base)
        for text, seconds in taken.items():
            self.ratios[text].append(seconds / base)
            self.seconds[text].append(seconds)

    def result(self, process: Process) -> Result:
        return summary(self.ratios[process.text], self.seconds[process.text])

    def ranked(self) -> list[Process]:
        return sorted(self.left, key=lambda p: float(numpy.median(self.ratios[p.text])))

    def run(self, deadline: float, tick: Callable[[], Any] = lambda: None) -> list[Process]:
        """Runs the rounds. Returns the remaining processes, the best first; the others are closed."""
        rung = FIRST_RUNG
        while self.left:
            while len(self.reference_seconds) < rung and (time.monotonic() < deadline or not self.reference_seconds):
                self.round()
                tick()
            ranked = self.ranked()
            if time.monotonic() >= deadline or rung >= LAST_RUNG or self._clear(ranked):
                return ranked
            for process in ranked[max(2, (len(ranked) + 1) // 2):]:
                self.left.remove(process)
                process.close()
            rung = min(2 * rung, LAST_RUNG)
        return []

    def _clear(self, ranked: list[Process]) -> bool:
        """True when the intervals of the best and the second do not overlap."""
        return len(ranked) == 1 or self.result(ranked[0]).high < self.result(ranked[1]).low

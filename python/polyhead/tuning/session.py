"""The tuning of one task: explore, race, choose ranges of lengths. Every measurement is first written to the log."""
from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any, Callable, Iterator, Optional

import numpy

from .. import _core, _files
from . import records
from .log import Log, task_id
from .pool import BaseLost, Laboratory, Poisoned, Process, ratio_of
from .problem import Segment, Shape, Task, knobs_of, tiling_text
from .race import Race, Result, summary
from .ranges import Found, split
from .search import STRATEGIES, Point, Search, key_of


METHOD = 2  # increased when older measurements are no longer comparable
MOST_FAILURES = 20  # so many failures in a row end the problem


@dataclasses.dataclass
class Settings:
    strategy: str = "tpe"
    seed: int = 1
    threads: int = 1
    candidates: int = 0  # 0: as many as the budget allows
    finalists: int = 6
    jobs: int = 1
    compile_seconds: float = 120.0
    slice_seconds: float = 0.02


class Progress:
    """The interface for output on a terminal; this class shows nothing."""

    def phase(self, text: str) -> None:
        pass

    def best(self, ratio: float, text: str, measured: int) -> None:
        pass

    def skipped(self, text: str, why: str) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def tick(self) -> None:
        pass


class Session:
    """One range of lengths of one task. run() may be interrupted; found() then returns the results so far."""

    def __init__(self, task: Task, segment: Segment, settings: Settings, log: Log, progress: Progress) -> None:
        self.task, self.segment, self.settings, self.log, self.progress = task, segment, settings, log, progress
        self.frames = task.frames(segment.shape)
        self.default = task.default_point(segment.shape)
        self.base = self.default  # the others are compared with it; another tiling if the default cannot be used
        self.ids: list[str] = []
        self.failed: dict[str, str] = {}
        self.kept: list[Process] = []
        self.reference: Optional[Process] = None
        self._begin()

    def _begin(self) -> None:
        """Starts with a new base: only the measurements in the log that used this base are known."""
        versions = {f["frame"]: f["schedule_version"] for f in self.frames}
        other = {} if self._has_default_base() else {"base": key_of(self.base)}
        self.ids.append(task_id(problem=self.task.problem, target=self.task.full_target, shape=list(self.segment.shape),
                                threads=self.settings.threads, halide=self.task.space["halide"], frames=versions,
                                cpu=records.machine("")["cpu"], method=METHOD, **other))
        flags = [*self.task.flags, "--target", self.task.target]
        self.search: Search = STRATEGIES[self.settings.strategy](self.frames, self.default, lambda f, t: _core.tiling_refusal(flags, f, t),
                                                                 self.settings.seed)
        self.ratios: dict[str, tuple[float, Point]] = {}
        self.raced: dict[str, tuple[Result, Point]] = {}
        self.base_seconds: list[float] = []
        self.by_length: dict[Shape, dict[str, Result]] = {}
        self._recall()

    def _has_default_base(self) -> bool:
        return key_of(self.base) == key_of(self.default)

    def _recall(self) -> None:
        """Reads from the log the measurements with this base, and the candidates that failed with any base."""
        for entry in self.log.entries(self.ids[-1], "measured"):
            point = (entry["frame"], knobs_of(entry["tiling"]))
            if not self.task.allows(point[1]):
                continue
            self.ratios[key_of(point)] = (entry["ratio"], point)
            self.search.recall(point, entry["ratio"])
        for entry in (entry for name in self.ids for entry in self.log.entries(name, "failed")):
            point = (entry["frame"], knobs_of(entry["tiling"]))
            self.failed[key_of(point)] = entry["why"]
            self.search.recall(point, None)
        self.recalled = len(self.ratios)
        if self.recalled:  # until the base is timed again
            entries = self.log.entries(self.ids[-1], "measured")
            self.base_seconds = [float(numpy.median([1e-3 * e["ms"] / e["ratio"] for e in entries]))]

    def run(self, seconds: float) -> None:
        """Measures for about `seconds`."""
        start = time.monotonic()
        with self.laboratory() as lab:
            for lost, point in enumerate(self._bases()):
                if lost >= MOST_FAILURES:
                    break
                try:
                    self._start_base(lab, point)
                    explored = self.settings.candidates > 0 and len(self.ratios) + len(self.failed) >= self.settings.candidates
                    self.progress.phase("explore")
                    if not explored:
                        self._explore(lab, start + 0.7 * seconds)
                    self.progress.phase("race")
                    self._race(lab, start + 0.9 * seconds)
                    return
                except BaseLost as why:
                    self._lose_base(point, str(why))
            raise Poisoned("none of %d tilings could be used; the last one: %s" % (len(self.failed), list(self.failed.values())[-1]))

    def _bases(self) -> Iterator[Point]:
        """Possible bases, in this order: the default, the base that an earlier run used instead, the best known tiling, any other."""
        known = {(e["frame"], e["tiling"]): (e["frame"], knobs_of(e["tiling"])) for e in self.log.entries(self.ids[0], "base")}
        yield self.default
        yield from reversed(known.values())
        yield from iter(self._best_or_new, None)

    def _best_or_new(self) -> Optional[Point]:
        for _, point in sorted(self.ratios.values(), key=lambda r: r[0]):
            if key_of(point) not in self.failed:
                return point
        return self.search.ask()

    def _start_base(self, lab: Laboratory, point: Point) -> None:
        process, = lab.prepare([point], self.segment.shape)
        if isinstance(process, Poisoned):
            raise BaseLost(str(process))
        process.failure = BaseLost
        self.reference = process
        lab.settle(self.segment.shape, process)
        seconds = process.time(self.segment.shape, self.settings.slice_seconds)[0]
        if key_of(point) != key_of(self.base):
            self.base = point
            self._begin()
            self.log.append(task=self.ids[0], kind="base", frame=point[0], tiling=tiling_text(point[1]), date=records.today())
            self.progress.say("  times are relative to %s" % key_of(point))
            self.ratios[key_of(point)] = (1.0, point)
        self.search.recall(point, 1.0)
        self.base_seconds = [seconds]

    def _lose_base(self, point: Point, why: str) -> None:
        if key_of(point) == key_of(self.default):
            self.progress.say("  the default tiling cannot be used: %s; another one takes its place" % why)
        self._close_all()
        self._fail(point, why)

    def _close_all(self) -> None:
        for process in [*self.kept, *filter(None, [self.reference])]:
            process.close()
        self.kept, self.reference = [], None

    @contextlib.contextmanager
    def laboratory(self) -> Iterator[Laboratory]:
        """The laboratory; every process ends with the block."""
        with _files.work_folder("polyhead-tune-") as folder:
            lab = Laboratory(self.task, folder, self.settings.threads, self.settings.compile_seconds)
            try:
                yield lab
            finally:
                self._close_all()

    def _explore(self, lab: Laboratory, deadline: float) -> None:
        limit = self.settings.candidates or 1 << 30
        while time.monotonic() < deadline or not self.ratios.keys() - {key_of(self.base)}:
            points: list[Point] = []
            while len(points) < min(self.settings.jobs, limit - len(self.ratios) - len(self.failed)):
                point = self.search.ask()
                if point is None:
                    break
                points.append(point)
            if not points:
                return  # enough candidates, or the space is exhausted
            for point, process in zip(points, lab.prepare(points, self.segment.shape)):
                self._measure(point, process)
            if not self.ratios and len(self.failed) >= MOST_FAILURES:
                raise Poisoned("none of %d candidates could be used; the last one: %s" % (len(self.failed), list(self.failed.values())[-1]))

    def _measure(self, point: Point, process: Any) -> None:
        text = key_of(point)
        try:
            if isinstance(process, Poisoned):
                raise process
            assert self.reference is not None
            ratio, seconds = ratio_of(process, self.reference, self.segment.shape, 4, self.settings.slice_seconds)
        except Poisoned as why:
            self._fail(point, str(why))
            return
        self.log.append(task=self.ids[-1], kind="measured", frame=point[0], tiling=tiling_text(point[1]), ratio=ratio, ms=1e3 * seconds,
                        strategy=self.settings.strategy, seed=self.settings.seed, date=records.today())
        self.ratios[text] = (ratio, point)
        self.search.tell(point, ratio)
        self._keep(process)
        best, best_point = min(self.ratios.values(), key=lambda r: r[0])
        self.progress.best(best, key_of(best_point), len(self.ratios))

    def _fail(self, point: Point, why: str) -> None:
        self.failed[key_of(point)] = why
        self.search.tell(point, None)
        self.log.append(task=self.ids[-1], kind="failed", frame=point[0], tiling=tiling_text(point[1]), why=why, date=records.today())
        self.progress.skipped(key_of(point), why)

    def _keep(self, process: Process) -> None:
        """Keeps the processes of the best candidates so far."""
        self.kept.append(process)
        self.kept.sort(key=lambda p: self.ratios[p.text][0])
        while len(self.kept) > self.settings.finalists:
            self.kept.pop().close()

    def _race(self, lab: Laboratory, deadline: float) -> None:
        assert self.reference is not None
        alive = {p.text for p in self.kept}
        best = sorted(self.ratios.values(), key=lambda r: r[0])[:self.settings.finalists]
        for process in [p for p in self.kept if p.text not in {key_of(point) for _, point in best}]:
            self.kept.remove(process)  # the log has better ones
            process.close()
        missing = [point for _, point in best if key_of(point) not in alive and key_of(point) != key_of(self.base)]
        for point, process in zip(missing, lab.prepare(missing, self.segment.shape)):
            if isinstance(process, Poisoned):
                self._fail(point, str(process))
                self.ratios.pop(key_of(point), None)
            else:
                self.kept.append(process)
        if not self.kept:
            return
        race = Race(self.reference, self.kept, self.segment.shape, self.settings.slice_seconds,
                    lambda process, why: self._fail((process.frame, process.knobs), why))
        ranked = race.run(deadline, self.progress.tick)
        self.base_seconds = race.reference_seconds
        for process in ranked:
            result = race.result(process)
            self.raced[process.text] = (result, (process.frame, process.knobs))
            self.log.append(task=self.ids[-1], kind="raced", frame=process.frame, tiling=process.tiling, result=list(result), date=records.today())
        self.kept = ranked
        if ranked and self.segment.others:
            self.progress.phase("lengths")
            self._lengths(lab, ranked[:3])

    def _lengths(self, lab: Laboratory, finalists: list[Process]) -> None:
        """Times the finalists at the other lengths; a range of these may get its own tiling."""
        for shape in self.segment.others:
            lab.add_shape(shape)
            assert self.reference is not None
            self.reference.check(shape)
            lab.settle(shape, self.reference)
            able = []
            for process in finalists:
                try:
                    process.check(shape)
                    able.append(process)
                except Poisoned as why:
                    self._fail((process.frame, process.knobs), str(why))
            race = Race(self.reference, able, shape, self.settings.slice_seconds)
            for _ in range(7):
                race.round()
                self.progress.tick()
            self.by_length[shape] = {p.text: race.result(p) for p in race.left}
            self.by_length[shape][key_of(self.base)] = summary([1.0], race.reference_seconds)
            for text, result in self.by_length[shape].items():
                self.log.append(task=self.ids[-1], kind="length", shape=list(shape), point=text, result=list(result), date=records.today())

    def found(self, peak: Callable[[], float]) -> list[Found]:
        """The tilings for this range: the best of the race if it is clearly better than the default; others for lengths where that pays."""
        return split(self, peak)

"""Tunes several tasks: each gets its share of the budget, and its records are written as soon as it is done."""
from __future__ import annotations

import time
from typing import Any, Optional

from .. import _core, _files
from ..error import Error
from . import records
from .confirm import Refuted, confirm
from .log import Log
from .pool import Laboratory, Poisoned, Process
from .problem import Shape, Task, flags_of_line, knobs_of, tiling_text
from .race import Race, Result
from .ranges import Found
from .screen import Screen
from .search import Point, key_of
from .session import Session, Settings


class Peak:
    """The peak of so many threads for a storage type. The fastest of short slices counts, because other programs only slow it down."""

    def __init__(self, threads: int, dtype: int) -> None:
        self.threads, self.dtype = threads, dtype

    def __call__(self) -> float:
        return max(_core.peak_gflops(self.threads, 0.005, self.dtype) for _ in range(20))


def record_of(task: Task, found: Found, settings: Settings, run: str) -> dict[str, Any]:
    """One entry of a file of tuning records."""
    assert found.result is not None
    frame, knobs = found.point
    version = next(f["schedule_version"] for f in task.frames(found.shape) if f["frame"] == frame)
    result = found.result
    record = {
        "problem": task.problem, "target_class": task.target_class, "min_seq_len_q": found.segment.min_seq_len_q,
        "max_seq_len_q": found.segment.max_seq_len_q, "frame": frame, "tiling": tiling_text(knobs),
        "batch": found.shape.batch, "seq_len_q": found.shape.seq_len_q, "seq_len_kv": found.shape.seq_len_kv, "threads": settings.threads,
        "median_ms": round(result.median_ms, 6), "spread_ms": round(result.spread_ms, 6), "rounds": result.rounds,
        "measured": found.measured,
        "machine": records.machine(task.full_target), "halide": task.space["halide"], "schedule_version": version,
        "commit": records.commit(), "date": records.today(), "run": run}
    if found.of_default:
        record["of_default"] = round(result.ratio, 4)
    if found.percent_of_peak:  # not known for a GPU
        record["percent_of_peak"] = round(found.percent_of_peak, 1)
    return record


def tune(tasks: list[Task], settings: Settings, budget: float, output: str, log: Log, screen: Screen, confirms: bool = True) -> tuple[int, bool]:
    """(number of problems that could not be tuned, whether Ctrl-C ended the run). Writes the records of each problem when it is done."""
    parts = [(task, segment) for task in tasks for segment in task.segments()]
    start, failures, done = time.monotonic(), 0, 0
    for task in tasks:
        segments = [segment for other, segment in parts if other is task]
        run = "%s %s" % (records.today(), task.name)
        interrupted = False
        for segment in segments:
            left = budget - (time.monotonic() - start)
            session = Session(task, segment, settings, log, screen)
            interrupted = _tune_segment(session, max(left, 0.0) / (len(parts) - done), screen)
            done += 1
            answer = _keep(session, settings, run, output, screen)
            failures += answer is None
            if interrupted:
                return failures, True
            if answer and confirms:
                try:
                    _confirm(task, answer, output, settings, screen)
                except KeyboardInterrupt:
                    return failures, True
    return failures, False


def _tune_segment(session: Session, seconds: float, screen: Screen) -> bool:
    """Tunes one range of lengths. Returns whether Ctrl-C ended it."""
    name = "%s %s" % (session.task.name, session.segment.shape)
    screen.begin(name, seconds)
    if session.recalled:
        screen.say("%s: %d measurements read from the log" % (name, session.recalled))
    try:
        session.run(seconds)
    except KeyboardInterrupt:
        return True
    except (Error, Poisoned, OSError, EOFError) as error:
        screen.result("%s: %s" % (name, str(error).split("\n", 1)[0]))
    finally:
        screen.end()
    return False


def _keep(session: Session, settings: Settings, run: str, output: str, screen: Screen) -> Optional[list[Found]]:
    """Writes and prints the results of the session; None when there are none."""
    name = session.task.name
    found = [f for f in session.found(Peak(settings.threads, session.task.fields["dtype"])) if f.result is not None]
    if not found or not session.ratios:
        screen.result("%s %s: nothing was measured" % (name, session.segment.shape))
        return None
    records.add(output, [record_of(session.task, f, settings, run) for f in found])
    for f in found:
        screen.result(line_of(name, f, session))
    refused = ", ".join("%s %d" % item for item in session.search.refused.most_common(4))
    screen.say("  %d measured, %d skipped; points refused before: %s" % (len(session.ratios), len(session.failed), refused or "none"))
    return found


def line_of(name: str, found: Found, session: Session) -> str:
    assert found.result is not None
    first, last = found.segment.min_seq_len_q, found.segment.max_seq_len_q
    lengths = "" if (first, last) == (0, 0) else ", query lengths %d to %s" % (first, last or "any")
    what = "the default" if key_of(found.point) == key_of(session.default) else key_of(found.point)
    result = found.result
    return "%s %s%s: %s, %.4g ms (spread %.2g)%s, %.3f of the %s (%.3f to %.3f)" % (
        name, found.shape, lengths, what, result.median_ms, result.spread_ms,
        ", %.1f %% of peak" % found.percent_of_peak if found.percent_of_peak else "", result.ratio,
        "default's time" if found.of_default else "time of %s" % key_of(session.base), result.low, result.high)


def _confirm(task: Task, answer: list[Found], output: str, settings: Settings, screen: Screen) -> None:
    for found in answer:
        is_default = key_of(found.point) == key_of(task.default_point(found.shape))
        try:
            tuned, untuned, record = confirm(task, found.shape, output, settings.threads, settings.compile_seconds, is_default)
        except (Error, OSError) as why:
            screen.result("  not confirmed at %s: %s" % (found.shape, str(why).split("\n", 1)[0]))
            continue
        except Refuted as why:
            records.remove(output, record_of(task, found, settings, ""))
            screen.result("  refuted at %s, the record is removed: %s" % (found.shape, why))
            continue
        beside = "default %.4g ms, ratio %.3f" % (untuned, tuned / untuned) if untuned else "the default cannot be run"
        screen.say("  confirmed at %s: %.4g ms, %s; manifest: %s" % (found.shape, tuned, beside, record))


def recheck(path: str, settings: Settings, seconds: float, target: str, screen: Screen) -> list[list[str]]:
    """Measures every record for this class of machine again, alternating with the default tiling. Returns rows of a table."""
    found, complaints = records.read(path)
    for complaint in complaints:
        screen.say("warning: " + complaint)
    rows = []
    for record in found:
        try:
            rows.append(_recheck_one(record, settings, seconds, target))
        except (Error, Poisoned) as error:
            rows.append([record["problem"], _lengths(record), record["tiling"], "", "", "", str(error)])
    return [row for row in rows if row]


def _lengths(record: dict[str, Any]) -> str:
    return "%d:%s" % (record["min_seq_len_q"], record["max_seq_len_q"] or "")


def _recheck_one(record: dict[str, Any], settings: Settings, seconds: float, target: str) -> list[str]:
    row = [record["problem"], _lengths(record), "frame=%s %s" % (record["frame"], record["tiling"])]
    task, shape = _task_of(record, target)
    if task.target_class != record["target_class"]:
        return [*row, "", "", "", "not measured: for %s, this target is %s" % (record["target_class"], task.target_class)]
    result = _duel(task, shape, task.default_point(shape), (record["frame"], knobs_of(record["tiling"])), settings, seconds)
    verdict = "holds" if result.low <= 1.0 else "slower than the default"
    return [*row, "%.4g" % record["median_ms"], "%.4g" % result.median_ms, "%.3f" % result.ratio, verdict]


def duel(first: dict[str, Any], second: dict[str, Any], settings: Settings, seconds: float, target: str) -> str:
    """Time of the second record / time of the first, measured alternately; or why it was not measured."""
    try:
        task, shape = _task_of(first, target)
        if task.target_class != first["target_class"]:
            return "not measured: for " + first["target_class"]
        points = [(r["frame"], knobs_of(r["tiling"])) for r in (first, second)]
        result = _duel(task, shape, points[0], points[1], settings, seconds)
    except (Error, Poisoned) as error:
        return str(error)
    return "%.3f (%.3f to %.3f)" % (result.ratio, result.low, result.high)


def _task_of(record: dict[str, Any], target: str) -> tuple[Task, Shape]:
    task = Task("record", flags_of_line(record["problem"]), target, record.get("batch", 1))
    return task, Shape(*(int(record[name]) for name in ("batch", "seq_len_q", "seq_len_kv")))


def _duel(task: Task, shape: Shape, base: Point, other: Point, settings: Settings, seconds: float) -> Result:
    """Time of the other / time of the base, measured alternately for `seconds` and at least five rounds."""
    with _files.work_folder("polyhead-tune-") as folder:
        lab = Laboratory(task, folder, settings.threads, settings.compile_seconds)
        processes: list[Process] = []
        try:
            for point in (base, other):
                process, = lab.prepare([point], shape)
                if isinstance(process, Poisoned):
                    raise Poisoned("%s: %s" % (key_of(point), process))
                processes.append(process)
                lab.settle(shape, processes[0])
            race = Race(processes[0], processes[1:], shape, settings.slice_seconds)
            end = time.monotonic() + seconds
            while race.left and (len(race.reference_seconds) < 5 or time.monotonic() < end):
                race.round()
            if not race.left:
                raise Poisoned("the process ended while it was timed")
            return race.result(processes[1])
        finally:
            for process in processes:
                process.close()

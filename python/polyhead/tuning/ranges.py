"""Makes the answer of a session from its measurements: which tiling for which query lengths."""
from __future__ import annotations

import dataclasses
import itertools
import math
from typing import TYPE_CHECKING, Callable, Optional

import numpy

from .problem import Segment, Shape
from .race import Result, summary
from .search import Point, key_of

if TYPE_CHECKING:
    from .session import Session

WORTH = 0.97  # a range of lengths gets its own tiling if that takes at most this part of the time
GAIN = 0.99   # a tiling replaces the default if it takes at most this part of the time


@dataclasses.dataclass
class Found:
    """The result for one range of lengths."""

    segment: Segment
    shape: Shape
    point: Point
    result: Optional[Result]  # None: nothing was measured
    measured: int
    failed: int
    of_default: bool = True  # the ratio is relative to the time of the default tiling
    percent_of_peak: float = 0.0


def split(session: Session, peak: Callable[[], float]) -> list[Found]:
    """One answer, or one for each range of lengths where another finalist is clearly faster."""
    points = {key_of(session.base): session.base}
    points.update({text: point for text, (_, point) in session.ratios.items()})
    shapes = sorted([session.segment.shape, *session.segment.others], key=lambda s: s.seq_len_q)
    table = {shape: _results(session, shape) for shape in shapes}
    known = [shape for shape in shapes if table[shape]]
    whole = _best_everywhere(table, known, key_of(session.base))
    choices = [(shape, _choice(table[shape], whole, key_of(session.base))) for shape in known] or [(session.segment.shape, whole)]
    found = []
    for first, last, shape, text in _ranges(session.segment, choices):
        result = table[shape].get(text)
        one = Found(session.segment._replace(min_seq_len_q=first, max_seq_len_q=last), shape, points[text], result,
                    len(session.ratios), len(session.failed), key_of(session.base) == key_of(session.default))
        if result is not None and not session.task.device:
            one.percent_of_peak = 100 * session.task.flops(shape) / (1e-3 * result.median_ms) / (1e9 * peak())
        found.append(one)
    return found


def _results(session: Session, shape: Shape) -> dict[str, Result]:
    if shape != session.segment.shape:
        return session.by_length.get(shape, {})
    results = {text: result for text, (result, _) in session.raced.items()}
    if not results and session.base_seconds:  # interrupted before the race: the results of the search
        base = 1e3 * min(session.base_seconds)
        best = sorted(session.ratios.items(), key=lambda item: item[1][0])[:1]
        results = {text: Result(ratio, ratio, ratio, ratio * base, 0.0, 0) for text, (ratio, _) in best}
    if session.base_seconds:
        results[key_of(session.base)] = summary([1.0] * len(session.base_seconds), session.base_seconds)
    return results


def _best_everywhere(table: dict[Shape, dict[str, Result]], shapes: list[Shape], base: str) -> str:
    """The best tiling over all lengths by the geometric mean, if it is clearly better than the base; else the base."""
    everywhere = set.intersection(*(set(table[s]) for s in shapes)) if shapes else set()
    means = {text: float(numpy.exp(numpy.mean([math.log(table[s][text].ratio) for s in shapes]))) for text in everywhere}
    best = min(means, key=lambda text: means[text], default=base)
    clear = best in means and means[best] <= GAIN and any(table[s][best].high < 1 for s in shapes)
    return best if clear else base


def _choice(results: dict[str, Result], whole: str, base: str) -> str:
    """The tiling for this length: another one if it saves more time than the noise and WORTH; never one clearly slower than the base."""
    best = min(results, key=lambda text: results[text].ratio)
    if whole not in results:
        return best
    saves = results[best].ratio <= WORTH * results[whole].ratio and results[best].high < results[whole].low
    if saves:
        return best
    return base if base in results and results[whole].low > 1 else whole


def _ranges(segment: Segment, choices: list[tuple[Shape, str]]) -> list[tuple[int, int, Shape, str]]:
    """(first, last, shape, tiling): neighbours with the same tiling are one range; the limits are geometric means."""
    runs = [(text, [shape for shape, _ in run]) for text, run in itertools.groupby(choices, key=lambda choice: choice[1])]
    found, first = [], segment.min_seq_len_q
    for i, (text, shapes) in enumerate(runs):
        last = segment.max_seq_len_q
        if i + 1 < len(runs):
            last = int(math.sqrt(shapes[-1].seq_len_q * runs[i + 1][1][0].seq_len_q))
        found.append((first, last, segment.shape if segment.shape in shapes else shapes[0], text))
        first = last + 1
    return found

"""Confirms the best tilings: a kernel that finds the record in the written file, checked and timed beside the kernel of the default tiling."""
from __future__ import annotations

import json
import os
from typing import Any

import numpy

from .. import _files
from .pool import Laboratory, Poisoned, Process
from .problem import Shape, Task

ROUNDS = 5
SLICE_SECONDS = 0.1
SLOWER = 1.02  # times the default's time: a slower record is removed


class Refuted(Exception):
    """Why a tiling fails with its record: one sentence."""


def confirm(task: Task, shape: Shape, records: str, threads: int, compile_seconds: float, is_default: bool) -> tuple[float, float, str]:
    """(milliseconds, milliseconds of the default tiling or 0 if it fails, the record in the manifest) of the kernel for this shape."""
    with _files.work_folder("polyhead-confirm-") as folder:
        lab = Laboratory(task, folder, threads, compile_seconds)
        processes: list[Process] = []
        try:
            untuned = _untuned(lab, shape, processes)
            try:
                tuned = lab.prepare_flags(["--tuned", os.path.abspath(records)], shape)
                processes.append(tuned)
                record = _record_of(list(filter(task.runs, json.loads(tuned.ask("manifest"))["variants"])), shape)
                times = _times([tuned, untuned] if untuned else [tuned], shape)
            except Poisoned as why:
                raise Refuted(str(why)) from why
        finally:
            for process in processes:
                process.close()
    if untuned and not is_default and clearly_slower(times[0], times[1]):
        raise Refuted("%.4g ms, slower than the default's %.4g ms" % tuple(1e3 * float(numpy.median(taken)) for taken in times))
    return 1e3 * float(numpy.median(times[0])), 1e3 * float(numpy.median(times[1])) if untuned else 0.0, record


def _untuned(lab: Laboratory, shape: Shape, processes: list[Process]) -> Any:
    """The kernel of the default tiling, or None: a default that fails says nothing about the record."""
    try:
        process = lab.prepare_flags(["--no-tuned"], shape)
        processes.append(process)
        lab.settle(shape, process)
        return process
    except Poisoned:
        return None


def _times(processes: list[Process], shape: Shape) -> list[list[float]]:
    """The shortest call of each in each round, in seconds."""
    rounds = [[process.time(shape, SLICE_SECONDS, 3)[0] for process in processes] for _ in range(ROUNDS)]
    return [list(taken) for taken in zip(*rounds)]


def clearly_slower(tuned: list[float], untuned: list[float]) -> bool:
    """True when both the median and the shortest time are slower: other programs may disturb one of them."""
    return all(of(tuned) > SLOWER * of(untuned) for of in (numpy.median, min))


def _record_of(variants: list[dict[str, Any]], shape: Shape) -> str:
    """The record of the variant that serves the shape."""
    for variant in variants:
        last = variant["max_seq_len_q"]
        if variant["min_seq_len_q"] <= shape.seq_len_q and (last == "unlimited" or shape.seq_len_q <= last):
            if "tuning_record" in variant:
                return variant["tuning_record"]
            break
    raise Refuted("the generator does not use the record for %s" % (shape,))

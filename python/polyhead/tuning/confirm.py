"""Confirms the best tilings in compiled programs: the generator makes the kernel from the written record; a program links and runs it."""
from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
from typing import Any, NamedTuple

import numpy

from .. import _arrays, _files
from . import inputs, reference
from .problem import Shape, Task
from .worker import cold_copies

DTYPES = {**_arrays.DTYPES, "int32": 4, "bool": 5}  # polyhead_dtype
ROUNDS = 5
SLOWER = 1.02  # times the default's time: a slower record is removed


class Tools(NamedTuple):
    """Paths of polyhead-generate and libpolyhead.a of a build, and of the checkout."""

    generate: str
    library: str
    source: str

    @classmethod
    def found(cls) -> "Tools":
        return cls(*(os.environ.get("POLYHEAD_TUNE_" + name, "") for name in ("GENERATE", "LIBRARY", "SOURCE")))

    def usable(self) -> bool:
        return all(map(os.path.exists, self))


class NotConfirmed(Exception):
    """Why a tiling could not be tried in a compiled program: one sentence."""


class Refuted(Exception):
    """Why a tiling, or the default tiling, fails in a compiled program: one sentence."""


def confirm(tools: Tools, task: Task, shape: Shape, records: str, threads: int, is_default: bool) -> tuple[float, float, str]:
    """(milliseconds, milliseconds of the default tiling or 0 if it fails, the record in the manifest) of the kernel for this shape."""
    with _files.work_folder("polyhead-confirm-") as name:
        folder = pathlib.Path(name)
        out, expected = _write_call(task.fields, shape, folder)
        arguments = [str(folder), "0.1", str(threads), str(cold_copies(task.fields, shape))]
        record = ""
        programs: dict[str, str] = {}
        times: dict[str, list[float]] = {"tuned": [], "untuned": []}
        for i in range(ROUNDS):
            for kernel, flags in (("tuned", ["--tuned", os.path.abspath(records)]), ("untuned", ["--no-tuned"])):
                try:
                    if i == 0:
                        _run([tools.generate, kernel, *task.flags, "--target", task.target, *flags, "-o", str(folder)])
                        programs[kernel] = _link(tools, folder, kernel)
                    if kernel in programs:
                        times[kernel].append(_time([programs[kernel], *arguments]))
                    if i == 0:
                        _compare(numpy.fromfile(folder / "out.bin", out.dtype).reshape(out.shape), expected, kernel)
                except (NotConfirmed, Refuted):
                    if kernel == "tuned":
                        raise
                    programs.pop(kernel, None)  # a default that fails says nothing about the record
                    times[kernel] = []
            record = record or _record_of(json.loads((folder / "tuned.json").read_text(encoding="utf-8")), shape)
        if times["untuned"] and not is_default and clearly_slower(times["tuned"], times["untuned"]):
            raise Refuted("%.4g ms, slower than the default's %.4g ms" % tuple(float(numpy.median(times[k])) for k in ("tuned", "untuned")))
        return float(numpy.median(times["tuned"])), float(numpy.median(times["untuned"] or [0.0])), record


def clearly_slower(tuned: list[float], untuned: list[float]) -> bool:
    """True when both the median and the shortest time are slower: other programs may disturb one of them."""
    return all(of(tuned) > SLOWER * of(untuned) for of in (numpy.median, min))


def _record_of(manifest: dict[str, Any], shape: Shape) -> str:
    """The record of the variant that serves the shape."""
    for variant in manifest["variants"]:
        last = variant["max_seq_len_q"]
        if variant["min_seq_len_q"] <= shape.seq_len_q and (last == "unlimited" or shape.seq_len_q <= last):
            if "tuning_record" in variant:
                return variant["tuning_record"]
            break
    raise Refuted("the generator does not use the record for %s" % (shape,))


def _time(program: list[str]) -> float:
    """The milliseconds of a call."""
    return float(_run(program, crash=Refuted).split()[0])


def _run(command: list[str], crash: type[Exception] = NotConfirmed) -> str:
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotConfirmed("%s: %s" % (os.path.basename(command[0]), error)) from error
    if done.returncode < 0:
        raise crash("%s: crashed (%s)" % (os.path.basename(command[0]), signal.Signals(-done.returncode).name))
    if done.returncode:
        sentence = (done.stderr.strip().splitlines() or ["exit status %d" % done.returncode])[0]
        raise NotConfirmed("%s: %s" % (os.path.basename(command[0]), sentence))
    return done.stdout


def _link(tools: Tools, folder: pathlib.Path, kernel: str) -> str:
    program = str(folder / (kernel + ".program"))
    source = pathlib.Path(tools.source)
    _run([*os.environ.get("CXX", "g++").split(), "-std=c++17", "-O2", '-DKERNEL_HEADER="%s.h"' % kernel, "-DKERNEL=" + kernel, "-I", str(folder),
          "-I", str(source), "-I", str(source / "runtime" / "include"), str(source / "tools" / "confirm_kernel.cpp"), str(folder / (kernel + ".a")),
          tools.library, "-lpthread", "-ldl", "-o", program])
    return program


def _write_call(fields: dict[str, int], shape: Shape, folder: pathlib.Path) -> tuple[numpy.ndarray, reference.Expected]:
    """Writes arrays and call.txt for tools/confirm_kernel.cpp; returns an empty out and its expected values."""
    arguments, weights = inputs.arguments_of(fields, shape)
    expected = reference.expected(fields, shape, arguments, weights)
    lines = []

    def write(kind: str, name: str, array: numpy.ndarray) -> None:
        file = "%s_%s.bin" % (kind, name)
        numpy.ascontiguousarray(array).tofile(folder / file)
        lines.append("%s %s %d %d %s %s" % (kind, name, DTYPES[array.dtype.name], array.ndim, " ".join(map(str, array.shape)), file))

    for name, value in arguments.items():
        if isinstance(value, numpy.ndarray):
            write("tensor", name, value)
        else:
            lines.append("%s %s" % (name, " ".join(map(str, value)) if isinstance(value, tuple) else value))
    for name, value in weights.items():
        write("weight", name, value)
    outputs = inputs.outputs_of(fields, shape)
    for name, value in outputs.items():
        write("tensor", name, value)
    (folder / "call.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return outputs["out"], expected


def _compare(found: numpy.ndarray, expected: reference.Expected, kernel: str) -> None:
    out = found.astype(numpy.float64)
    error = numpy.abs(out[..., expected.rows, :] - expected.out) / expected.tolerance
    if not (numpy.isfinite(out).all() and float(error.max()) <= 1):
        raise Refuted("the %s kernel gives a wrong answer: %.3g times the allowed error" % (kernel, float(error.max())))

"""One candidate in its own process: compiles it, compares its answer with float64, and times calls on request.

The parent may end this process at any time: code that crashes or does not end harms nothing else.
"""
from __future__ import annotations

import itertools
import os
import threading
import time
from multiprocessing import connection, parent_process
from typing import Any

import numpy

import polyhead

from .. import _core
from . import gradients, inputs
from .problem import DECODE_MOST, SDPA, Shape

# For tests: "crash:q_tile=16,hang:kv_tile=64,wrong:key_panel=4" spoils the candidates whose tiling has the text after the colon.
POISON = "POLYHEAD_TUNE_POISON"
COLD_BYTES = 96 << 20  # keys and values of this size do not fit into the caches


class Candidate:
    """A compiled kernel, and its arrays for each requested shape."""

    def __init__(self, folder: str, fields: dict[str, int], flags: list[str], threads: int, device: str) -> None:
        self.folder, self.fields, self.flags = folder, fields, flags
        polyhead.set_num_threads(threads)
        self.device = polyhead.Device(device) if device else None
        self.poison = ""
        self.kernel: Any = None
        self.calls: dict[Shape, list[dict[str, Any]]] = {}

    def compile(self, frame: str, tiling: str) -> None:
        self.poison = poison_of("frame=%s %s" % (frame, tiling))
        if self.poison == "crash":
            os.abort()
        while self.poison == "hang":
            time.sleep(1)
        text = "frame=%s %s" % (frame, tiling) if frame else tiling
        self.kernel = _core.kernel_of_flags([*self.flags, "--tiling", text] if text else [*self.flags, "--no-tuned"])

    def compile_flags(self, flags: list[str]) -> None:
        """With these flags of polyhead generate in place of a tiling."""
        self.kernel = _core.kernel_of_flags([*self.flags, *flags])

    def manifest(self) -> str:
        return self.kernel.manifest()

    def check(self, shape: Shape) -> float:
        """The largest error / the allowed error. After it the arrays of this shape are ready."""
        with numpy.load(os.path.join(self.folder, file_of(shape)), allow_pickle=False) as stored:
            arrays = {name: self._typed(stored[name]) for name in stored.files}
        expected = {name: arrays.pop("expected." + name) for name in ("rows", "out", "tolerance")}
        call = {name[5:]: value for name, value in arrays.items() if name.startswith("call.")}
        for name in ("window", *_core.usual_numbers):
            if name in call:
                call[name] = call[name].tolist()
        call.update(inputs.expression_tensors(self.kernel.declarations, self.fields, shape))
        weights = {name[8:]: value for name, value in arrays.items() if name.startswith("weights.")}
        if weights:
            call["weights"] = self.kernel.pack(weights, self.device)
        call.update(inputs.outputs_of(self.fields, shape))
        if self.device is not None:  # the tensors are on the device, so that copies are not timed
            call = {name: self.device.put(value) if isinstance(value, numpy.ndarray) else value for name, value in call.items()}
        self.run(call)
        out = rows_of(call, expected["rows"]) + (1 if self.poison == "wrong" else 0)
        if expected["out"].size == 0:  # no float64 formula for an expression: the default tiling's answer is used instead
            self.calls[shape] = copies_of(call, self.fields, shape)
            return 0.0
        error = numpy.abs(out - expected["out"]) / expected["tolerance"]
        if numpy.isfinite(out).all() and float(error.max()) <= 1:
            self.calls[shape] = copies_of(call, self.fields, shape)
        return float(error.max()) if numpy.isfinite(out).all() else float("inf")

    def rows(self, shape: Shape, rows: Any) -> numpy.ndarray:
        return rows_of(self.calls[shape][0], rows)

    def run(self, call: dict[str, Any]) -> None:
        self.kernel.run(call, self.device)
        if self.device is not None:
            self.device.synchronize()

    def _typed(self, array: numpy.ndarray) -> numpy.ndarray:
        """An array of a file: files of NumPy have bfloat16 as 2 bytes without a type."""
        return array.view(inputs.storage_of(self.fields)) if array.dtype.kind == "V" else array

    def time(self, shape: Shape, seconds: float, least: int) -> tuple[float, float]:
        """(shortest, median) seconds of a call, from at least so many calls and seconds. An untimed first call fills the caches."""
        run, calls = self.run, itertools.cycle(self.calls[shape])
        run(next(calls))
        taken, end = [], time.perf_counter() + seconds
        while len(taken) < least or time.perf_counter() < end:
            call = next(calls)
            start = time.perf_counter_ns()
            run(call)
            taken.append(time.perf_counter_ns() - start)
        return min(taken) * 1e-9, float(numpy.median(taken)) * 1e-9


def poison_of(tiling: str) -> str:
    for word in filter(None, os.environ.get(POISON, "").split(",")):
        kind, _, text = word.partition(":")
        if text in tiling:
            return kind
    return ""


def copies_of(call: dict[str, Any], fields: dict[str, int], shape: Shape) -> list[dict[str, Any]]:
    """The calls to time, one after another. Keys and values of a decoding step must not be in a cache, as between two tokens of a model."""
    count = cold_copies(fields, shape) if isinstance(call.get("key"), numpy.ndarray) else 1
    rows = [name for name in ("key", "value") if name in call]
    return [call, *({**call, **{name: call[name].copy() for name in rows}} for _ in range(count - 1))]


def cold_copies(fields: dict[str, int], shape: Shape) -> int:
    """How many copies of keys and values fill the caches; 1 if there are enough queries for the same keys."""
    if fields["op"] != SDPA or shape.seq_len_q > DECODE_MOST:
        return 1
    row = fields["head_dim"] + (0 if fields["value_in_key"] else fields["head_dim_v"])
    elements = shape.batch * fields["num_kv_heads"] * shape.seq_len_kv * row
    return min(64, 1 + COLD_BYTES // (inputs.storage_of(fields).itemsize * elements))


def rows_of(call: dict[str, Any], rows: Any) -> numpy.ndarray:
    """The rows of out as float64, or all gradients."""
    if "grad_out" in call:
        return gradients.flat(call)
    out = call["out"] if isinstance(call["out"], numpy.ndarray) else call["out"].numpy()
    return out[..., rows, :].astype(numpy.float64)


def file_of(shape: Shape) -> str:
    return "%d_%d_%d.npz" % shape


def serve(pipe: connection.Connection, folder: str, fields: dict[str, int], flags: list[str], threads: int,
          device: str) -> None:
    """Answers requests (name of a method, arguments) with ("ok", value) or ("refused", sentence), until the parent closes the pipe."""
    parent = parent_process()
    if parent is not None:  # otherwise a compiler that hangs would outlive a killed parent
        threading.Thread(target=lambda: (connection.wait([parent.sentinel]), os._exit(1)), daemon=True).start()
    os.environ["POLYHEAD_CACHE"] = "off"  # nobody asks for these kernels again
    os.environ["TMPDIR"] = folder  # files that this process leaves when it is killed are removed with the parent's folder
    candidate = Candidate(folder, fields, flags, threads, device)
    while True:
        try:
            name, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = ("ok", getattr(candidate, name)(*arguments))
        except Exception as error:  # any error concerns only this candidate
            answer = ("refused", str(error).split("\n", 1)[0])
        try:
            pipe.send(answer)
        except OSError:
            return

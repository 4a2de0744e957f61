"""The parent's side of candidates: starts their processes, sends requests, and ends processes that crash or do not answer."""
from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import signal
import time
from multiprocessing import forkserver, resource_tracker
from typing import Any, Iterator

import numpy

from ..error import refuse
from . import gradients, inputs, reference, worker
from .problem import BACKWARD, Shape, Task, tiling_text

ANSWER_SECONDS = 60.0


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Delays Ctrl-C and other signals that end the tuner until the end of the block."""
    met: list[int] = []
    before = {number: signal.signal(number, lambda found, _: met.append(found)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if met:  # has priority over an error of the block: the signal may have ended the children, too
            signal.raise_signal(met[0])


class Poisoned(Exception):
    """A candidate that cannot be used: one sentence."""


class BaseLost(Exception):
    """The tiling that candidates are compared with cannot be used: one sentence. The candidate itself is not the cause."""


class Process:
    """A candidate in its process. close() always ends the process."""

    failure: type[Exception] = Poisoned  # the exception of a failure

    def __init__(self, lab: Laboratory, frame: str, knobs: dict[str, int]) -> None:
        self.frame, self.knobs = frame, dict(knobs)
        self.tiling = tiling_text(self.knobs)
        self.pipe, theirs = lab.context.Pipe()
        arguments = (theirs, lab.folder, lab.task.fields, lab.flags, lab.threads, lab.task.device)
        self.process = lab.context.Process(target=worker.serve, args=arguments, daemon=True)
        try:
            with _undisturbed():  # a child that gets an incomplete request prints a traceback
                self.process.start()
        except (EOFError, OSError) as error:
            raise refuse("candidates: cannot start a process: %s" % error) from error
        theirs.close()
        self.checked: set[Shape] = set()
        self.asked = time.monotonic()

    @property
    def text(self) -> str:
        return ("frame=%s %s" % (self.frame, self.tiling)).strip()

    def send(self, name: str, *arguments: Any) -> None:
        self.asked = time.monotonic()
        try:
            self.pipe.send((name, arguments))
        except OSError as error:
            raise self._ended() from error

    def receive(self, seconds: float) -> Any:
        """The answer to the last send(), or Poisoned."""
        try:
            answered = self.pipe.poll(max(0.0, self.asked + seconds - time.monotonic()))
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if not answered:
            self.close()
            raise self.failure("no answer after %.0f s" % seconds)
        try:
            kind, value = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if kind == "refused":
            self.close()
            raise self.failure(value)
        return value

    def ask(self, name: str, *arguments: Any, seconds: float = ANSWER_SECONDS) -> Any:
        self.send(name, *arguments)
        return self.receive(seconds)

    def check(self, shape: Shape) -> None:
        """Checks the answer for this shape; raises Poisoned when it is wrong."""
        if shape not in self.checked:
            error = self.ask("check", shape)
            if not error <= 1:
                self.close()
                raise self.failure("wrong answer at %s: %.3g times the allowed error" % (shape, error))
            self.checked.add(shape)

    def time(self, shape: Shape, seconds: float, least: int = 2) -> tuple[float, float]:
        return self.ask("time", shape, seconds, least)

    def _ended(self) -> Exception:
        self.process.join(5)
        code = self.process.exitcode
        self.close()
        if code is not None and code < 0:
            return self.failure("crashed (%s)" % signal.Signals(-code).name)
        return self.failure("its process ended (exit status %s)" % code)

    def close(self) -> None:
        self.pipe.close()
        if self.process.is_alive():
            self.process.kill()
        self.process.join(5)


def _start_server() -> None:
    """Starts the process that candidates are forked from. In candidates Ctrl-C is blocked; only the parent reacts to it."""
    resource_tracker.ensure_running()  # started now, because its start unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    forkserver.ensure_running()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Laboratory:
    """Makes the candidates of one task: a folder with the arrays of its shapes, and processes that read them."""

    def __init__(self, task: Task, folder: str, threads: int, compile_seconds: float) -> None:
        self.task, self.folder, self.threads, self.compile_seconds = task, folder, threads, compile_seconds
        self.flags = [*task.flags, "--target", task.target]
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["polyhead.tuning.worker"])  # so that it is loaded only once
        _start_server()
        self.shapes: set[Shape] = set()

    def add_shape(self, shape: Shape) -> None:
        """Writes the arrays of this shape and the expected answer in float64."""
        if shape in self.shapes:
            return
        fields = self.task.fields
        arguments, weights = inputs.arguments_of(fields, shape)
        of_gradients = fields["op"] in BACKWARD
        if of_gradients:
            arguments.update(gradients.forward_results(self.task, arguments, shape))
        if "--expression" in self.task.flags:
            expected = reference.Expected(reference.rows_of(shape.seq_len_q), numpy.empty(0), numpy.empty(0))
        elif of_gradients:
            expected = gradients.expected(fields, shape, arguments)
        else:
            expected = reference.expected(fields, shape, arguments, weights)
        arrays = {"call." + name: numpy.asarray(value) for name, value in arguments.items()}
        arrays.update({"weights." + name: value for name, value in weights.items()})
        arrays.update({"expected." + name: value for name, value in expected._asdict().items()})
        numpy.savez(pathlib.Path(self.folder) / worker.file_of(shape), **arrays)
        self.shapes.add(shape)

    def settle(self, shape: Shape, process: Process) -> None:
        """If there is no formula in float64, the answers of this process become the expected ones."""
        path = pathlib.Path(self.folder) / worker.file_of(shape)
        with numpy.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        if arrays["expected.out"].size == 0:
            out = process.ask("rows", shape, arrays["expected.rows"])
            arrays["expected.out"] = out
            arrays["expected.tolerance"] = reference.tuning_tolerance(self.task.fields, out)
            numpy.savez(path, **arrays)

    def prepare(self, points: list[tuple[str, dict[str, int]]], shape: Shape) -> list[Any]:
        """Compiles the points in parallel and checks them one after another. Returns a Process or a Poisoned for each."""
        self.add_shape(shape)
        found: list[Any] = []
        for frame, knobs in points:
            process = Process(self, frame, knobs)
            try:
                process.send("compile", frame, process.tiling)
                found.append(process)
            except Poisoned as why:
                found.append(why)
        for i, process in enumerate(found):
            if isinstance(process, Process):
                try:
                    process.receive(self.compile_seconds)
                except Poisoned as why:
                    found[i] = why
        for i, process in enumerate(found):
            if isinstance(process, Process):
                try:
                    process.check(shape)
                except Poisoned as why:
                    found[i] = why
        return found

    def prepare_flags(self, flags: list[str], shape: Shape) -> Process:
        """Compiles the problem with flags of polyhead generate, such as a file of records, and checks it. Raises Poisoned."""
        self.add_shape(shape)
        process = Process(self, "", {})
        process.ask("compile_flags", flags, seconds=self.compile_seconds)
        process.check(shape)
        return process


def ratio_of(candidate: Process, reference_process: Process, shape: Shape, slices: int, seconds: float) -> tuple[float, float]:
    """(time of the candidate / time of the reference, seconds of the candidate): the shortest calls, measured in alternating slices."""
    ours, theirs = [], []
    for _ in range(slices):
        theirs.append(reference_process.time(shape, seconds)[0])
        ours.append(candidate.time(shape, seconds)[0])
        if len(ours) == 2 and min(ours) > 1.5 * min(theirs):
            break  # clearly slower, no need to measure more
    return min(ours) / min(theirs), min(ours)


def cores() -> int:
    return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)

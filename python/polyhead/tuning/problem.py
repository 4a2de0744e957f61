"""What is tuned: a problem from flags, a line of the kernel table or a manifest, and the shapes and query lengths that are timed."""
from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shlex
import sys
from typing import Any, Iterable, NamedTuple, Optional

from .. import Device, _core, device_count, options
from ..error import refuse

SDPA, MHA, LINEAR = options.OPS["sdpa"], options.OPS["mha"], options.OPS["linear"]
SDPA_BACKWARD, LINEAR_BACKWARD = options.OPS["sdpa_backward"], options.OPS["linear_backward"]
TUNED = (SDPA, MHA, LINEAR, SDPA_BACKWARD, LINEAR_BACKWARD)
BACKWARD, ONE_LAYER = (SDPA_BACKWARD, LINEAR_BACKWARD), (LINEAR, LINEAR_BACKWARD)
GPUS = ("cuda", "opencl", "vulkan", "metal", "webgpu")
DECODE_MOST, DECODE_KEYS = 16, 2048  # most queries of a decoding call; its number of keys
# The lengths for a free query length. The search uses the first length of decoding and the middle one of the longer lengths; with the
# other lengths the ranges are found.
LENGTHS = (1, 4, 16, 128, 512, 2048)
# Options of a generate line that do not belong to the problem.
WITH_VALUE = ("--tiling", "--target", "--tuned", "--emit", "-o", "--output-directory", "--seq-len-q-range")
TABLE_LINE = re.compile(r"^([A-Za-z0-9_]+) *\(([a-z_ ]*)\) *: *(.*)$")


class Shape(NamedTuple):
    """Lengths of one call; a linear layer has its rows in seq_len_q."""

    batch: int
    seq_len_q: int
    seq_len_kv: int

    def __str__(self) -> str:
        return "B%d T%d" % (self.batch, self.seq_len_q) + ("x%d" % self.seq_len_kv if self.seq_len_kv not in (0, self.seq_len_q) else "")


class Segment(NamedTuple):
    """Query lengths that are tuned together: min..max (0 = no limit). The search uses one shape; `others` may split the range."""

    min_seq_len_q: int
    max_seq_len_q: int
    shape: Shape
    others: tuple[Shape, ...] = ()


@dataclasses.dataclass
class Task:
    """One problem on one target."""

    name: str
    flags: list[str]
    target: str
    batch: int = 1
    lengths: tuple[int, ...] = LENGTHS
    most: dict[str, int] = dataclasses.field(default_factory=dict)  # larger values of these knobs are not tried
    capability: int = 0  # of the CUDA device that it is measured on, times 10; 0: the first one's
    space: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        # No records: candidates are compared with the default tiling.
        self.space = json.loads(_core.tiling_space([*self.flags, "--target", self.target, "--no-tuned"]))
        if self.fields["op"] not in TUNED:
            names = _core.problem_fields["op"]
            raise refuse("op: found %s, expected %s" % (names[self.fields["op"]], options.one_of(*(names[op] for op in TUNED)).expected))
        if self.fields["cache"]:
            raise refuse("cache: found 1, expected 0: tune sdpa and linear layers of these sizes, a layer with a cache takes records of layers")
        if self.device and not self.capability and device_count(self.device):
            self.capability = Device(self.device).capability
        target = self.space["targets"][0]
        for kind in ("frames", "variants"):
            target[kind] = [part for part in target[kind] if self.runs(part)]
        for frame in target["frames"]:
            for knob in frame["knobs"]:
                knob["values"] = [n for n in knob["values"] if self.allows({knob["knob"]: n})] or knob["values"][:1]

    def runs(self, part: dict[str, Any]) -> bool:
        """Whether the device has what a frame or a variant needs."""
        needed = part.get("capability", 0)
        return not self.capability or (self.capability == needed if part.get("capability_exact") else self.capability >= needed)

    def allows(self, knobs: dict[str, int]) -> bool:
        """True when no knob is larger than its limit."""
        return all(n <= self.most.get(name, n) for name, n in knobs.items())

    def knobs(self) -> set[str]:
        """Names of the knobs of every frame that serves the problem."""
        return {knob["knob"] for frame in self.space["targets"][0]["frames"] for knob in frame["knobs"]}

    @property
    def problem(self) -> str:
        return self.space["problem"]

    @property
    def fields(self) -> dict[str, int]:
        return self.space["fields"]

    @property
    def target_class(self) -> str:
        return self.space["targets"][0]["target_class"]

    @property
    def full_target(self) -> str:
        return self.space["targets"][0]["target"]

    @property
    def device(self) -> str:
        """The API of a GPU target, otherwise ""."""
        return self.target_class if self.target_class in GPUS else ""

    def frames(self, shape: Shape) -> list[dict[str, Any]]:
        """The frames that serve this shape, with their knobs."""
        return [f for f in self.space["targets"][0]["frames"] if not f["max_seq_len_q"] or shape.seq_len_q <= f["max_seq_len_q"]]

    def default_point(self, shape: Shape) -> tuple[str, dict[str, int]]:
        """Frame and knobs of the variant that a call of this shape runs without tuning."""
        for variant in self.space["targets"][0]["variants"]:
            last = variant["max_seq_len_q"]
            if variant["min_seq_len_q"] <= shape.seq_len_q and (last == 0 or shape.seq_len_q <= last):
                return variant["frame"], knobs_of(variant["tiling"])
        raise refuse("lengths: no variant of '%s' serves %s" % (self.problem, shape))

    def flops(self, shape: Shape) -> float:
        """The floating-point operations of one call."""
        lengths = ["--seq-len-q", str(shape.seq_len_q)]
        if self.fields["op"] not in ONE_LAYER:
            lengths += ["--seq-len-kv", str(shape.seq_len_kv)]
        flags = without(self.flags, ("--seq-len-q", "--seq-len-kv"))
        counted = json.loads(_core.tiling_space([*flags, *lengths, "--target", self.target, "--no-tuned"]))
        return float(counted["flops"]) * (1 if self.fields["op"] in ONE_LAYER else shape.batch)

    def segments(self) -> list[Segment]:
        """The ranges of query lengths that are tuned separately: decoding, if it has its own frame, and longer ones."""
        fields = self.fields
        fixed_q, fixed_kv = fields["seq_len_q"], fields["seq_len_kv"]
        if fields["op"] in ONE_LAYER:
            return [self._segment(0, fixed_q, 0)]
        decode = [f for f in self.space["targets"][0]["frames"] if f["max_seq_len_q"]]
        if fixed_q or not decode:
            return [self._segment(0, fixed_q, fixed_kv)]
        most = decode[0]["max_seq_len_q"]
        decoding = [Shape(self.batch, n, fixed_kv or DECODE_KEYS) for n in sorted(self.lengths) if n <= most]
        found = [Segment(0, most, decoding[0], tuple(decoding[1:]))] if decoding else []
        return found + ([self._segment(most + 1, 0, fixed_kv)] if max(self.lengths) > most else [])

    def _segment(self, first: int, fixed_q: int, fixed_kv: int) -> Segment:
        same = self.fields["op"] == MHA and not self.fields["cross"]
        linear = self.fields["op"] in ONE_LAYER

        def shape(length: int) -> Shape:
            return Shape(self.batch, length, 0 if linear else length if same else fixed_kv or (length if length > DECODE_MOST else DECODE_KEYS))

        if fixed_q:
            return Segment(first, 0, shape(fixed_q))
        lengths = sorted(n for n in self.lengths if n >= (first or DECODE_MOST + 1)) or sorted(self.lengths)
        middle = lengths[len(lengths) // 2]
        return Segment(first, 0, shape(middle), tuple(shape(n) for n in lengths if n != middle))


def knobs_of(tiling: str) -> dict[str, int]:
    return {name: int(value) for name, value in (word.split("=") for word in tiling.split())}


def tiling_text(knobs: dict[str, int]) -> str:
    return " ".join("%s=%d" % item for item in knobs.items() if item[1])


def without(words: Iterable[str], options: tuple[str, ...]) -> list[str]:
    """The words without these options and their values."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in options:
            skip = True
        elif not any(word.startswith(option + "=") for option in options if option.startswith("--")):
            kept.append(word)
    return kept


def flags_of_line(line: str) -> list[str]:
    """The problem's flags of a generate line, with or without `polyhead generate NAME` before them."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise refuse("problem: cannot read '%s': %s" % (line, error)) from error
    first = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    return without(words[first:], WITH_VALUE)


def kernel_table() -> dict[str, str]:
    """{name: flags} of kernels/table.txt, if the command runs from a checkout."""
    source = os.environ.get("POLYHEAD_TUNE_SOURCE", "")
    path = os.path.join(source, "kernels", "table.txt")
    if not source or not os.path.isfile(path):
        return {}
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    return {match.group(1): match.group(3) for match in map(TABLE_LINE.match, lines) if match}


def flags_of_name(name: str, table: dict[str, str]) -> list[str]:
    """The flags of a kernel of the table, or of the manifest NAME.json that a build has written."""
    if name in table:
        return flags_of_line(table[name])
    path = pathlib.Path(name)
    if not path.is_file():
        raise refuse("kernel: found '%s', expected a name of kernels/table.txt, a manifest NAME.json or flags of polyhead generate" % name)
    try:
        line = json.loads(path.read_text(encoding="utf-8"))["generate"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise refuse("kernel: '%s' is not the manifest of a kernel, because it has no generate line" % name) from error
    return flags_of_line(line)


def split_flags(arguments: list[str], known: set[str]) -> tuple[list[str], list[str]]:
    """(words of this command, flags of a problem). An option that this command does not have takes at most one word as its value."""
    ours: list[str] = []
    problem: list[str] = []
    value_of_problem = False
    for word in arguments:
        if word.startswith("-") and " " not in word and word.split("=", 1)[0] not in known:
            problem.append(word)
            value_of_problem = "=" not in word
        elif value_of_problem and not word.startswith("-"):
            problem.append(word)
            value_of_problem = False
        else:
            ours.append(word)
            value_of_problem = False
    return ours, problem


def parse(parser: argparse.ArgumentParser, arguments: Optional[list[str]]) -> tuple[argparse.Namespace, list[str]]:
    """(options of this command, flags of a problem). Without arguments: from the command line."""
    ours, problem = split_flags(sys.argv[1:] if arguments is None else arguments,
                                {name for action in parser._actions for name in action.option_strings})
    return parser.parse_args(ours), problem

"""Kernels as objects: compiled for one problem, called with named tensors, looked into, written to disk."""
from __future__ import annotations

import collections
import json
import os
import pathlib
import threading
import warnings
from typing import Any, Optional, Union

from . import _arrays, _core

# Results beside out, in the order in which a call returns them: field of the problem, and its dimensions.
EXTRA_OUTPUTS = (("lse", "bhq"), ("scores", "bhqk"), ("weights_mean", "bqk"))


class Kernel:
    """A kernel of one problem, made by compile(). Thread-safe; arrays may be of any library with DLPack."""

    def __init__(self, core: _core.Kernel) -> None:
        self._core = core
        self._problem = core.problem  # asked by every call, and made anew each time

    def __call__(self, *, out: Any = None, layout: str = "bhsd", device: Any = None, **arguments: Any) -> Any:
        """Runs the kernel.

        sdpa:   query [B,H,T_q,d], key [B,H_kv,T_kv,d], value [B,H_kv,T_kv,d_v] -> out [B,H,T_q,d_v]; layout as in polyhead.sdpa
        mha:    query [B,T_q,D], with cross key [B,T_kv,kdim] and value [B,T_kv,vdim], weights=kernel.pack(...) -> out [B,T_q,D]
        linear: input [M,K], weights=kernel.pack(...) -> out [M,N]

        Further arguments are the tensors and numbers that the kernel was built with, by the names of polyhead_args: kv_lengths,
        softmax_scale, alignment, window, mask, score_bias, softcap, alibi_slopes, sinks, rope_cos, rope_sin, positions_q,
        positions_kv, head_gate, position_offsets, and the tensors that the expression declares, by name or, where an argument has that
        name, as tensors={name: array}. Returns out, or a tuple of out and
        the further outputs of the problem in the order lse, scores, weights_mean. out=, lse=, scores=, weights_mean= name arrays to
        write to.
        """
        place, results = self._prepare(arguments, out, layout, device)
        self._core.run(arguments, place, layout)
        return results[0] if len(results) == 1 else tuple(results)

    def explain(self, *, out: Any = None, layout: str = "bhsd", device: Any = None, **arguments: Any) -> str:
        """Which variant a call with these arguments runs, and why not those before it."""
        place, _ = self._prepare(arguments, out, layout, device)
        return self._core.explain(arguments, place, layout)

    def scratch_bytes(self, *, out: Any = None, layout: str = "bhsd", device: Any = None, **arguments: Any) -> int:
        """Bytes that a call with these arguments allocates while it runs."""
        place, _ = self._prepare(arguments, out, layout, device)
        return self._core.scratch_bytes(arguments, place, layout)

    def pack(self, *, device: Any = None, **tensors: Any) -> _core.Weights:
        """Packs nn.Linear weights [out_features, in_features] for this kernel.

        mha: in_proj [H*d + H_kv*d + H_kv*d_v, D] and in_bias, or query, key, value and query_bias, key_bias, value_bias;
        out_proj [D, H*d_v] and out_bias. linear: out_proj and out_bias. device: where they shall lie.
        """
        return self._core.pack(tensors, _arrays.device_of(None, device))

    @property
    def problem(self) -> dict[str, Any]:
        """The fields of polyhead_problem, defaults filled in."""
        return self._core.problem

    @property
    def target(self) -> str:
        """The Halide target that it was compiled for."""
        return self._core.target

    @property
    def manifest(self) -> dict[str, Any]:
        """Problem, generate line, parameters, operations, bytes and variants, as in NAME.json."""
        return json.loads(self._core.manifest())

    def lowered(self) -> str:
        """The loops that Halide made, of every variant."""
        return self._core.listing("stmt")

    def assembly(self) -> str:
        """The machine code of every variant as text."""
        return self._core.listing("assembly")

    def export(self, directory: Union[str, "os.PathLike[str]"], name: str = "kernel") -> list[pathlib.Path]:
        """Writes NAME.a, NAME.h and NAME.json for C and C++ programs, as `polyhead generate` does; returns their paths."""
        folder = pathlib.Path(directory)
        self._core.write(name, os.fspath(folder))
        return [folder / (name + suffix) for suffix in (".a", ".h", ".json")]

    def __repr__(self) -> str:
        return "<polyhead.Kernel %s>" % _core.generate_flags(self.problem)

    def _prepare(self, arguments: dict[str, Any], out: Any, layout: str, device: Any) -> tuple[Any, list[Any]]:
        """Adds the outputs to the arguments; returns the device and all outputs."""
        problem = self._problem
        if problem["op"] == 2:
            return self._prepare_linear(arguments, out, device, problem)
        for name in ("query", "key", "value"):
            if arguments.get(name) is not None:
                _arrays.require_arrays(**{name: arguments[name]})
        query = arguments.get("query")
        if query is None:
            raise TypeError("query: missing")
        arguments["out"] = out if out is not None else _arrays.empty(query, self._out_shape(arguments, layout, problem))
        sizes = self._sizes(arguments, layout, problem)
        results = [arguments["out"]]
        for name, dimensions in EXTRA_OUTPUTS:
            if problem[name]:
                if arguments.get(name) is None:
                    arguments[name] = _arrays.empty(query, [sizes[d] for d in dimensions], "float32")
                results.append(arguments[name])
        return _arrays.device_of(query, device), results

    @staticmethod
    def _prepare_linear(arguments: dict[str, Any], out: Any, device: Any, problem: dict[str, Any]) -> tuple[Any, list[Any]]:
        rows = arguments.get("input")
        if rows is None:
            raise TypeError("input: missing")
        _arrays.require_arrays(input=rows)
        arguments["out"] = out if out is not None else _arrays.empty(rows, (*rows.shape[:-1], problem["out_features"]))
        return _arrays.device_of(rows, device), [arguments["out"]]

    @staticmethod
    def _out_shape(arguments: dict[str, Any], layout: str, problem: dict[str, Any]) -> tuple[int, ...]:
        query = arguments["query"]
        if problem["op"] == 1:
            return tuple(query.shape)
        width = problem["head_dim_v"] * (problem["num_heads"] if layout == "bsd" else 1)
        return (*query.shape[:-1], width)

    @staticmethod
    def _sizes(arguments: dict[str, Any], layout: str, problem: dict[str, Any]) -> dict[str, int]:
        """Extents by letter; wrong ranks are left to the runtime, which has the sentence."""
        query = arguments["query"]
        key = query if arguments.get("key") is None else arguments["key"]
        axis = -2 if problem["op"] == 1 or layout in ("bhsd", "bsd") else -3
        q, k = (x.shape[axis] if len(x.shape) >= 3 else 1 for x in (query, key))
        return {"b": query.shape[0], "h": problem["num_heads"], "q": q, "k": k}


def compile(op: str = "sdpa", *, target: str = "host", tiling: str = "", tuned: Union[None, bool, str, "os.PathLike[str]"] = None,
            **problem: Any) -> Kernel:
    """Compiles a kernel, or finds it among those compiled before.

    The keywords are the options of `polyhead generate` with underscores: num_heads=12, head_dim=64, causal="top_left",
    kv_lengths=True, seq_len_q=128. True is a bare option; False and None leave it out. tuned= names a file of tuning records that win
    over the shipped ones (default: $POLYHEAD_TUNED); with False the tiling is the default one whatever records say.
    """
    flags = ["--op", op, "--target", target]
    if tiling:
        flags += ["--tiling", tiling]
    flags += _record_flags(tuned)
    for name, value in problem.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            flags.append(option)
        elif value is not False and value is not None:
            flags += [option, str(value)]
    return Kernel(_core.kernel_of_flags(flags))


def _record_flags(tuned: Union[None, bool, str, "os.PathLike[str]"]) -> list[str]:
    """Entries of the file that are not used are warnings, the others serve."""
    if tuned is None or tuned is True:
        return []
    if tuned is False:
        return ["--no-tuned"]
    path = pathlib.Path(tuned)
    if path.is_file():  # otherwise the refusal is the generator's
        for sentence in json.loads(_core.tuning_records(path.read_text(encoding="utf-8", errors="replace"), path.name))["complaints"]:
            warnings.warn(sentence, stacklevel=3)
    return ["--tuned", os.fspath(path)]


# What sdpa() and the layer asked for, by fields and device, the oldest first: kernels for ranges of query lengths, which hold only the
# variants that such calls look at. As many as the compiled half keeps.
_kernels: "collections.OrderedDict[Any, tuple[tuple[int, int, _core.Kernel], ...]]" = collections.OrderedDict()
_kernels_lock = threading.Lock()
# Some of them by what a plain call of sdpa() looks at (attention.py).
plain_kernels: dict[tuple[Any, ...], _core.Kernel] = {}


def kernel_of(fields: dict[str, Any], device: Optional[Any], seq_len_q: int) -> _core.Kernel:
    """The kernel of these fields of a problem for queries of this length, for the CPU or for a device."""
    key = (tuple(fields.items()), None if device is None else (device.api, device.capability))
    with _kernels_lock:
        ranges = _kernels.get(key, ())
        if ranges:
            _kernels.move_to_end(key)
    for first, last, kernel in ranges:
        if first <= seq_len_q <= last:
            return kernel
    kernel = _core.kernel_of_fields(fields, target_of(device), seq_len_q)
    with _kernels_lock:
        _kernels[key] = (*_kernels.get(key, ()), (*kernel.seq_len_q_range, kernel))
        _kernels.move_to_end(key)
        while sum(map(len, _kernels.values())) > _core.kernels_kept:
            _kernels.popitem(last=False)
            plain_kernels.clear()
    return kernel


def clear_cache() -> None:
    """Forgets all compiled kernels. Those that nobody uses leave memory; Kernel objects and calls that run keep theirs.

    The last 256 kernels that were asked for are kept ($POLYHEAD_KERNELS_KEPT says another number); older ones go by themselves.
    """
    with _kernels_lock:
        _kernels.clear()
        plain_kernels.clear()
    _core.clear_kernels()


# Compute capabilities that Halide 21 makes code for.
CAPABILITIES = (86, 80, 75, 70, 61, 50, 35, 30)


def target_of(device: Optional[Any]) -> str:
    """The Halide target for a device: its interface, for CUDA the newest capability that it has and Halide knows."""
    if device is None:
        return "host"
    if device.api != "cuda":
        return "host-" + device.api
    capability = next((known for known in CAPABILITIES if known <= max(device.capability, 30)))
    return "host-cuda-cuda_capability_%d" % capability

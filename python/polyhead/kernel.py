"""Kernels as objects: compiled for one problem, called with named tensors, inspected, written to files."""
from __future__ import annotations

import collections
import json
import os
import pathlib
import threading
import warnings
from typing import Any, Mapping, Optional, Sequence, Union

from . import _arrays, _core, options
from .error import Error

# The outputs after out, in the order in which a call returns them: field of the problem, name, dimensions, and dtype (None: that of query).
EXTRA_OUTPUTS = (("lse", "lse", "bhq", "float32"), ("scores", "scores", "bhqk", "float32"), ("weights_mean", "weights_mean", "bqk", "float32"),
                 ("keep_heads", "query_heads", "bhqd", None), ("keep_heads", "key_heads", "bgkd", None),
                 ("keep_heads", "value_heads", "bgkv", None), ("keep_heads", "gate_heads", "bhqe", None),
                 ("keep_heads", "attended", "bhqv", None))


class Kernel:
    """A kernel of one problem, made by compile(). Thread-safe; arrays may be of any library with DLPack."""

    def __init__(self, core: _core.Kernel, flags: Sequence[str] = ()) -> None:
        self._core = core
        self._flags = tuple(flags)  # that it was made from
        self._problem, self._operation = core.problem, core.operation  # every call needs them, and the core makes them again each time

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, and what is read from a pickle, is compiled again, for the same problem and target."""
        return _kernel_of_flags, (self._flags,)

    def __call__(self, *, out: Any = None, layout: str = "bhsd", device: Any = None, **arguments: Any) -> Any:
        """Runs the kernel.

        sdpa:   query [B,H,T_q,d], key [B,H_kv,T_kv,d], value [B,H_kv,T_kv,d_v] -> out [B,H,T_q,d_v]; layout as in polyhead.sdpa.
                With page_size: key [pages,H_kv,page_size,d], value [pages,H_kv,page_size,d_v], page_table int32 [B,max_pages].
                Packed tokens: cu_seqlens_q, cu_seqlens_kv int32 [B+1], and a batch of 1 in front of the packed arrays
        mha:    query [B,T_q,D], with cross key [B,T_kv,kdim] and value [B,T_kv,vdim], weights=kernel.pack(...) -> out [B,T_q,D].
                With cache: key_cache [B,H_kv,capacity,d] and value_cache [B,H_kv,capacity,d_v] of the dtype of the problem, or pages and a
                page_table, and cache_lengths int32 [B]. The keys and values of query are written behind the first cache_lengths[b] ones
        linear: input [M,K], weights=kernel.pack(...) -> out [M,N]
        sdpa_backward: query, key, value, out and lse of the forward call, grad_out -> (grad_query, grad_key, grad_value)
        linear_backward: input [M,K], weight [N,K], grad_out [M,N] -> (grad_input, grad_weight), with bias (grad_input, grad_weight, grad_bias)
        mha_backward: query (with cross key and value too), what mha with keep_heads returned beside out, grad_out [B,T_q,D], weight_q [H*d,D],
                weight_k [H_kv*d,kdim], weight_v [H_kv*d_v,vdim], weight_out [D,H*d_v] (with gate weight_gate) -> gradients of the inputs, of
                the weights in that order and, with bias, of their biases

        query, key, value, input and out have the dtype of the problem; host arrays of another float dtype are converted in each call.
        Other tensors are float32, int32 or bool. `arguments` lists the names that this kernel takes; polyhead_args in polyhead/c_api.h says
        what they mean. Tensors of the expression are given by name or, where an argument has that name, as tensors={name: array}. Returns
        out, or a tuple of out and the further outputs of the problem in the order lse, scores, weights_mean, query_heads, key_heads,
        value_heads, gate_heads, attended. out=, lse= and so on name arrays to write to.
        """
        return self._run(arguments, out, layout, device, None)

    def plan(self, *, out: Any = None, layout: str = "bhsd", device: Any = None, **arguments: Any) -> "Plan":
        """Checks a call with these arguments once: calls of the plan have arrays of the same shapes, dtypes and strides."""
        place, _ = self._prepare(arguments, out, layout, device)
        return Plan(self, self._core.plan(arguments, place, layout), layout, device)

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
        out_proj [D, H*d_v] and out_bias. linear: out_proj and out_bias. Packed weights have the dtype of the problem, to which other floats
        are rounded, to nearest even; with f32_weights, and biases always, float32. device: where the packed weights are stored.
        """
        return self._core.pack(tensors, _arrays.device_of(None, device))

    @property
    def problem(self) -> dict[str, Any]:
        """The fields of polyhead_problem, defaults filled in."""
        return self._core.problem

    @property
    def arguments(self) -> list[str]:
        """The names of all arguments of a call: tensors, tensors of the expression, numbers and weights."""
        return self._core.arguments

    @property
    def target(self) -> str:
        """The Halide targets that it was compiled for, best first, separated by commas."""
        return self._core.target

    @property
    def manifest(self) -> dict[str, Any]:
        """Problem, generate line, parameters, operations, bytes and variants, as in NAME.json."""
        return json.loads(self._core.manifest())

    def lowered(self) -> str:
        """The loops that Halide made, for every variant."""
        return self._core.listing("stmt")

    def assembly(self) -> str:
        """The machine code of every variant as text."""
        return self._core.listing("assembly")

    def export(self, directory: Union[str, "os.PathLike[str]"], name: str = "kernel") -> list[pathlib.Path]:
        """Writes NAME.a, NAME.h and NAME.json for C and C++ programs, as `polyhead generate` does; returns their paths."""
        options.check("export", {"directory": directory, "name": name})
        folder = pathlib.Path(os.fsdecode(directory))
        self._core.write(name, os.fspath(folder))
        return [folder / (name + suffix) for suffix in (".a", ".h", ".json")]

    def __repr__(self) -> str:
        return "<polyhead.Kernel %s>" % _core.generate_flags(self.problem)

    def _run(self, arguments: dict[str, Any], out: Any, layout: str, device: Any, plan: Optional[_core.Plan]) -> Any:
        place, results = self._prepare(arguments, out, layout, device)
        self._core.run(arguments, place, layout, plan)
        return results[0] if len(results) == 1 else tuple(results)

    def _prepare(self, arguments: dict[str, Any], out: Any, layout: str, device: Any) -> tuple[Any, list[Any]]:
        """Adds the outputs to the arguments; returns the device and all outputs."""
        problem, first = self._problem, self._operation["first_input"]
        for name in (first, "key", "value"):
            if arguments.get(name) is not None:
                _arrays.require_arrays(**{name: arguments[name]})
        query = arguments.get(first)
        if query is None:
            raise TypeError("%s: missing" % first)
        if self._operation["gradients"]:
            return _arrays.device_of(query, device), self._add_gradients(arguments, out)
        arguments["out"] = out if out is not None else _arrays.empty(query, self._out_shape(query, layout))
        if not self._operation["attends"]:
            return _arrays.device_of(query, device), [arguments["out"]]
        sizes = self._sizes(arguments, layout)
        results = [arguments["out"]]
        for field, name, dimensions, dtype in EXTRA_OUTPUTS:
            if problem[field] and (name != "gate_heads" or problem["gate"]):
                if arguments.get(name) is None:
                    arguments[name] = _arrays.empty(query, [sizes[d] for d in dimensions], dtype)
                results.append(arguments[name])
        return _arrays.device_of(query, device), results

    def _add_gradients(self, arguments: dict[str, Any], out: Any) -> list[Any]:
        """Each has the shape and dtype of what it is the gradient of. A bias is not given: its gradient is float32."""
        arguments["out"] = out
        for name in self._operation["gradients"]:
            of = arguments.get(name[len("grad_"):])
            if arguments.get(name) is None and of is not None:
                arguments[name] = _arrays.empty(of, of.shape)
            weight = arguments.get(name[len("grad_"):].replace("bias", "weight", 1)) if name.startswith("grad_bias") else None
            if arguments.get(name) is None and weight is not None:
                arguments[name] = _arrays.empty(weight, weight.shape[:1], "float32")
        return [arguments.get(name) for name in self._operation["gradients"]]

    def _out_shape(self, query: Any, layout: str) -> tuple[int, ...]:
        width: int = self._operation["out_width"]
        heads = self._num_heads(query, layout) if self._operation["by_heads"] and layout == "bsd" else 1
        return (*query.shape[:-1], width * heads)

    def _num_heads(self, query: Any, layout: str) -> int:
        """Query heads of a call: those of the problem, or of the tensor where the problem leaves them free."""
        if self._problem["num_heads"] or not self._operation["by_heads"]:
            return self._problem["num_heads"]
        shape = (1,) * (4 - len(query.shape)) + tuple(query.shape)
        return shape[-1] // self._problem["head_dim"] if layout == "bsd" else shape[2 if layout == "bshd" else 1]

    @staticmethod
    def _capacity(arguments: dict[str, Any], layout: str, problem: dict[str, Any]) -> int:
        """Keys of a batch row that a cache has room for; of a wrong rank, which the runtime refuses, 1."""
        cache, table = arguments.get("key_cache"), arguments.get("page_table")
        if problem["page_size"]:
            return table.shape[1] * problem["page_size"] if table is not None and len(table.shape) == 2 else 1
        return cache.shape[2 if layout == "bhsd" else 1] if cache is not None and len(cache.shape) == 4 else 1

    def _sizes(self, arguments: dict[str, Any], layout: str) -> dict[str, int]:
        """Extents by letter. The runtime refuses wrong ranks, with a message."""
        problem, query = self._problem, arguments["query"]
        key = query if arguments.get("key") is None else arguments["key"]
        axis = -2 if not self._operation["by_heads"] or layout in ("bhsd", "bsd") else -3
        q, k = (x.shape[axis] if len(x.shape) >= 3 else 1 for x in (query, key))
        if problem["cache"]:
            k = Kernel._capacity(arguments, layout, problem)
        width, gates = problem["head_dim_v"], (0, 1, problem["head_dim_v"])[problem["gate"]]
        return {"b": query.shape[0], "h": self._num_heads(query, layout), "q": q, "k": k, "g": problem["num_kv_heads"],
                "d": problem["head_dim"], "v": width, "e": gates}


class Plan:
    """Calls of one kernel with arrays of one form, made by Kernel.plan(). Thread-safe."""

    def __init__(self, kernel: Kernel, core: _core.Plan, layout: str, device: Any) -> None:
        self._kernel, self._core, self._layout, self._device = kernel, core, layout, device

    def __call__(self, *, out: Any = None, **arguments: Any) -> Any:
        """Runs the kernel, as a call of it does. Arrays of another shape, dtype or stride than those of the plan are refused; what integer
        arrays hold is checked, and numbers may be others."""
        return self._kernel._run(arguments, out, self._layout, self._device, self._core)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a plan cannot be copied or pickled: make it again from its kernel")


def compile(op: str = "sdpa", *, target: str = "host", tiling: str = "", tuned: Union[None, bool, str, "os.PathLike[str]"] = None,
            **problem: Any) -> Kernel:
    """Compiles a kernel, or returns one that was compiled before.

    The keywords are the options of `polyhead generate` with underscores: num_heads=12, head_dim=64, causal="top_left",
    kv_lengths=True, seq_len_q=128, dtype="bf16". True gives the option without a value; False and None leave it out. target= is this machine,
    or names such as "portable" and "x86-64-v3,x86-64": kernel.export() writes them all, and a call takes the first that runs. tuned= names a file of
    tuning records, which have priority over the shipped ones (default: $POLYHEAD_TUNED). tuned=False uses the default tiling and no records.
    """
    options.check("compile", {"op": op, "target": target, "tiling": tiling, "tuned": tuned})
    options.check_problem(problem)
    flags = ["--op", op, "--target", target]
    if tiling:
        flags += ["--tiling", tiling]
    return _kernel_of_flags(flags + _record_flags(tuned) + flags_of(problem))


def flags_of(problem: Mapping[str, Any]) -> list[str]:
    """The options of `polyhead generate` for these keywords of compile()."""
    flags = []
    for name, value in problem.items():
        option = "--" + name.replace("_", "-")
        if options.is_flag(value):
            flags += [option] if value else []
        elif value is not None:
            flags += [option, str(value)]
    return flags


def _kernel_of_flags(flags: Sequence[str]) -> Kernel:
    try:
        return Kernel(_core.kernel_of_flags(list(flags)), flags)
    except Error as error:
        option, colon, rest = str(error).partition(":")
        if option.startswith("--"):  # keywords here
            raise Error(option[2:].replace("-", "_") + colon + rest, error.code) from None
        raise


def _record_flags(tuned: Union[None, bool, str, "os.PathLike[str]"]) -> list[str]:
    """The options for tuning records. Warns about the entries of the file that cannot be used; the others are used."""
    if tuned is None or tuned is True:
        return []
    if tuned is False:
        return ["--no-tuned"]
    path = pathlib.Path(os.fsdecode(tuned))
    if path.is_file():  # otherwise the generator refuses it
        for sentence in json.loads(_core.tuning_records(path.read_text(encoding="utf-8", errors="replace"), path.name))["complaints"]:
            warnings.warn(sentence, stacklevel=3)
    return ["--tuned", os.fspath(path)]


# The kernels that sdpa() and the layer used, by fields and device, the oldest first. Each is for a range of query lengths and has only the
# variants for these lengths. There are at most as many as the compiled module keeps.
_kernels: "collections.OrderedDict[Any, tuple[tuple[int, int, _core.Kernel], ...]]" = collections.OrderedDict()
_kernels_lock = threading.Lock()


def kernel_of(fields: dict[str, Any], device: Optional[Any], seq_len_q: int, longest: int = 0) -> _core.Kernel:
    """The kernel of these fields of a problem for queries of this length, or from this length to longest, for the CPU or for a device."""
    longest = max(seq_len_q, longest)
    key = (tuple(fields.items()), None if device is None else (device.api, device.capability))
    with _kernels_lock:
        ranges = _kernels.get(key, ())
        if ranges:
            _kernels.move_to_end(key)
    for first, last, kernel in ranges:
        if first <= seq_len_q and longest <= last:
            return kernel
    kernel = _core.kernel_of_fields(fields, target_of(device), longest)
    if seq_len_q < kernel.seq_len_q_range[0]:
        kernel = _core.kernel_of_fields(fields, target_of(device))
    with _kernels_lock:
        _kernels[key] = (*_kernels.get(key, ()), (*kernel.seq_len_q_range, kernel))
        _kernels.move_to_end(key)
        while sum(map(len, _kernels.values())) > _core.kernels_kept:
            _kernels.popitem(last=False)
            _core.clear_plain()
    return kernel


# Kernels that were compiled when the package was made (./polyhead wheel).
_BUNDLE = pathlib.Path(__file__).with_name("kernels.bundle")
if _BUNDLE.is_file():
    _core.set_bundle(str(_BUNDLE))


def clear_cache() -> None:
    """Removes all compiled kernels from the memory. Kernels in use by Kernel objects and running calls stay there, compiled code stays on the disk.

    The memory keeps the last 256 kernels that were used ($POLYHEAD_KERNELS_KEPT sets another number) and removes older ones.
    """
    with _kernels_lock:
        _kernels.clear()
    _core.clear_kernels()


# Compute capabilities that Halide 21 can make code for, and one that has instructions of its own.
CAPABILITIES, ALONE = (86, 80, 75, 70, 61, 50, 35, 30), {90: "-cuda_capability_90a"}


def target_of(device: Optional[Any]) -> str:
    """The target for a device: its API, and for CUDA the newest capability that both the device and Halide support, and the device's own."""
    if device is None:
        return "host"
    if device.api != "cuda":
        return "host-" + device.api
    capability = next((known for known in CAPABILITIES if known <= max(device.capability, 30)))
    return "host-cuda-cuda_capability_%d" % capability + ALONE.get(device.capability, "")

"""The weights of one attention layer, from a file or a framework: run with gates, reduced to some heads, saved."""
from __future__ import annotations

import os
from typing import Any, Iterable, Mapping, Optional, Union

import numpy

from . import _arrays, _core, _files
from .error import refuse
from .kernel import Kernel, compile, target_of

# Role of a tensor -> its names: torch.nn.MultiheadAttention, models with q_proj, and BERT.
NAMES = {
    "in_proj": ("in_proj_weight",),
    "query": ("q_proj_weight", "q_proj.weight", "self.query.weight"),
    "key": ("k_proj_weight", "k_proj.weight", "self.key.weight"),
    "value": ("v_proj_weight", "v_proj.weight", "self.value.weight"),
    "out_proj": ("out_proj.weight", "o_proj.weight", "output.dense.weight"),
    "in_bias": ("in_proj_bias",),
    "query_bias": ("q_proj.bias", "self.query.bias"),
    "key_bias": ("k_proj.bias", "self.key.bias"),
    "value_bias": ("v_proj.bias", "self.value.bias"),
    "out_bias": ("out_proj.bias", "o_proj.bias", "output.dense.bias"),
}
# Tensors of layers that polyhead does not compute.
UNSUPPORTED = ("bias_k", "bias_v", "q_norm.weight", "k_norm.weight")


class Layer:
    """The weights of one layer, with their original names. Calling the object runs the layer; keep() removes heads.

    tensors: arrays by the names of torch.nn.MultiheadAttention (in_proj_weight, or q_proj_weight, k_proj_weight, v_proj_weight;
    in_proj_bias, out_proj.weight, out_proj.bias), of models with q_proj.weight .. o_proj.weight, or of BERT (self.query.weight ..
    output.dense.weight). Each name begins with prefix; other tensors are ignored. num_kv_heads: by default found from the shapes, if
    queries and values have the same head_dim. problem: further keywords of polyhead.compile() that the layer needs, such as
    {"causal": "top_left"} or {"rope": "half_split"}; their tensors are given with each call.
    """

    def __init__(self, tensors: Mapping[str, Any], num_heads: int, num_kv_heads: Optional[int] = None, *, prefix: str = "",
                 problem: Optional[Mapping[str, Any]] = None) -> None:
        for name, value in (("num_heads", num_heads), ("num_kv_heads", num_kv_heads)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise refuse("%s: found %r, expected a positive integer" % (name, value))
        self.prefix = prefix
        self.names = _names_in(tensors, prefix)
        self.tensors = {role: _matrix_or_vector(name, tensors[name]) for role, name in self.names.items()}
        self.problem = dict(problem or {})
        self.num_heads = num_heads
        self._find_sizes(num_kv_heads)
        self._check_shapes()
        self._kernels: dict[Any, Kernel] = {}
        self._packed: dict[Any, Any] = {}

    def __call__(self, query: Any, key: Any = None, value: Any = None, *, head_gate: Any = None, kv_lengths: Any = None,
                 out: Any = None, device: Any = None, **arguments: Any) -> Any:
        """query [B,T,D] -> out [B,T,D]; key [B,T_kv,kdim] and value [B,T_kv,vdim] for cross-attention.

        head_gate: a factor for the result of each head, [H]; kv_lengths: int [B], valid keys; further arguments as problem needs them.
        """
        given = {"query": query, "key": key, "value": key if value is None else value, "kv_lengths": kv_lengths, "head_gate": head_gate}
        arguments.update((name, tensor) for name, tensor in given.items() if tensor is not None)
        kernel = self.kernel(cross=key is not None, gated=True, device=_arrays.device_of(query, device))
        return kernel(weights=self.pack(kernel, device), out=out, device=device, **arguments)

    def kernel(self, *, cross: bool = False, gated: bool = False, kv_lengths: bool = True, device: Any = None) -> Kernel:
        """The kernel of this layer; with gated=True it has an input head_gate."""
        key = (cross, gated, kv_lengths, target_of(device))
        if key not in self._kernels:
            inputs = {"kdim": self.kdim, "vdim": self.vdim} if cross else {}
            if not cross and not self.kdim == self.vdim == self.embed_dim:
                raise refuse("key: missing, expected [batch, seq_len, %d] beside value [batch, seq_len, %d]" % (self.kdim, self.vdim),
                             "NULL_POINTER")
            self._kernels[key] = compile(
                "mha", target=target_of(device), embed_dim=self.embed_dim, num_heads=self.num_heads, num_kv_heads=self.num_kv_heads,
                head_dim=self.head_dim, head_dim_v=self.head_dim_v, bias=self.bias, cross=cross, head_gate=gated, kv_lengths=kv_lengths,
                **inputs, **self.problem)
        return self._kernels[key]

    def generate_line(self, name: str, *, cross: bool = False, kv_lengths: bool = True) -> str:
        """The command that makes this layer a library for C and C++."""
        kernel = self.kernel(cross=cross, kv_lengths=kv_lengths)
        return "./polyhead generate %s %s" % (name, _core.generate_flags(kernel.problem))

    def pack(self, kernel: Kernel, device: Any = None) -> Any:
        """The packed weights; all kernels with the same inputs share them."""
        place = _arrays.device_of(None, device)
        key = (kernel.problem["cross"], place)
        if key not in self._packed:
            self._packed[key] = kernel.pack(device=device, **self._runtime_tensors())
        return self._packed[key]

    def keep(self, heads: Iterable[int]) -> "Layer":
        """The layer with only these heads, in ascending order. With grouped heads each key/value head that stays must serve the same
        number of query heads. A key/value head without query heads is removed."""
        kept, group = self._checked_heads(heads), self.num_heads // self.num_kv_heads
        kv_kept = sorted({head // group for head in kept})
        served = [sum(head // group == kv for head in kept) for kv in kv_kept]
        if len(set(served)) > 1:
            raise refuse("keep: key/value heads %s would serve %s query heads, expected the same number each; remove whole groups of %d"
                         % (kv_kept, served, group), "UNSUPPORTED")
        rows = {"query": _rows(kept, self.head_dim), "key": _rows(kv_kept, self.head_dim), "value": _rows(kv_kept, self.head_dim_v)}
        ends = numpy.cumsum([0, self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim])
        together = numpy.concatenate([start + rows[name] for start, name in zip(ends, rows)])
        tensors = {}
        for role, tensor in self.tensors.items():
            if role == "out_proj":
                tensor = numpy.ascontiguousarray(tensor[:, _rows(kept, self.head_dim_v)])
            elif role != "out_bias":
                tensor = tensor[rows.get(role.replace("_bias", ""), together)]
            tensors[self.names[role]] = tensor
        return Layer(tensors, len(kept), len(kv_kept), prefix=self.prefix, problem=self.problem)

    @property
    def nbytes(self) -> int:
        """The bytes of the tensors with their original dtypes."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def save(self, path: Union[str, "os.PathLike[str]"], metadata: Optional[Mapping[str, str]] = None) -> int:
        """Writes the tensors with their original names to a safetensors file, completely or not at all. Returns its size in bytes."""
        from safetensors.numpy import save

        data = save({self.names[role]: tensor for role, tensor in self.tensors.items()}, dict(metadata or {}))
        _files.write(path, data)
        return len(data)

    def _checked_heads(self, heads: Iterable[int]) -> list[int]:
        kept = list(heads)
        for head in kept:
            if isinstance(head, bool) or not isinstance(head, (int, numpy.integer)) or not 0 <= head < self.num_heads:
                raise refuse("keep: found head %r, expected heads 0 to %d" % (head, self.num_heads - 1))
            if kept.count(head) > 1:
                raise refuse("keep: found head %d twice, expected each head once" % head)
        if not kept:
            raise refuse("keep: found no head, expected at least one of %d" % self.num_heads)
        return sorted(int(head) for head in kept)

    def _find_sizes(self, num_kv_heads: Optional[int]) -> None:
        """Finds the dimensions from the shapes: out_proj is [D, H*d_v]; the rows of the others belong to heads."""
        t, heads = self.tensors, self.num_heads
        self.embed_dim, width = t["out_proj"].shape
        self.bias = any(role.endswith("bias") for role in t)
        self.head_dim_v = _divide(self.names["out_proj"], "columns", width, heads, "num_heads")
        if "in_proj" in t:
            name, rows = self.names["in_proj"], t["in_proj"].shape[0]
            if num_kv_heads is None:
                self.head_dim = self.head_dim_v
                if rows <= width or (rows - width) % (2 * self.head_dim):
                    raise refuse("%s: %d rows, expected %d of queries and as many of keys as of values, each of heads of %d"
                                 % (name, rows, width, self.head_dim), "WRONG_SHAPE")
                num_kv_heads = (rows - width) // (2 * self.head_dim)
            else:
                rest = rows - num_kv_heads * self.head_dim_v
                self.head_dim = _divide(name, "rows of queries and keys", rest, heads + num_kv_heads, "num_heads and num_kv_heads")
            self.kdim = self.vdim = self.embed_dim
        else:
            self.head_dim = _divide(self.names["query"], "rows", t["query"].shape[0], heads, "num_heads")
            if num_kv_heads is None:
                num_kv_heads = max(1, t["key"].shape[0] // self.head_dim)
            self.kdim, self.vdim = t["key"].shape[1], t["value"].shape[1]
        if heads % num_kv_heads:
            raise refuse("num_heads %d is not divisible by num_kv_heads %d" % (heads, num_kv_heads), "WRONG_SHAPE")
        self.num_kv_heads = num_kv_heads

    def _check_shapes(self) -> None:
        width_q, width_k = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        width_v, width_out = self.num_kv_heads * self.head_dim_v, self.num_heads * self.head_dim_v
        rows = width_q + width_k + width_v
        expected = {
            "in_proj": (rows, self.embed_dim), "in_bias": (rows,), "query": (width_q, self.embed_dim), "query_bias": (width_q,),
            "key": (width_k, self.kdim), "key_bias": (width_k,), "value": (width_v, self.vdim), "value_bias": (width_v,),
            "out_proj": (self.embed_dim, width_out), "out_bias": (self.embed_dim,)}
        for role, tensor in self.tensors.items():
            if tensor.shape != expected[role]:
                raise refuse("%s: found %s, expected %s with %d heads and %d key/value heads" % (
                    self.names[role], list(tensor.shape), list(expected[role]), self.num_heads, self.num_kv_heads), "WRONG_SHAPE")

    def _runtime_tensors(self) -> dict[str, Any]:
        """The tensors, by the runtime's names, in float32."""
        tensors = {role: numpy.ascontiguousarray(tensor, numpy.float32) for role, tensor in self.tensors.items()}
        if "in_bias" in tensors and "in_proj" not in tensors:
            ends = numpy.cumsum([self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim])
            tensors.update(zip(("query_bias", "key_bias", "value_bias"), numpy.split(tensors.pop("in_bias"), ends)))
        if self.bias:  # some models have only some of the biases
            for role, of in (("query_bias", "query"), ("key_bias", "key"), ("value_bias", "value"), ("in_bias", "in_proj"), ("out_bias", "out_proj")):
                if of in tensors:
                    tensors.setdefault(role, numpy.zeros(tensors[of].shape[0], numpy.float32))
        return tensors


def load(path: Union[str, "os.PathLike[str]"], num_heads: int, num_kv_heads: Optional[int] = None, *, prefix: str = "",
         problem: Optional[Mapping[str, Any]] = None) -> Layer:
    """The layer whose tensors have this prefix in a safetensors file; only these are read."""
    from safetensors import SafetensorError, safe_open

    _arrays.numpy_dtype("bfloat16")  # the import makes the dtype known to numpy
    try:
        with safe_open(os.fspath(path), "numpy") as file:
            wanted = {prefix + name for names in NAMES.values() for name in names} | {prefix + name for name in UNSUPPORTED}
            names = list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names if name in wanted}
    except (OSError, SafetensorError) as error:
        raise refuse("weights: cannot read '%s' as a safetensors file: %s" % (os.fspath(path), error)) from error
    others = sorted({name[:-len(suffix)] for name in names for suffix in NAMES["in_proj"] + NAMES["query"] if name.endswith("." + suffix)})
    if not tensors and others:
        more = " or one of %d more" % (len(others) - 3) if others[3:] else ""
        raise refuse("prefix: found %r, and '%s' has no layer with this prefix, expected %s%s" % (
            prefix, os.fspath(path), " or ".join(map(repr, others[:3])), more))
    return Layer(tensors, num_heads, num_kv_heads, prefix=prefix, problem=problem)


def _names_in(tensors: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """{role: name} of the tensors of the layer; refuses a layer that is not complete."""
    found: dict[str, str] = {}
    for role, suffixes in NAMES.items():
        names = [prefix + suffix for suffix in suffixes if tensors.get(prefix + suffix) is not None]
        if len(names) > 1:
            raise refuse("%s: found together with %s, expected one of them" % (names[1], names[0]), "WRONG_WEIGHTS")
        found.update({role: name for name in names})
    for suffix in UNSUPPORTED:
        if tensors.get(prefix + suffix) is not None:
            raise refuse("%s: unexpected, polyhead's layers do not have it" % (prefix + suffix), "UNSUPPORTED")
    if "in_proj" in found and ("query" in found or "key" in found or "value" in found):
        separate = next(found[role] for role in ("query", "key", "value") if role in found)
        raise refuse("%s: found together with %s, expected one of them" % (separate, found["in_proj"]), "WRONG_WEIGHTS")
    for role in ("out_proj",) if "in_proj" in found else ("query", "key", "value", "out_proj"):
        if role not in found:
            names = (() if role == "out_proj" else NAMES["in_proj"]) + NAMES[role]
            raise refuse("weights: missing %s" % " or ".join(prefix + name for name in names), "WRONG_WEIGHTS")
    if "in_bias" in found and "out_bias" not in found:
        raise refuse("%s: missing, expected because %s is given" % (prefix + NAMES["out_bias"][0], found["in_bias"]), "WRONG_WEIGHTS")
    if "in_bias" in found and any(role + "_bias" in found for role in ("query", "key", "value")):
        raise refuse("%s: found together with separate biases, expected one or the other" % found["in_bias"], "WRONG_WEIGHTS")
    return found


def _matrix_or_vector(name: str, tensor: Any) -> numpy.ndarray:
    """The tensor as an array on the host, with its own dtype."""
    _arrays.require_arrays(**{name: tensor})
    if _arrays.is_torch(tensor):
        tensor = tensor.detach().cpu()
        tensor = tensor.float().numpy() if _arrays.dtype_name(tensor) == "bfloat16" else tensor.numpy()
    elif not isinstance(tensor, numpy.ndarray):
        tensor = numpy.from_dlpack(tensor)
    if tensor.dtype.kind != "f" and tensor.dtype.name != "bfloat16":
        raise refuse("%s: dtype %s, expected a float" % (name, tensor.dtype), "WRONG_DTYPE")
    rank = 1 if name.endswith("bias") else 2
    if tensor.ndim != rank or 0 in tensor.shape:
        raise refuse("%s: found %s, expected %d dimensions, none of them 0" % (name, list(tensor.shape), rank), "WRONG_SHAPE")
    return tensor


def _divide(name: str, what: str, extent: int, parts: int, by: str) -> int:
    if extent < parts or extent % parts:
        raise refuse("%s: %d %s, expected a multiple of %d because of %s" % (name, extent, what, parts, by), "WRONG_SHAPE")
    return extent // parts


def _rows(heads: Iterable[int], width: int) -> numpy.ndarray:
    """The rows that belong to these heads."""
    return (numpy.asarray(list(heads))[:, None] * width + numpy.arange(width)).ravel()

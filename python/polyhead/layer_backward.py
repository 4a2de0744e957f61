"""The gradients of polyhead.MultiheadAttention: what a call keeps for them, and the backward call."""
from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

import numpy

from . import _arrays, options
from .kernel import kernel_of


@dataclasses.dataclass(frozen=True)
class Kept:
    """What MultiheadAttention.backward() reads of a call with keep_heads=True: its arrays, masks, weights and projected heads."""

    fields: Mapping[str, Any]  # of the problem
    arguments: Mapping[str, Any]
    tensors: Mapping[str, Any]  # weights and biases, as in the state dict
    batched: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the projected heads, the result of attention and lse."""
        return sum(self.arguments[name].nbytes for name in (*HEADS, "lse"))


# The heads that a layer without gates keeps.
HEADS = ("query_heads", "key_heads", "value_heads", "attended")


def add_heads(fields: dict[str, Any], arguments: dict[str, Any], query: Any, keys: int) -> None:
    """Lets a call of a layer write what its gradients read."""
    fields["keep_heads"] = 1
    heads, width = fields["num_heads"], fields["embed_dim"] // fields["num_heads"]
    of_queries, of_keys = (query.shape[0], heads, query.shape[1], width), (query.shape[0], fields["num_kv_heads"], keys, width)
    for name in HEADS:
        arguments[name] = _arrays.empty(query, of_keys if name in ("key_heads", "value_heads") else of_queries)
    arguments["lse"] = _arrays.empty(query, of_queries[:3], "float32")


def gradients(grad_out: Any, kept: Kept) -> tuple[Any, Any, Any, dict[str, Any]]:
    """As MultiheadAttention.backward() says."""
    fields = {**{name: value for name, value in kept.fields.items() if name != "keep_heads"}, "op": options.OPS["mha_backward"]}
    if fields.get("dtype"):
        fields["f32_weights"] = 1
    arguments = {name: value for name, value in kept.arguments.items() if name not in ("out", "weights") and value is not None}
    _arrays.require_arrays(grad_out=grad_out)
    arguments["grad_out"] = grad_out if kept.batched else grad_out[None]
    results = {name: _arrays.empty(arguments[name], arguments[name].shape) for name in ("query", "key", "value") if name in arguments}
    arguments.update({"grad_" + name: array for name, array in results.items()})
    of_weights = {name: numpy.empty(tensor.shape, numpy.float32) for name, tensor in kept.tensors.items()}
    arguments.update({"weight_" + name: tensor for name, tensor in _parts(kept.fields, kept.tensors).items() if not name.startswith("bias")})
    for name, part in _parts(kept.fields, of_weights).items():
        arguments["grad_" + (name if name.startswith("bias") else "weight_" + name)] = part
    kernel_of(fields, None, arguments["query"].shape[1]).run(arguments, None, "bhsd")
    grad_query, grad_key, grad_value = (_row(results.get(name), kept.batched) for name in ("query", "key", "value"))
    return grad_query, grad_key, grad_value, of_weights


def _row(array: Any, batched: bool) -> Optional[Any]:
    return array if batched or array is None else array[0]


def _parts(fields: Mapping[str, Any], tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a state dict, or arrays of their shapes, as parts by the names of the C API: q, k, v, out, bias_q ..."""
    width = fields["embed_dim"]
    ends = (width, width + fields["num_kv_heads"] * (width // fields["num_heads"]))
    parts = {"out": tensors["out_proj.weight"]}
    if "in_proj_weight" in tensors:
        parts.update(zip("qkv", numpy.split(tensors["in_proj_weight"], ends)))
    else:
        parts.update({name: tensors[name + "_proj_weight"] for name in "qkv"})
    if "out_proj.bias" in tensors:
        parts["bias_out"] = tensors["out_proj.bias"]
        parts.update(zip(("bias_q", "bias_k", "bias_v"), numpy.split(tensors["in_proj_bias"], ends)))
    return parts

"""One kind of attention layer of a model: what its kernels are made of, and what a call of them takes."""
from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional

import numpy

from ..error import refuse
from ..rope_tables import RopeTables, rope_tables

Array = Any  # numpy.ndarray, of a float type
Names = Mapping[str, tuple[str, ...]]  # tensor -> the ends of its names in files of weights; {n}: the number of the layer
Fields = dict[str, Any]

# The bias of each matrix of a layer, as Kernel.pack() calls it.
BIASES = {"query": "query_bias", "key": "key_bias", "value": "value_bias", "out_proj": "out_bias"}
CALL_TENSORS = ("sinks", "query_norm_weight", "key_norm_weight")


def matrix_shapes(fields: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """[outputs, inputs] of the matrices of a kernel, as Kernel.pack() calls them; attention alone has none."""
    width = fields.get("embed_dim", 0)
    if "out_features" in fields:
        return {"out_proj": (fields["out_features"], width)}
    if not width:
        return {}
    heads, d = fields["num_heads"], fields["head_dim"]
    gates = {"none": 0, "heads": 1, "entries": d}[fields.get("gate", "none")]  # of a head: their rows follow those of its query
    shapes = {"query": (heads * (d + gates), width)}
    if not fields.get("shared_cache"):
        shapes["key"] = (fields["num_kv_heads"] * d, width)
        if not fields.get("value_from_key"):
            shapes["value"] = shapes["key"]
    return {**shapes, "out_proj": (width, heads * d)}


@dataclasses.dataclass(frozen=True)
class Layer:
    """A kind of layer, and the layers of the model that are of it."""

    model_type: str
    kind: str                   # full_attention, sliding_attention, ...; "attention" where a model has one kind
    layers: tuple[int, ...]     # their numbers in the model
    fields: Fields              # of polyhead.compile()
    numbers: Mapping[str, Any]  # what every call takes beside tensors: softmax_scale, window, softcap, norm_epsilon
    config: Mapping[str, Any]   # with what the file leaves out
    names: Names
    layer_type: Optional[str] = None  # of rope_tables()
    linears: Mapping[str, Fields] = dataclasses.field(default_factory=dict)  # by part: kernels beside attention that is no mha
    reads: Optional[int] = None   # the layer whose cache it reads
    caller: tuple[str, ...] = ()  # sentences: what the caller does

    @property
    def name(self) -> str:
        """Of its kernel."""
        return "%s_%s" % (self.model_type, self.kind)

    def kernels(self) -> dict[str, Fields]:
        """The fields of all of its kernels, by name."""
        return {self.name: self.fields, **{"%s_%s" % (self.model_type, part): fields for part, fields in self.linears.items()}}

    def tables(self, rows: int, length: Optional[int] = None) -> RopeTables:
        """cos and sin of the positions 0 to rows - 1. length: as of rope_tables()."""
        return rope_tables(self.config, rows, length=length, layer_type=self.layer_type)

    def tensor(self, state: Mapping[str, Array], number: int, name: str) -> Array:
        """A tensor of one of the layers, out of tensors by their names in a file of weights, whatever these names begin with."""
        endings = [ending.format(n=number) for ending in self.names[name]]
        found = [known for known in state for ending in endings if known == ending or known.endswith("." + ending)]
        if len(found) != 1:
            raise refuse("%s: found %s in the weights, expected one name that ends so" % (
                " or ".join(endings), " and ".join(sorted(found)[:2]) or "none"), "WRONG_WEIGHTS")
        return state[found[0]]

    def weights(self, state: Mapping[str, Array], number: int, part: str = "") -> dict[str, Array]:
        """What Kernel.pack() takes: of the layer, or of the linear layer of a part. A bias that the model does not have is zeros."""
        fields = self.linears[part] if part else self.fields
        taken: dict[str, Array] = {}
        for matrix, (outputs, _) in matrix_shapes(fields).items():
            name = part or matrix
            if name in self.names:
                taken[matrix] = self.tensor(state, number, name)
            if fields.get("bias"):
                bias = part + "_bias" if part else BIASES[matrix]
                taken[BIASES[matrix]] = self.tensor(state, number, bias) if bias in self.names else numpy.zeros(outputs, numpy.float32)
        return taken

    def arguments(self, state: Mapping[str, Array], number: int, rows: int, length: Optional[int] = None) -> dict[str, Any]:
        """What every call of the kernel takes beside input, weights and cache. rows: positions that its tables have."""
        given = {name: numpy.asarray(self.tensor(state, number, name), numpy.float32) for name in CALL_TENSORS if name in self.names}
        if self.fields.get("rope"):
            made = self.tables(rows, length)
            given.update(rope_cos=made.cos, rope_sin=made.sin)
        return {**self.numbers, **given}

"""What a kind of layer costs: parameters, bytes of its weights and of its cache, floating-point operations of a token."""
from __future__ import annotations

import math
import re
from typing import Any, Mapping, NamedTuple

from .. import _core
from .layer import BIASES, Layer, matrix_shapes


# Parts whose result the caller norms, and the entry of the configuration that says over how many numbers.
NORMED = {"q_a": "q_lora_rank", "kv_a": "kv_lora_rank"}


class Counts(NamedTuple):
    """Of one layer."""

    parameters: int
    weights_bytes: int      # matrices of the dtype, the rest f32; packing pads to panels of 16 columns
    cache_token_bytes: int  # that a token adds to the cache
    cache_bytes: int        # of one sequence of `context` tokens; no more than the window has
    flops: int              # of one token that sees `context` tokens: products of matrices, queries and keys, weights and values

    def times(self, layers: int) -> "Counts":
        return Counts(*(layers * number for number in self))


def element_bytes(dtype: str) -> int:
    """Of a storage type: its array type is named by its bits."""
    return int(re.sub(r"\D", "", _core.storage_types[dtype][0])) // 8


def _further(layer: Layer) -> int:
    """Numbers of biases, norms and sinks that the model has."""
    fields, shapes = layer.fields, matrix_shapes(layer.fields)
    count = sum(shapes[matrix][0] for matrix in shapes if BIASES[matrix] in layer.names)
    for part, linear in layer.linears.items():
        count += linear["out_features"] if part + "_bias" in layer.names else 0
        count += layer.config[NORMED[part]] if part in NORMED and part + "_norm" in layer.names else 0
    for name, heads in (("query", "num_heads"), ("key", "num_kv_heads")):
        if name + "_norm_weight" in layer.names:
            count += fields["head_dim"] * (fields[heads] if fields.get("norm_of_projection") else 1)
    return count + (fields["num_heads"] if fields.get("sinks") else 0)


def counts_of(layer: Layer, dtype: str = "f32", context: int = 4096) -> Counts:
    """Of one layer of this kind, with a context of so many tokens."""
    matrices = sum(math.prod(shape) for fields in layer.kernels().values() for shape in matrix_shapes(fields).values())
    further, fields = _further(layer), layer.fields
    widths = fields["head_dim"] + fields.get("head_dim_v", fields["head_dim"])
    seen = min(context, _window(layer.numbers) or context)
    stored = 0 if not fields.get("causal") or fields.get("shared_cache") else fields["num_kv_heads"] * widths * element_bytes(dtype)
    return Counts(matrices + further, matrices * element_bytes(dtype) + 4 * further, stored, stored * seen,
                  2 * matrices + 2 * fields["num_heads"] * widths * seen)


def _window(numbers: Mapping[str, Any]) -> int:
    """Keys that a query sees; 0: all."""
    return numbers["window"][0] + 1 if "window" in numbers else 0

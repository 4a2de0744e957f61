"""polyhead.prune: how much each head matters on your data, and the layer without those that do not.

    layer = prune.load("layer.safetensors", num_heads=12)            # or prune.Layer(state_dict, 12)
    importance = prune.ablation(layer, x, kv_lengths=lengths)        # or prune.output_norm
    smaller = layer.keep(prune.kept_heads(importance, remove=6))
    smaller.save("pruned.safetensors")
    print(smaller.generate_line("pruned"), prune.compare(layer, smaller, x))

See docs/pruning.md. `./polyhead prune` is the same as a command.
"""
from __future__ import annotations

import statistics
import time
from typing import Any, NamedTuple, Optional

import numpy

from .prune_importance import MEASURES, ablation, kept_heads, model_ablation, output_norm, rank, relative_change
from .prune_layer import Layer, load

__all__ = ["Comparison", "Layer", "MEASURES", "ablation", "compare", "kept_heads", "load", "model_ablation", "output_norm", "rank",
           "relative_change"]


class Comparison(NamedTuple):
    """A layer and its pruned form: packed weights, tensors as they came, and the median time of a call."""

    weights_bytes: tuple[int, int]
    tensor_bytes: tuple[int, int]
    milliseconds: tuple[float, float]
    time_ratio: float     # median over rounds of the ratio of two neighbouring measurements
    kept_fraction: float  # of the heads


def compare(full: Layer, pruned: Layer, query: Any, key: Any = None, value: Any = None, *, kv_lengths: Any = None, rounds: int = 15,
            seconds: float = 0.02, pruned_arguments: Optional[dict[str, Any]] = None, **arguments: Any) -> Comparison:
    """Bytes and time of both, the time measured in turns on these inputs, each measurement of at least so many seconds.

    pruned_arguments: tensors per head (sinks, alibi_slopes) that the pruned layer needs in another length.
    """
    calls, weights = [], []
    for layer, changed in ((full, {}), (pruned, pruned_arguments or {})):
        kernel = layer.kernel(cross=key is not None)
        packed = layer.pack(kernel)
        given = {"query": query, "key": key, "value": key if value is None else value, "kv_lengths": kv_lengths, "weights": packed,
                 "out": numpy.empty(query.shape, numpy.float32), **arguments, **changed}
        calls.append((kernel, {name: tensor for name, tensor in given.items() if tensor is not None}))
        weights.append(packed.nbytes)
    repeats = [max(1, round(seconds / max(min(_seconds(call, 1) for _ in range(3)), 1e-6))) for call in calls]
    times = [[_seconds(call, n) for call, n in zip(calls, repeats)] for _ in range(max(1, rounds))]
    before, after = (statistics.median(pair[i] for pair in times) for i in (0, 1))
    return Comparison((weights[0], weights[1]), (full.nbytes, pruned.nbytes), (before * 1e3, after * 1e3),
                      statistics.median(b / a for a, b in times), pruned.num_heads / full.num_heads)


def _seconds(call: Any, repeats: int) -> float:
    """Seconds of one call, over so many."""
    kernel, arguments = call
    started = time.perf_counter()
    for _ in range(repeats):
        kernel(**arguments)
    return (time.perf_counter() - started) / repeats
